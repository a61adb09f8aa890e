// RMSNormalization and LayerNormalization, and com.microsoft's of a sum.
#include "kernels/cuda/kernels/norm.h"

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {
namespace {

struct NormState : KernelState {
  float epsilon = 0;
};

/// Operands by position; 0: the op has none.
struct NormOp {
  bool centre;
  size_t scale, bias, added;
  size_t inputs;  ///< how many the kernel takes
  size_t means, inverses, sum;
  double epsilon;
};
constexpr NormOp rms{false, 1, 0, 0, 2, 0, 1, 0, 1e-5}, layer{true, 1, 2, 0, 3, 1, 2, 0, 1e-5};
constexpr NormOp skip_rms{false, 2, 0, 1, 3, 1, 2, 3, 1e-12}, skip_layer{true, 2, 3, 1, 4, 1, 2, 3, 1e-12};

bool is_last_axis(const NodeInfo& node) {
  const int64_t axis = node.attributes.integer("axis", -1);
  return axis == -1 || (node.inputs[0].rank > 0 && axis == node.inputs[0].rank - 1);
}

template <const NormOp& op>
bool accepts(const NodeInfo& node) {
  const auto is_row = [&](size_t i) {
    const OperandInfo row = operand(node.inputs, i);
    return row.dtype == DType::none || (row.rank == 1 && has_element(row.dtype));
  };
  const OperandInfo& x = node.inputs[0];
  bool good = has_element(x.dtype) && is_last_axis(node) && is_row(op.scale) && (!op.bias || is_row(op.bias));
  good = good && (!op.added || (x.dtype == DType::f32 && node.inputs[op.added].dtype == DType::f32));
  for (size_t i = op.inputs; i < node.inputs.size(); ++i) good = good && node.inputs[i].dtype == DType::none;
  for (size_t i = 1; i < node.outputs.size(); ++i)
    good = good && (node.outputs[i].dtype == DType::f32 || node.outputs[i].dtype == DType::none);
  return good && node.outputs[0].dtype == x.dtype;
}

template <const NormOp& op>
std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<NormState>();
  state->epsilon = static_cast<float>(node.attributes.real("epsilon", op.epsilon));
  return state;
}

NormRow row_of(const TensorView& row) {
  return {row.data, element_of(row.dtype), row.present() && row.elements() > 1 ? 1 : 0};
}

template <const NormOp& op>
KernelStatus run(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  const int64_t width = x.shape.back(1);
  if (!x.elements()) return {};
  const auto output = [&](size_t i) { return i ? data_of<float>(operand(call.outputs, i)) : nullptr; };
  const TensorView added = op.added ? call.inputs[op.added] : TensorView{};
  const NormOperands operands{row_of(call.inputs[op.scale]),
                              row_of(op.bias ? operand(call.inputs, op.bias) : TensorView{}),
                              data_of<const float>(added),
                              output(op.sum),
                              output(op.means),
                              output(op.inverses),
                              added.present() ? added.elements() / width : 1,
                              static_cast<int32_t>(width),
                              static_cast<const NormState*>(call.state)->epsilon};
  if (const PeerOperands* const sum = CudaQueue::of(call).take_sum()) {  // in place of `added`, or of x
    const std::byte* const first = op.added ? x.data : nullptr;
    return launch(call, op.centre ? "peer_layer_norm" : "peer_rms_norm", norm_geometry(x.elements() / width), *sum,
                  first, call.outputs[0].data, operands);
  }
  const char* kernel = op.centre ? by_element(x.dtype, "layer_norm_f32", "layer_norm_bf16", "layer_norm_f16")
                                 : by_element(x.dtype, "rms_norm_f32", "rms_norm_bf16", "rms_norm_f16");
  return launch(call, kernel, norm_geometry(x.elements() / width), x.data, call.outputs[0].data, operands);
}

template <const NormOp& op>
void add(KernelTable& table, const char* name) {
  add_kernel(table, {.op = name,
                     .dtypes = op.added ? "f32" : "f32, bf16, f16",
                     .accepts = accepts<op>,
                     .prepare = prepare<op>,
                     .run = run<op>,
                     .in_place = op.added ? -1 : 0});
}

bool accepts_softmax(const NodeInfo& node) { return node.inputs[0].dtype == DType::f32 && is_last_axis(node); }

KernelStatus run_softmax(const KernelCall& call) {
  const TensorView& x = call.inputs[0];
  if (!x.elements()) return {};
  const int64_t width = x.shape.rank() ? x.shape.back(1) : 1;
  const SoftmaxOperands o{data_of<const float>(x), data_of<float>(call.outputs[0]), width};
  return launch(call, "softmax_f32", norm_geometry(x.elements() / width), o);
}

}  // namespace

void add_norms(KernelTable& table) {
  add<rms>(table, "RMSNormalization");
  add<rms>(table, "SimplifiedLayerNormalization");
  add<rms>(table, "com.microsoft.SimplifiedLayerNormalization");
  add<layer>(table, "LayerNormalization");
  add_kernel(table,
             {.op = "Softmax", .dtypes = "f32", .accepts = accepts_softmax, .run = run_softmax, .in_place = 0});
  add<skip_rms>(table, "com.microsoft.SkipSimplifiedLayerNormalization");
  add<skip_layer>(table, "com.microsoft.SkipLayerNormalization");
}

}  // namespace plait::cuda
