#pragma once
// What LSTM and GRU and their gradients share.
#include <string>
#include <vector>

#include "kernels/cpu/gemm/gemm.h"
#include "kernels/cpu/linear/linear_tile.h"
#include "kernels/cpu/simd/add_kernel.h"

namespace plait::cpu {

/// Whether attribute "activations" of a node of this layer is absent, or names the usual ones.
inline bool usual_activations(const NodeInfo& node, std::string_view layer) {
  const Attribute* found = node.attributes.find("activations");
  if (!found) return true;
  const auto* names = std::get_if<std::vector<std::string>>(found);
  const std::vector<std::string> usual = layer == "LSTM" ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
                                                         : std::vector<std::string>{"Sigmoid", "Tanh"};
  if (!names || names->size() % usual.size()) return false;
  for (size_t i = 0; i < names->size(); ++i)
    if ((*names)[i] != usual[i % usual.size()]) return false;
  return true;
}

/// y [m, rows], `ldy` apart = x [m, k] times a weight [rows, k], transposed. Scratch: that of GemmWorkspace(m, k).
template <Isa isa>
void layer_product(ThreadPool& pool, const float* x, int64_t m, const float* w, int64_t rows, int64_t k, float* y,
                   int64_t ldy, std::byte* workspace) {
  if (m >= gemm_from_rows)
    return run_gemm(pool, f32_gemm_tiles(isa),
                    {.a = {x, k, false},
                     .b = {reinterpret_cast<const uint8_t*>(w), DType::f32, k, true},
                     .m = m,
                     .n = rows,
                     .k = k,
                     .y = y,
                     .ldy = ldy},
                    workspace);
  share_ranges(pool, rows, 16, (m * k + 7) / 8, [&](int64_t begin, int64_t end, int) {
    linear_tiles(isa).block(
        {x, k, m, reinterpret_cast<const uint8_t*>(w + begin * k), DType::f32, end - begin, k, y + begin, ldy});
  });
}

}  // namespace plait::cpu
