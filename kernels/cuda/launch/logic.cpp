// Functions of integers, comparisons, Where and Clip.
#include "kernels/cuda/kernels/logic.h"

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/nest.h"

namespace plait::cuda {
namespace {

KernelStatus pair_fault(const KernelCall& call) {
  const KernelStatus fault = broadcast_fault(call, 0);
  return fault.code != KernelCode::ok ? fault : broadcast_fault(call, 1);
}

PairOperands pair_of(const KernelCall& call, bool swapped, int32_t function) {
  const TensorView first = call.inputs[0], second = operand(call.inputs, 1), &y = call.outputs[0];
  const TensorView &a = swapped ? second : first, b = swapped ? first : second;
  const Shape steps = broadcast_steps(a.shape, y.shape);
  return {a.data,   b.data,
          y.data,   make_nest(y.shape, steps, b.present() ? broadcast_steps(b.shape, y.shape) : steps),
          function, 0};
}

// ---- integers ----

template <size_t operands>
bool accepts_integers(const NodeInfo& node) {
  for (const OperandInfo& input : node.inputs)
    if (input.dtype != node.outputs[0].dtype) return false;
  return node.inputs.size() == operands && is_index(node.outputs[0].dtype);
}

template <IntegerFunction function>
KernelStatus run_integers(const KernelCall& call) {
  if (const KernelStatus fault = pair_fault(call); fault.code != KernelCode::ok) return fault;
  const PairOperands o = pair_of(call, false, static_cast<int32_t>(function));
  return launch(call, call.outputs[0].dtype == DType::i64 ? "integers_i64" : "integers_i32",
                map_geometry(o.nest.count), o);
}

template <IntegerFunction function, size_t operands = 2>
void add_integers(KernelTable& table, const char* op) {
  add_kernel(table, {.op = op,
                     .dtypes = "i32, i64",
                     .accepts = accepts_integers<operands>,
                     .run = run_integers<function>,
                     .in_place = 0});
}

// ---- powers ----

bool accepts_power(const NodeInfo& node) {
  const DType exponent = node.inputs[1].dtype;
  return node.inputs[0].dtype == DType::f32 && (exponent == DType::f32 || is_index(exponent));
}

KernelStatus run_power(const KernelCall& call) {
  if (const KernelStatus fault = pair_fault(call); fault.code != KernelCode::ok) return fault;
  const PairOperands o = pair_of(call, false, 0);
  const DType exponent = call.inputs[1].dtype;
  const char* const kernel = exponent == DType::f32   ? "power_f32"
                             : exponent == DType::i32 ? "power_i32"
                                                      : "power_i64";
  return launch(call, kernel, map_geometry(o.nest.count), o);
}

// ---- comparisons ----

template <size_t operands>
bool accepts_comparison(const NodeInfo& node) {
  const DType dtype = node.inputs[0].dtype;
  return node.inputs.size() == operands && (operands == 1 || node.inputs[1].dtype == dtype) &&
         (dtype == DType::f32 || dtype == DType::boolean || is_index(dtype));
}
template <size_t operands>
bool accepts_logic(const NodeInfo& node) {
  return accepts_comparison<operands>(node) && node.inputs[0].dtype == DType::boolean;
}

template <Comparison comparison, bool swapped>
KernelStatus run_comparison(const KernelCall& call) {
  if (const KernelStatus fault = pair_fault(call); fault.code != KernelCode::ok) return fault;
  const PairOperands o = pair_of(call, swapped, static_cast<int32_t>(comparison));
  const DType dtype = call.inputs[0].dtype;
  const char* const kernel = dtype == DType::f32   ? "compare_f32"
                             : dtype == DType::i32 ? "compare_i32"
                             : dtype == DType::i64 ? "compare_i64"
                                                   : "compare_bool";
  return launch(call, kernel, map_geometry(o.nest.count), o);
}

template <Comparison comparison, bool swapped = false>
void add_comparison(KernelTable& table, const char* op, bool (*accepts)(const NodeInfo&) = accepts_comparison<2>) {
  add_kernel(table, {.op = op,
                     .dtypes = accepts == &accepts_comparison<2> ? "f32, i32, i64, bool" : "bool",
                     .accepts = accepts,
                     .run = run_comparison<comparison, swapped>});
}

// ---- choices ----

bool accepts_where(const NodeInfo& node) {
  return has_word(node.outputs[0].dtype) && node.inputs[1].dtype == node.outputs[0].dtype &&
         node.inputs[2].dtype == node.outputs[0].dtype;
}

KernelStatus run_where(const KernelCall& call) {
  for (size_t i = 0; i < 3; ++i)
    if (const KernelStatus fault = broadcast_fault(call, i); fault.code != KernelCode::ok) return fault;
  const TensorView &condition = call.inputs[0], &y = call.outputs[0];
  const Shape steps = broadcast_steps(condition.shape, y.shape);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const TensorView& x = call.inputs[i];
    const SelectOperands o{data_of<const uint8_t>(condition), x.data, y.data,
                           make_nest(y.shape, steps, broadcast_steps(x.shape, y.shape)), i == 1};
    launch(call, by_word(y.dtype, {"select_1", "select_2", "select_4", "select_8"}), map_geometry(o.nest.count), o);
  }
  return {};
}

bool accepts_clip(const NodeInfo& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i].dtype != DType::f32 && (i == 0 || node.inputs[i].dtype != DType::none)) return false;
  return true;
}

KernelStatus run_clip(const KernelCall& call) {
  const ClipOperands o{data_of<const float>(call.inputs[0]), data_of<const float>(operand(call.inputs, 1)),
                       data_of<const float>(operand(call.inputs, 2)), data_of<float>(call.outputs[0]),
                       call.outputs[0].elements()};
  return launch(call, "clip_f32", map_geometry(o.count), o);
}

}  // namespace

void add_logic(KernelTable& table) {
  add_integers<IntegerFunction::add>(table, "Add");
  add_integers<IntegerFunction::sub>(table, "Sub");
  add_integers<IntegerFunction::mul>(table, "Mul");
  add_integers<IntegerFunction::minimum>(table, "Min");
  add_integers<IntegerFunction::maximum>(table, "Max");
  add_integers<IntegerFunction::neg, 1>(table, "Neg");
  add_kernel(table,
             {.op = "Pow", .dtypes = "f32 x f32|i32|i64", .accepts = accepts_power, .run = run_power, .in_place = 0});
  add_comparison<Comparison::equal>(table, "Equal");
  add_comparison<Comparison::less>(table, "Less");
  add_comparison<Comparison::less, true>(table, "Greater");
  add_comparison<Comparison::less_or_equal>(table, "LessOrEqual");
  add_comparison<Comparison::less_or_equal, true>(table, "GreaterOrEqual");
  add_comparison<Comparison::both>(table, "And", accepts_logic<2>);
  add_comparison<Comparison::either>(table, "Or", accepts_logic<2>);
  add_comparison<Comparison::differ>(table, "Xor", accepts_logic<2>);
  add_comparison<Comparison::differ>(table, "Not", accepts_logic<1>);
  add_kernel(table, {.op = "Where", .dtypes = "any", .accepts = accepts_where, .run = run_where});
  add_kernel(table, {.op = "Clip", .dtypes = "f32", .accepts = accepts_clip, .run = run_clip, .in_place = 0});
}

}  // namespace plait::cuda
