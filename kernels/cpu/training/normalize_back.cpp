// Gradients of rows and of elements: plait.RMSNormBack, plait.LayerNormBack, plait.SoftmaxBack, plait.UnaryBack. The
// loops are in training_loops.cpp.
#include <cstring>

#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/rows/norms.h"
#include "kernels/cpu/training/register.h"
#include "kernels/cpu/simd/share.h"
#include "kernels/cpu/training/training_loops.h"

namespace plait::cpu {
namespace {

bool accepts_norm(const NodeInfo& node) {
  return is_f32(node, 0) && is_f32(node, 1) && is_f32(node, 2) && is_last_axis(node) && node.inputs[1].rank == 1;
}

/// Parts of the rows, each with sums of its own, which are then added in order. They depend only on the sizes, so the
/// bits do not depend on threads.
int64_t parts_of(int64_t rows) { return std::clamp<int64_t>(rows / 16, 1, 64); }

int64_t aligned_floats(int64_t n) { return align(4 * n) / 4; }

int64_t norm_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>, int) {
  const Shape& x = inputs[0].shape;
  return 4 * aligned_floats(x.back(1)) * (2 * parts_of(x.elements(0, x.rank() - 1)) + 1);
}

/// Sums over the rows, to an array of all columns or of one element for all of them.
void store_sums(const TensorView& to, const float* sums, int64_t n) {
  if (!to.present()) return;
  if (to.elements() == n) {
    std::memcpy(to.data, sums, static_cast<size_t>(4 * n));
    return;
  }
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += sums[j];
  *to.as<float>() = static_cast<float>(sum);
}

/// x [..., n], scale [n] or [1], dy -> dx, dscale?, dbias?.
template <Isa isa, bool centre>
KernelStatus run_norm_back(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &scale = call.inputs[1];
  const int64_t n = x.shape.back(1), rows = x.shape.elements(0, x.shape.rank() - 1), parts = parts_of(rows);
  const int64_t stride = aligned_floats(n);  // of one sum
  const float epsilon = static_cast<const NormState*>(call.state)->epsilon;
  const TrainingLoops& loops = training_loops(isa);
  const auto row = centre ? loops.layer_norm_back : loops.rms_norm_back;
  float* sums = reinterpret_cast<float*>(call.scratch.data());
  float* factors = sums + 2 * parts * stride;
  if (scale.elements() == n) std::memcpy(factors, scale.data, static_cast<size_t>(4 * n));
  else std::fill_n(factors, n, *scale.as<float>());
  share(call.pool, parts, 4 * rows * n, [&](int64_t part, int) {
    float *dscale = sums + 2 * part * stride, *dbias = dscale + stride;
    std::fill_n(dscale, 2 * stride, 0.0f);
    for (int64_t i = rows * part / parts; i < rows * (part + 1) / parts; ++i)
      row(x.as<float>() + i * n, factors, call.inputs[2].as<float>() + i * n, epsilon,
          call.outputs[0].as<float>() + i * n, dscale, dbias, n);
  });
  const auto add = elementwise_loops(isa).binary[static_cast<int>(Binary::add)];
  for (int64_t part = 1; part < parts; ++part) add(sums, 1, sums + 2 * part * stride, 1, sums, 2 * stride);
  for (size_t k = 1; k < call.outputs.size(); ++k)
    store_sums(call.outputs[k], sums + static_cast<int64_t>(k - 1) * stride, n);
  return {};
}

bool accepts_softmax(const NodeInfo& node) { return is_f32(node, 0) && is_f32(node, 1) && is_last_axis(node); }

template <Isa isa>
KernelStatus run_softmax_back(const KernelCall& call) {
  const TensorView& y = call.inputs[0];
  const int64_t n = y.shape.rank() ? y.shape.back(1) : 1, rows = n ? y.elements() / n : 0;
  share_ranges(call.pool, rows, 1, n * 2, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      training_loops(isa).softmax_back(y.as<float>() + i * n, call.inputs[1].as<float>() + i * n,
                                       call.outputs[0].as<float>() + i * n, n);
  });
  return {};
}

/// The derivative of a node; `count` if it has no loop here.
Derivative derivative_of(const NodeInfo& node) {
  const std::string function = node.attributes.string("function", "");
  const bool is_tanh = node.attributes.string("approximate", "none") == "tanh";
  if (function == "Relu") return Derivative::relu;
  if (function == "Tanh") return Derivative::tanh;
  if (function == "Sigmoid") return Derivative::sigmoid;
  if (function == "Softplus") return Derivative::softplus;
  if (function == "Erf") return Derivative::erf;
  if (function == "Swish" && node.attributes.real("alpha", 1) == 1) return Derivative::silu;
  if (function == "Gelu") return is_tanh ? Derivative::gelu_tanh : Derivative::gelu;
  return Derivative::count;
}

struct UnaryState : KernelState {
  Derivative derivative = Derivative::count;
};

std::shared_ptr<const KernelState> prepare_unary(const NodeInfo& node) {
  auto state = std::make_shared<UnaryState>();
  state->derivative = derivative_of(node);
  return state;
}

bool accepts_unary(const NodeInfo& node) {
  return is_f32(node, 0) && is_f32(node, 1) && derivative_of(node) != Derivative::count;
}

template <Isa isa>
KernelStatus run_unary_back(const KernelCall& call) {
  const auto loop =
      training_loops(isa).unary_back[static_cast<int>(static_cast<const UnaryState*>(call.state)->derivative)];
  share_ranges(call.pool, call.outputs[0].elements(), 1024, 8, [&](int64_t begin, int64_t end, int) {
    loop(call.inputs[0].as<float>() + begin, call.inputs[1].as<float>() + begin, call.outputs[0].as<float>() + begin,
         end - begin);
  });
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.RMSNormBack",
              .dtypes = "f32",
              .accepts = accepts_norm,
              .prepare = prepare_norm,
              .scratch_bytes = norm_scratch,
              .run = run_norm_back<isa, false>,
              .in_place = 2});
  add_kernel(table, isa,
             {.op = "plait.LayerNormBack",
              .dtypes = "f32",
              .accepts = accepts_norm,
              .prepare = prepare_norm,
              .scratch_bytes = norm_scratch,
              .run = run_norm_back<isa, true>,
              .in_place = 2});
  add_kernel(table, isa,
             {.op = "plait.SoftmaxBack",
              .dtypes = "f32",
              .accepts = accepts_softmax,
              .run = run_softmax_back<isa>,
              .in_place = 1});
  add_kernel(table, isa,
             {.op = "plait.UnaryBack",
              .dtypes = "f32",
              .accepts = accepts_unary,
              .prepare = prepare_unary,
              .run = run_unary_back<isa>,
              .in_place = 1});
}

}  // namespace

void add_normalize_back(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
