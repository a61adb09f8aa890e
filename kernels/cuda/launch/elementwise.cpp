// Functions of elements, casts, copies to another order (Transpose, Expand, Concat, Split, Reshape ...), and MatMul.
#include "kernels/cuda/kernels/elementwise.h"

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/launch/nest.h"

namespace plait::cuda {
namespace {

// ---- functions ----

bool accepts_f32(const NodeInfo& node) {
  for (const OperandInfo& input : node.inputs)
    if (input.dtype != DType::f32) return false;
  return node.inputs.size() <= 2 && node.outputs[0].dtype == DType::f32;
}

template <MapFunction function>
KernelStatus run_map(const KernelCall& call) {
  for (const size_t i : {0, 1})
    if (const KernelStatus fault = broadcast_fault(call, i); fault.code != KernelCode::ok) return fault;
  const TensorView &a = call.inputs[0], b = operand(call.inputs, 1), &y = call.outputs[0];
  const Shape& other = b.present() ? b.shape : a.shape;
  const bool same = a.elements() == y.elements() && other.elements() == y.elements();
  const MapOperands o{data_of<const float>(a),
                      data_of<const float>(b),
                      data_of<float>(y),
                      make_nest(y.shape, broadcast_steps(a.shape, y.shape), broadcast_steps(other, y.shape)),
                      ranks_of(call),
                      function,
                      same};
  return launch(call, "map_f32", map_geometry(o.nest.count), o);
}

template <MapFunction function>
void add_map(KernelTable& table, const char* op, bool (*accepts)(const NodeInfo&) = accepts_f32) {
  add_kernel(table, {.op = op, .dtypes = "f32", .accepts = accepts, .run = run_map<function>, .in_place = 0});
}

template <bool tanh>
bool accepts_gelu(const NodeInfo& node) {
  return accepts_f32(node) && node.attributes.string("approximate", "none") == (tanh ? "tanh" : "none");
}
bool accepts_swish(const NodeInfo& node) { return accepts_f32(node) && node.attributes.real("alpha", 1) == 1; }
bool accepts_two(const NodeInfo& node) { return node.inputs.size() == 2 && accepts_f32(node); }

// ---- casts ----

bool cast_type(DType dtype, CastType& out) {
  switch (dtype) {
    case DType::f32: out = CastType::f32; return true;
    case DType::bf16: out = CastType::bf16; return true;
    case DType::f16: out = CastType::f16; return true;
    case DType::i32: out = CastType::i32; return true;
    case DType::i64: out = CastType::i64; return true;
    case DType::boolean: out = CastType::boolean; return true;
    default: return false;
  }
}

bool accepts_cast(const NodeInfo& node) {
  CastType from;
  return cast_type(node.inputs[0].dtype, from) && cast_type(node.outputs[0].dtype, from);
}

KernelStatus run_cast(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  CastOperands o{x.data, y.data, y.elements(), CastType::f32, CastType::f32};
  cast_type(x.dtype, o.from), cast_type(y.dtype, o.to);
  return launch(call, "cast_elements", map_geometry(o.count), o);
}

// ---- copies ----

KernelStatus copy(const KernelCall& call, const TensorView& x, int64_t x_at, const TensorView& y, int64_t y_at,
                  const Shape& sizes, const Shape& x_steps, const Shape& y_steps) {
  const int bytes = dtype_bits(x.dtype) / 8;
  const CopyOperands o{x.data + x_at * bytes, y.data + y_at * bytes, make_nest(sizes, x_steps, y_steps)};
  return launch(call, by_word(x.dtype, {"copy_1", "copy_2", "copy_4", "copy_8"}), map_geometry(o.nest.count), o);
}

bool accepts_copy(const NodeInfo& node) { return has_word(node.inputs[0].dtype); }

/// Reshape, Unsqueeze and others that change no order.
KernelStatus run_same_order(const KernelCall& call) {
  const Shape flat{call.outputs[0].elements()}, step{1};
  return copy(call, call.inputs[0], 0, call.outputs[0], 0, flat, step, step);
}

KernelStatus run_expand(const KernelCall& call) {
  if (const KernelStatus fault = broadcast_fault(call, 0); fault.code != KernelCode::ok) return fault;
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  return copy(call, x, 0, y, 0, y.shape, broadcast_steps(x.shape, y.shape), steps_of(y.shape));
}

struct TransposeState : KernelState {
  std::vector<int64_t> order;  ///< empty: reversed
};

std::shared_ptr<const KernelState> prepare_transpose(const NodeInfo& node) {
  auto state = std::make_shared<TransposeState>();
  state->order = node.attributes.integers("perm");
  return state;
}

KernelStatus run_transpose(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const std::vector<int64_t>& order = static_cast<const TransposeState&>(*call.state).order;
  const Shape own = steps_of(x.shape);
  Shape steps = y.shape;
  for (int i = 0; i < y.shape.rank(); ++i)
    steps[i] = own[order.empty() ? y.shape.rank() - 1 - i : static_cast<int>(order[static_cast<size_t>(i)])];
  return copy(call, x, 0, y, 0, y.shape, steps, steps_of(y.shape));
}

struct AxisState : KernelState {
  int64_t axis = 0;

  int of(const Shape& shape) const { return static_cast<int>(axis < 0 ? axis + shape.rank() : axis); }
};

std::shared_ptr<const KernelState> prepare_axis(const NodeInfo& node) {
  auto state = std::make_shared<AxisState>();
  state->axis = node.attributes.integer("axis", 0);
  return state;
}

/// Parts of `whole` along an axis, consecutive; `joins`: they are written into it, otherwise read from it.
KernelStatus run_parts(const KernelCall& call, const TensorView& whole, std::span<const TensorView> parts,
                       bool joins) {
  const int axis = static_cast<const AxisState&>(*call.state).of(whole.shape);
  const Shape steps = steps_of(whole.shape);
  int64_t at = 0;
  for (const TensorView& part : parts) {
    if (!part.present()) continue;
    const Shape own = steps_of(part.shape);
    if (joins) copy(call, part, 0, whole, at * steps[axis], part.shape, own, steps);
    else copy(call, whole, at * steps[axis], part, 0, part.shape, steps, own);
    at += part.shape[axis];
  }
  return {};
}

bool accepts_split(const NodeInfo& node) {
  for (const OperandInfo& output : node.outputs)
    if (output.dtype == DType::none) return false;  // its size would not be known
  return accepts_copy(node);
}
KernelStatus run_concat(const KernelCall& call) { return run_parts(call, call.outputs[0], call.inputs, true); }
KernelStatus run_split(const KernelCall& call) { return run_parts(call, call.inputs[0], call.outputs, false); }

bool accepts_slice(const NodeInfo& node) {
  for (size_t i = 1; i < node.inputs.size(); ++i)
    if (node.inputs[i].dtype != DType::none && !is_index(node.inputs[i].dtype)) return false;
  return accepts_copy(node);
}

/// data, starts, ends, axes?, steps?: the kernel reads them.
KernelStatus run_slice(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &starts = call.inputs[1], &y = call.outputs[0];
  SliceOperands o{};
  o.x = x.data, o.y = y.data, o.report = report_of(call);
  o.starts = indices_of(starts), o.axes = indices_of(operand(call.inputs, 3)),
  o.steps = indices_of(operand(call.inputs, 4));
  o.count = y.elements(), o.rank = y.shape.rank(), o.entries = starts.elements();
  for (int i = 0; i < y.shape.rank(); ++i) o.sizes[i] = y.shape[i], o.sizes_of_x[i] = x.shape[i];
  return launch(call, by_word(x.dtype, {"slice_1", "slice_2", "slice_4", "slice_8"}), map_geometry(o.count), o);
}

// ---- products ----

bool accepts_matmul(const NodeInfo& node) {
  return accepts_two(node) && node.inputs[0].rank >= 2 && node.inputs[1].rank >= 2;
}

/// Batches of one operand only, or of equal shapes: those of a decoder's tables of angles.
KernelStatus run_matmul(const KernelCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const int64_t m = y.shape.back(2), n = y.shape.back(1), k = a.shape.back(1),
                batches = m > 0 && n > 0 ? y.elements() / (m * n) : 0;
  if (!batches) return {};
  const int64_t of_a = a.shape.elements(0, a.shape.rank() - 2), of_b = b.shape.elements(0, b.shape.rank() - 2);
  MatMulOperands o{data_of<const float>(a), data_of<const float>(b), data_of<float>(y),       m * n, m * k, k * n,
                   static_cast<int32_t>(m), static_cast<int32_t>(n), static_cast<int32_t>(k), 0};
  if ((of_a == 1 || of_a == batches) && (of_b == 1 || of_b == batches)) {
    o.count *= batches;
    if (of_a == 1) o.a_step = 0;
    if (of_b == 1) o.b_step = 0;
    return launch(call, "matmul_f32", map_geometry(o.count), o);
  }
  const Shape outer(std::span(y.shape.begin(), y.shape.end() - 2));
  const auto batch_of = [&](const TensorView& x, int64_t batch) {
    const Shape own(std::span(x.shape.begin(), x.shape.end() - 2)), steps = broadcast_steps(own, outer);
    int64_t at = 0;
    for (int i = outer.rank(); i-- > 0; batch /= outer[i]) at += batch % outer[i] * steps[i];
    return at;
  };
  for (int64_t batch = 0; batch < batches; ++batch) {
    o.a = data_of<const float>(a) + batch_of(a, batch) * m * k,
    o.b = data_of<const float>(b) + batch_of(b, batch) * k * n;
    o.y = data_of<float>(y) + batch * m * n;
    launch(call, "matmul_f32", map_geometry(o.count), o);
  }
  return {};
}

}  // namespace

void add_elementwise(KernelTable& table) {
  add_map<MapFunction::add>(table, "Add", accepts_two);
  add_map<MapFunction::sub>(table, "Sub", accepts_two);
  add_map<MapFunction::mul>(table, "Mul", accepts_two);
  add_map<MapFunction::div>(table, "Div", accepts_two);
  add_map<MapFunction::minimum>(table, "Min", accepts_two);
  add_map<MapFunction::maximum>(table, "Max", accepts_two);
  add_map<MapFunction::neg>(table, "Neg");
  add_map<MapFunction::abs>(table, "Abs");
  add_map<MapFunction::exp>(table, "Exp");
  add_map<MapFunction::log>(table, "Log");
  add_map<MapFunction::sqrt>(table, "Sqrt");
  add_map<MapFunction::reciprocal>(table, "Reciprocal");
  add_map<MapFunction::sin>(table, "Sin");
  add_map<MapFunction::cos>(table, "Cos");
  add_map<MapFunction::tanh>(table, "Tanh");
  add_map<MapFunction::sigmoid>(table, "Sigmoid");
  add_map<MapFunction::erf>(table, "Erf");
  add_map<MapFunction::gelu>(table, "Gelu", accepts_gelu<false>);
  add_map<MapFunction::gelu_tanh>(table, "Gelu", accepts_gelu<true>);
  add_map<MapFunction::silu>(table, "Swish", accepts_swish);
  add_map<MapFunction::relu>(table, "Relu");
  add_kernel(table,
             {.op = "Cast", .dtypes = "f32, bf16, f16, i32, i64, bool", .accepts = accepts_cast, .run = run_cast});
  for (const char* op : {"Identity", "Reshape", "Unsqueeze", "Squeeze", "Flatten"})
    add_kernel(table, {.op = op, .dtypes = "any", .accepts = accepts_copy, .run = run_same_order, .unread = 1U << 1});
  add_kernel(table, {.op = "Expand", .dtypes = "any", .accepts = accepts_copy, .run = run_expand, .unread = 1U << 1});
  add_kernel(table, {.op = "Transpose",
                     .dtypes = "any",
                     .accepts = accepts_copy,
                     .prepare = prepare_transpose,
                     .run = run_transpose});
  add_kernel(table,
             {.op = "Concat", .dtypes = "any", .accepts = accepts_copy, .prepare = prepare_axis, .run = run_concat});
  add_kernel(table, {.op = "Split",
                     .dtypes = "any",
                     .accepts = accepts_split,
                     .prepare = prepare_axis,
                     .run = run_split,
                     .unread = 1U << 1});
  add_kernel(table, {.op = "Slice", .dtypes = "any", .accepts = accepts_slice, .run = run_slice, .unread = 1U << 2});
  add_kernel(table, {.op = "MatMul", .dtypes = "f32", .accepts = accepts_matmul, .run = run_matmul});
}

}  // namespace plait::cuda
