// Ops on rows: RMSNormalization, LayerNormalization, Softmax and plait.RoPE. The loops are in row_loops.cpp.
#include "core/base/error.h"
#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/rows/norms.h"
#include "kernels/cpu/rows/register.h"
#include "kernels/cpu/rows/row_loops.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

bool is_row(const OperandInfo& scale) {
  return scale.rank == 1 && (scale.dtype == DType::f32 || scale.dtype == DType::bf16 || scale.dtype == DType::f16);
}

bool accepts_norm(const NodeInfo& node) {
  if (!is_f32(node, 0) || !is_last_axis(node) || !is_row(node.inputs[1])) return false;
  if (node.inputs.size() > 2 && node.inputs[2].dtype != DType::none && !is_row(node.inputs[2])) return false;
  for (const OperandInfo& output : node.outputs)
    if (output.dtype != DType::f32 && output.dtype != DType::none) return false;
  return true;
}

int64_t norm_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>, int) {
  return 2 * align(inputs[0].shape.back(1) * 4);  // scale and bias as f32
}

/// The row as n floats: in place, or widened (and broadcast from one element) into `buffer`.
const float* as_row(const TensorView& row, int64_t n, const ElementwiseLoops& loops, float* buffer) {
  if (row.dtype == DType::f32 && row.elements() == n) return row.as<float>();
  const int64_t count = row.elements();
  if (row.dtype == DType::bf16) loops.widen_bf16(row.as<uint8_t>(), buffer, count);
  else if (row.dtype == DType::f16) loops.widen_f16(row.as<uint8_t>(), buffer, count);
  else memcpy(buffer, row.data, static_cast<size_t>(count) * sizeof(float));
  if (count == 1) std::fill_n(buffer, n, buffer[0]);
  return buffer;
}

/// LayerNormalization: x, scale, bias? -> y, mean?, inverse deviation?; RMSNormalization: x, scale -> y, inverse?
template <Isa isa, bool centre>
KernelStatus run_norm(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const int64_t n = x.shape.back(1), rows = x.shape.elements(0, x.shape.rank() - 1);
  if (n == 0 || rows == 0) return {};
  const float epsilon = static_cast<const NormState*>(call.state)->epsilon;
  const ElementwiseLoops& casts = elementwise_loops(isa);
  float* buffer = reinterpret_cast<float*>(call.scratch.data());
  const float *scale = as_row(call.inputs[1], n, casts, buffer), *bias = nullptr;
  if (centre && call.inputs.size() > 2 && call.inputs[2].present())
    bias = as_row(call.inputs[2], n, casts, buffer + align(n * 4) / 4);
  auto side = [&](size_t i) {
    return i < call.outputs.size() && call.outputs[i].present() ? call.outputs[i].as<float>() : nullptr;
  };
  float *means = centre ? side(1) : nullptr, *inverses = side(centre ? 2 : 1);
  share_ranges(call.pool, rows, 1, n * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from = x.as<float>() + i * n;
      float* to = call.outputs[0].as<float>() + i * n;
      float mean = 0, inverse = centre ? row_loops(isa).layer_norm(from, scale, bias, epsilon, to, n, mean)
                                       : row_loops(isa).rms_norm(from, scale, epsilon, to, n);
      if (means) means[i] = mean;
      if (inverses) inverses[i] = inverse;
    }
  });
  return {};
}

bool accepts_softmax(const NodeInfo& node) { return is_f32(node, 0) && is_last_axis(node); }

template <Isa isa>
KernelStatus run_softmax(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const int64_t n = x.shape.rank() ? x.shape.back(1) : 1, rows = n ? x.elements() / n : 0;
  share_ranges(call.pool, rows, 1, n * 8, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      row_loops(isa).softmax(x.as<float>() + i * n, call.outputs[0].as<float>() + i * n, n);
  });
  return {};
}

struct RopeState : KernelState {
  bool interleaved = false;
};

bool accepts_rope(const NodeInfo& node) { return is_f32(node, 0) && is_f32(node, 1) && is_f32(node, 2); }

std::shared_ptr<const KernelState> prepare_rope(const NodeInfo& node) {
  auto state = std::make_shared<RopeState>();
  state->interleaved = node.attributes.integer("interleaved", 0) != 0;
  return state;
}

/// x [b, t, g, d], cos and sin [b, t, z].
template <Isa isa>
KernelStatus run_rope(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &cos = call.inputs[1], &sin = call.inputs[2];
  const int64_t heads = x.shape[2], d = x.shape[3], z = cos.shape.back(1);
  const bool interleaved = static_cast<const RopeState*>(call.state)->interleaved;
  share_ranges(call.pool, x.shape[0] * x.shape[1], 1, heads * d, [&](int64_t begin, int64_t end, int) {
    for (int64_t token = begin; token < end; ++token)
      for (int64_t i = token * heads; i < (token + 1) * heads; ++i)
        row_loops(isa).rope(x.as<float>() + i * d, cos.as<float>() + token * z, sin.as<float>() + token * z,
                            call.outputs[0].as<float>() + i * d, d, z, interleaved);
  });
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa, {.op = "RMSNormalization", .dtypes = "f32", .accepts = accepts_norm, .prepare = prepare_norm,
                          .scratch_bytes = norm_scratch, .run = run_norm<isa, false>, .in_place = 0});
  add_kernel(table, isa,
             {.op = "LayerNormalization",
              .dtypes = "f32",
              .accepts = accepts_norm,
              .prepare = prepare_norm,
              .scratch_bytes = norm_scratch,
              .run = run_norm<isa, true>,
              .in_place = 0});
  add_kernel(table, isa, {.op = "Softmax", .dtypes = "f32", .accepts = accepts_softmax, .run = run_softmax<isa>,
                          .in_place = 0});
  add_kernel(table, isa, {.op = "plait.RoPE", .dtypes = "f32", .accepts = accepts_rope, .prepare = prepare_rope,
                          .run = run_rope<isa>, .in_place = 0});
}

}  // namespace

void add_rows(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
