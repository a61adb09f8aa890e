// Sequences of tensors, as packed lists (core/base/packed_list.h).
#include <numeric>

#include "core/base/packed_list.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/families.h"

namespace plait::reference {
namespace {

using Operands = std::span<const TensorView>;

/// The parts of operand 0, a list.
std::optional<std::vector<TensorView>> parts_in(Operands inputs) {
  const std::optional<std::vector<ListPart>> parts = parts_of_list(inputs[0]);
  if (!parts) return std::nullopt;
  std::vector<TensorView> out;
  for (const ListPart& part : *parts) out.push_back(view_of(inputs[0], part));
  return out;
}

/// The position at operand `k`, counted from the end if negative; `fallback` without one.
int64_t position_in(Operands inputs, size_t k, int64_t count, int64_t fallback) {
  if (k >= inputs.size() || !inputs[k].present() || inputs[k].elements() != 1) return fallback;
  const auto at = load_one<int64_t>(inputs[k], 0);
  return at < 0 ? at + count : at;
}

// Each of these makes the parts of the result; nullopt if an operand is no list or a position is outside.

using Parts = std::optional<std::vector<TensorView>>;

Parts constructed(Operands inputs) { return std::vector<TensorView>(inputs.begin(), inputs.end()); }

Parts inserted(Operands inputs) {
  Parts parts = parts_in(inputs);
  if (!parts || inputs[1].dtype != inputs[0].dtype) return std::nullopt;
  const auto count = static_cast<int64_t>(parts->size()), at = position_in(inputs, 2, count, count);
  if (at < 0 || at > count) return std::nullopt;
  parts->insert(parts->begin() + at, inputs[1]);
  return parts;
}

Parts erased(Operands inputs) {
  Parts parts = parts_in(inputs);
  if (!parts) return std::nullopt;
  const auto count = static_cast<int64_t>(parts->size()), at = position_in(inputs, 1, count, count - 1);
  if (at < 0 || at >= count) return std::nullopt;
  parts->erase(parts->begin() + at);
  return parts;
}

template <Parts (*make)(Operands)>
KernelStatus list_op(const KernelCall& call) {
  const Parts parts = make(call.inputs);
  if (!parts) return {KernelCode::bad_value, 0, 0};
  pack_list(*parts, call.outputs[0]);
  return {};
}

Shape list_shape(DType dtype, const Parts& parts) {
  std::vector<Shape> shapes;
  for (const TensorView& part : parts.value_or(std::vector<TensorView>())) shapes.push_back(part.shape);
  return {list_elements(dtype, shapes)};
}

template <Parts (*make)(Operands)>
void add_list_op(KernelTable& table, const char* op) {
  Kernel kernel = kernel_of<list_op<make>>(op, comparable);
  kernel.output_shape = [](const KernelState*, Operands inputs, int) {
    return list_shape(inputs[0].dtype, make(inputs));
  };
  table.add(std::move(kernel));
}

KernelStatus empty(const KernelCall& call) {
  pack_list({}, call.outputs[0]);
  return {};
}

KernelStatus length(const KernelCall& call) {
  const auto parts = parts_of_list(call.inputs[0]);
  if (!parts) return {KernelCode::bad_value, 0, 0};
  store_one(call.outputs[0], 0, static_cast<int64_t>(parts->size()));
  return {};
}

/// The part at a position.
std::optional<TensorView> part_at(Operands inputs) {
  const Parts parts = parts_in(inputs);
  if (!parts) return std::nullopt;
  const int64_t at = position_in(inputs, 1, static_cast<int64_t>(parts->size()), -1);
  if (at < 0 || at >= static_cast<int64_t>(parts->size())) return std::nullopt;
  return (*parts)[static_cast<size_t>(at)];
}

KernelStatus element(const KernelCall& call) {
  const std::optional<TensorView> part = part_at(call.inputs);
  if (!part) return {KernelCode::index_out_of_range, 1, position_in(call.inputs, 1, 0, 0)};
  copy_elements(*part, 0, call.outputs[0], 0, part->elements());
  return {};
}

// ---- ConcatFromSequence, SplitToSequence ----

struct JoinAttributes {
  explicit JoinAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", 0)),
        stacks(node.attributes.integer("new_axis", 0) != 0),
        keeps(node.attributes.integer("keepdims", 1) != 0) {}
  int64_t axis;
  bool stacks;  ///< joined along a new axis
  bool keeps;   ///< parts of a split without sizes keep the axis
};

/// The shape of parts joined; nullopt if they do not fit.
std::optional<Shape> joined_shape(const Parts& parts, const JoinAttributes& a) {
  if (!parts || parts->empty()) return std::nullopt;
  const Shape& first = (*parts)[0].shape;
  const int rank = first.rank() + (a.stacks ? 1 : 0), axis = positive_axis(a.axis, rank);
  if (axis < 0 || axis >= rank || rank > Shape::max_rank) return std::nullopt;
  Shape out;
  for (int i = 0; i < rank; ++i)
    out.push_back(a.stacks ? (i == axis ? static_cast<int64_t>(parts->size()) : first[i > axis ? i - 1 : i])
                           : first[i]);
  int64_t along = 0;
  for (const TensorView& part : *parts) {
    if (part.shape.rank() != first.rank()) return std::nullopt;
    for (int i = 0; i < first.rank(); ++i)
      if ((a.stacks || i != axis) && part.shape[i] != first[i]) return std::nullopt;
    along += part.shape[axis];
  }
  if (!a.stacks) out[axis] = along;
  return out;
}

KernelStatus join_parts(const KernelCall& call, const JoinAttributes& a) {
  const Parts parts = parts_in(call.inputs);
  const std::optional<Shape> shape = joined_shape(parts, a);
  if (!shape || !(*shape == call.outputs[0].shape)) return {KernelCode::bad_value, 0, 0};
  const int axis = positive_axis(a.axis, shape->rank());
  const int64_t outer = shape->elements(0, axis);
  int64_t to = 0;
  for (int64_t i = 0; i < outer; ++i)
    for (const TensorView& part : *parts) {
      const int64_t inner = outer ? part.elements() / outer : 0;
      copy_elements(part, i * inner, call.outputs[0], to, inner);
      to += inner;
    }
  return {};
}

/// Where the parts of a split begin along the axis, and its end; empty if the sizes do not fit.
std::vector<int64_t> cuts(Operands inputs, int64_t size) {
  std::vector<int64_t> out{0};
  const bool given = inputs.size() > 1 && inputs[1].present();
  if (!given || inputs[1].shape.rank() == 0) {
    const int64_t chunk = given ? load_one<int64_t>(inputs[1], 0) : 1;
    if (chunk < 1) return {};
    for (int64_t at = 0; at < size;) out.push_back(at = std::min(at + chunk, size));
    return out;
  }
  for (int64_t part : to_ints(inputs[1])) {
    if (part < 0 || part > size - out.back()) return {};
    out.push_back(out.back() + part);
  }
  return out.back() == size ? out : std::vector<int64_t>();
}

/// The shapes of the parts.
std::vector<Shape> split_shapes(Operands inputs, const JoinAttributes& a) {
  const Shape& x = inputs[0].shape;
  const int axis = positive_axis(a.axis, x.rank());
  std::vector<Shape> out;
  if (axis < 0 || axis >= x.rank()) return out;
  const std::vector<int64_t> at = cuts(inputs, x[axis]);
  const bool drops = !a.keeps && !(inputs.size() > 1 && inputs[1].present());
  for (size_t k = 0; k + 1 < at.size(); ++k) {
    Shape part;
    for (int i = 0; i < x.rank(); ++i)
      if (i != axis || !drops) part.push_back(i == axis ? at[k + 1] - at[k] : x[i]);
    out.push_back(part);
  }
  return out;
}

KernelStatus split_parts(const KernelCall& call, const JoinAttributes& a) {
  const TensorView &x = call.inputs[0], &list = call.outputs[0];
  const int axis = positive_axis(a.axis, x.shape.rank());
  if (axis < 0 || axis >= x.shape.rank()) return {KernelCode::bad_value, 0, axis};
  const std::vector<int64_t> at = cuts(call.inputs, x.shape[axis]);
  if (at.empty()) return {KernelCode::bad_value, 1, 0};
  std::vector<TensorView> parts;
  std::vector<Tensor> kept;
  const int64_t outer = x.shape.elements(0, axis), inner = x.shape.elements(axis + 1, x.shape.rank());
  const std::vector<Shape> shapes = split_shapes(call.inputs, a);
  for (size_t k = 0; k < shapes.size(); ++k) {
    kept.emplace_back(x.dtype, shapes[k]);
    const int64_t length = (at[k + 1] - at[k]) * inner;
    for (int64_t i = 0; i < outer; ++i)
      copy_elements(x, (i * x.shape[axis] + at[k]) * inner, kept.back().view(), i * length, length);
    parts.push_back(kept.back().view());
  }
  pack_list(parts, list);
  return {};
}

const JoinAttributes& join_attributes(const KernelState* state) {
  return static_cast<const State<JoinAttributes>*>(state)->value;
}

}  // namespace

void add_sequences(KernelTable& table) {
  add_list_op<constructed>(table, "SequenceConstruct");
  add_list_op<inserted>(table, "SequenceInsert");
  add_list_op<erased>(table, "SequenceErase");
  add<empty>(table, "SequenceEmpty", Domain{"any", nullptr});
  add<length>(table, "SequenceLength", comparable);
  Kernel kernel = kernel_of<element>("SequenceAt", comparable);
  kernel.output_shape = [](const KernelState*, Operands inputs, int) {
    const std::optional<TensorView> part = part_at(inputs);
    return part ? part->shape : Shape{0};  // refused when it runs
  };
  table.add(std::move(kernel));
  kernel = kernel_of<join_parts>("ConcatFromSequence", comparable);
  kernel.output_shape = [](const KernelState* state, Operands inputs, int) {
    return joined_shape(parts_in(inputs), join_attributes(state)).value_or(Shape{0});
  };
  table.add(std::move(kernel));
  kernel = kernel_of<split_parts>("SplitToSequence", comparable);
  kernel.output_shape = [](const KernelState* state, Operands inputs, int) -> Shape {
    return {list_elements(inputs[0].dtype, split_shapes(inputs, join_attributes(state)))};
  };
  table.add(std::move(kernel));
}

}  // namespace plait::reference
