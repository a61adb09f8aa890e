// Raise, positions: finds the values that are the tokens' positions in any form (an input, a Range from the past
// length, a cumulative sum over the mask), by evaluating them at several probes.
#include <algorithm>

#include "core/base/error_kind.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

/// The axis of a value's rows of positions (DecoderInterface::position_rows); -1 if none.
int row_axis(const Type& type, const DecoderInterface& interface) {
  if (!interface.position_rows || !type.dims) return -1;
  auto at = std::find(type.dims->begin(), type.dims->end(), Dim(interface.position_rows));
  return at == type.dims->end() ? -1 : static_cast<int>(at - type.dims->begin());
}

/// Whether the value is past, past + 1, ... at each probe, as integers or floats, in each of its rows.
bool equals_positions(const Graph& graph, const PassContext& context, ValueId id) {
  const int axis = row_axis(graph.value(id).type, context.decoder.interface);
  const int64_t rows = axis < 0 ? 1 : context.decoder.interface.position_rows;
  for (const Probe& probe : {Probe{3, 4}, Probe{0, 5}, Probe{11, 2}, Probe{6, 1}, Probe{0, 9}}) {
    if (probe.past && context.decoder.interface.caches.empty()) continue;
    Tensor wide;
    try {
      Tensor tensor = evaluator_at(graph, context, probe).value(id);
      wide = materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f64}}});
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      return false;
    }
    if (wide.elements() != rows * probe.tokens) return false;
    const int64_t inner = axis < 0 ? probe.tokens : wide.shape().elements(axis + 1, wide.shape().rank());
    for (int64_t i = 0; i < wide.elements(); ++i) {
      const int64_t token = inner == 1 ? i / rows : i % probe.tokens;
      if (wide.as<double>()[i] != static_cast<double>(probe.past + token)) return false;
    }
  }
  return true;
}

/// One axis is the sequence, one may be the rows of positions, all others are the batch or 1.
bool shaped_like_positions(const Type& type, const DecoderInterface& interface) {
  if (!type.dims || type.dims->empty() || type.dims->size() > 4) return false;
  if (!is_integer(type.dtype) && !is_float(type.dtype)) return false;
  int sequences = 0;
  const int rows = row_axis(type, interface);
  for (int axis = 0; axis < static_cast<int>(type.dims->size()); ++axis) {
    const Dim& dim = (*type.dims)[static_cast<size_t>(axis)];
    if (dim == Dim::symbol(interface.sequence)) ++sequences;
    else if (axis == rows) continue;
    else if (dim != Dim(1) && dim != Dim::symbol(interface.batch)) return false;
  }
  return sequences == 1;
}

}  // namespace

/// Binds a mask input [1, 1, s, keys] to a causal mask.
static void bind_mask_by_token(Evaluator& evaluator, const Graph& graph, ValueId mask, const Probe& probe) {
  int64_t keys = probe.past + probe.tokens;
  DType dtype = graph.value(mask).type.dtype;
  std::vector<float> values;
  for (int64_t i = 0; i < probe.tokens; ++i)
    for (int64_t j = 0; j < keys; ++j) {
      bool seen = j <= probe.past + i;
      values.push_back(is_float(dtype) ? (seen ? 0.0f : -65504.0f) : seen ? 1.0f : 0.0f);
    }
  Shape shape{1, 1, probe.tokens, keys};
  if (is_float(dtype)) {
    Tensor f32 = Tensor::of<float>(DType::f32, shape, values);
    return evaluator.bind(mask, materialize({{}, f32, {{RecipeStep::Kind::cast, {}, dtype}}}));
  }
  Tensor out(dtype, shape);
  size_t size = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (size_t i = 0; i < values.size(); ++i) {
    auto whole = static_cast<int64_t>(values[i]);
    std::memcpy(out.data() + i * size, &whole, size);
  }
  evaluator.bind(mask, out);
}

Evaluator evaluator_at(const Graph& graph, const PassContext& context, const Probe& probe) {
  const DecoderInterface& interface = context.decoder.interface;
  if (context.options.progress) context.options.progress->check();
  Evaluator evaluator(context, graph);
  evaluator.bind_symbol(interface.batch, 1);
  evaluator.bind_symbol(interface.sequence, probe.tokens);
  // A buffer is assumed to be just full.
  evaluator.bind_symbol(interface.past, probe.past + (interface.fixed_buffers ? probe.tokens : 0));
  auto bind = [&](ValueId id, const Shape& shape, auto element) {
    if (id == no_value) return;
    std::vector<double> values(static_cast<size_t>(shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = element(static_cast<int64_t>(i));
    Tensor wide = Tensor::of<double>(DType::f64, shape, values);
    DType dtype = graph.value(id).type.dtype;
    if (is_float(dtype)) return evaluator.bind(id, materialize({{}, wide, {{RecipeStep::Kind::cast, {}, dtype}}}));
    Tensor out(dtype, shape);
    size_t size = static_cast<size_t>(dtype_bits(dtype)) / 8;
    for (size_t i = 0; i < values.size(); ++i) {
      auto whole = static_cast<int64_t>(values[i]);
      std::memcpy(out.data() + i * size, &whole, size);
    }
    evaluator.bind(id, out);
  };
  for (const auto& counter : interface.counters) {
    auto shape = shape_at(graph, context, counter.input, probe);
    if (shape) bind(counter.input, *shape, [&](int64_t) { return static_cast<double>(probe.past); });
  }
  bool by_token = interface.mask != no_value && graph.value(interface.mask).type.dims->size() == 4;
  if (!by_token) bind(interface.mask, {1, probe.past + probe.tokens}, [](int64_t) { return 1.0; });
  else bind_mask_by_token(evaluator, graph, interface.mask, probe);
  const Shape by_row{interface.position_rows, 1, probe.tokens}, single{1, probe.tokens};
  bind(interface.positions, interface.position_rows ? by_row : single,
       [&](int64_t i) { return static_cast<double>(probe.past + i % probe.tokens); });
  return evaluator;
}

namespace {

/// Nodes at the front of a graph that make values from the new input of positions.
class Front {
 public:
  explicit Front(Graph& graph) : graph_(graph) {}

  ValueId add(const char* op, std::vector<ValueId> inputs, Type type, Attributes attributes = {}) {
    Node& node = nodes_.emplace_back();
    node.op = op;
    node.inputs = std::move(inputs);
    node.outputs = {graph_.add_value({}, std::move(type))};
    node.attributes = std::move(attributes);
    return node.outputs[0];
  }
  ValueId cast(ValueId id, DType dtype) {
    Attributes to;
    to.set("to", static_cast<int64_t>(dtype));
    return add("Cast", {id}, {dtype, graph_.value(id).type.dims}, std::move(to));
  }
  ValueId reshape(ValueId id, const Type& type) {
    Node sizes;
    make_sizes(sizes, *type.dims, false, graph_.symbols);
    sizes.outputs = {graph_.add_value({}, {DType::i64, Dims{Dim(static_cast<int64_t>(type.dims->size()))}})};
    nodes_.push_back(sizes);
    return add("Reshape", {id, sizes.outputs[0]}, type);
  }
  void insert() {
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(nodes_.begin()),
                        std::make_move_iterator(nodes_.end()));
  }

 private:
  Graph& graph_;
  std::vector<Node> nodes_;
};

}  // namespace

void replace_positions(Graph& graph, const PassContext& context, ValueId positions, ValueId mrope_positions) {
  const DecoderInterface& interface = context.decoder.interface;
  std::vector<bool> data = data_values(graph, interface);
  std::vector<ValueId> found;
  std::vector<bool> covered(static_cast<size_t>(graph.value_count()));  // computed from positions already found
  auto consider = [&](ValueId id) {
    if (id == no_value || data[static_cast<size_t>(id)] || graph.value(id).constant) return;
    if (!shaped_like_positions(graph.value(id).type, interface) || !equals_positions(graph, context, id)) return;
    found.push_back(id);
    covered[static_cast<size_t>(id)] = true;
  };
  if (mrope_positions == no_value) consider(interface.positions);
  else covered[static_cast<size_t>(interface.positions)] = true;
  for (const Node& node : graph.nodes) {
    bool behind = std::any_of(node.inputs.begin(), node.inputs.end(),
                              [&](ValueId id) { return id != no_value && covered[static_cast<size_t>(id)]; });
    for (ValueId id : node.outputs)
      if (behind && id != no_value) covered[static_cast<size_t>(id)] = true;
      else consider(id);
  }
  Front front(graph);
  if (mrope_positions != no_value) {
    const Type type = graph.value(interface.positions).type;
    const Dims dims = *graph.value(mrope_positions).type.dims;
    Attributes rows_first;
    rows_first.set("perm", std::vector<int64_t>{2, 0, 1});
    const ValueId turned = front.add("Transpose", {front.cast(mrope_positions, type.dtype)},
                                     {type.dtype, Dims{dims[2], dims[0], dims[1]}}, std::move(rows_first));
    graph.replace_uses(interface.positions, front.reshape(turned, type));
  }
  for (ValueId id : found) {
    const Type type = graph.value(id).type;
    Type one_row = type;
    const int rows = row_axis(type, interface);
    if (rows >= 0) (*one_row.dims)[static_cast<size_t>(rows)] = Dim(1);
    ValueId made = front.reshape(front.cast(positions, type.dtype), one_row);
    if (rows >= 0) {
      std::vector<int64_t> repeats(type.dims->size(), 1);
      repeats[static_cast<size_t>(rows)] = interface.position_rows;
      made = front.add("Expand", {made, graph.add_constant(Tensor::of_ints(repeats))}, type);
    }
    graph.replace_uses(id, made);
  }
  front.insert();
}

}  // namespace plait
