// Raise, settling: removes run-time decisions whose outcome is constant in a decoder without padding, or does not
// matter to readers.
#include <algorithm>
#include <map>

#include "core/base/error_kind.h"
#include "core/base/function_ref.h"
#include "core/passes/raise/region.h"

namespace plait {
namespace {

class Settler {
 public:
  Settler(Graph& graph, const PassContext& context) : graph_(graph), context_(context) {}

  void settle_choices();
  void settle_factors();
  void drop_picked_places();
  void compute_picked_rows();

 private:
  bool holds(ValueId id, FunctionRef<bool(const Tensor&)> agrees) const;
  std::optional<bool> settled(ValueId condition) const;
  bool counts_places(ValueId id, ValueId table) const;
  std::vector<int32_t> from_row_numbers(ValueId table) const;
  ValueId rows_of_numbers(Graph& graph, std::vector<Node>& made, const Node& pick,
                          const std::vector<int32_t>& table) const;
  bool same_values(const Graph& graph, ValueId a, ValueId b) const;

  Graph& graph_;
  const PassContext& context_;
};

/// Removes choices with the same outcome in all probes: e.g. rows whose keys are all hidden do not occur.
void Settler::settle_choices() {
  std::vector<bool> data = data_values(graph_, context_.decoder.interface);
  std::map<ValueId, std::optional<bool>> known;  // layers share conditions
  for (Node& node : graph_.nodes) {
    if (node.op != "Where" || data[static_cast<size_t>(node.inputs[0])] ||
        !data[static_cast<size_t>(node.outputs[0])])
      continue;
    auto [row, fresh] = known.try_emplace(node.inputs[0]);
    if (fresh) row->second = settled(node.inputs[0]);
    const std::optional<bool> always = row->second;
    if (!always) continue;
    ValueId chosen = node.inputs[*always ? 1 : 2];
    const auto &from = graph_.value(chosen).type.dims, &to = graph_.value(node.outputs[0]).type.dims;
    if (!from || !to || *from != *to) continue;
    node.op = "Identity";
    node.inputs = {chosen};
  }
}

/// Factors that are one at every probe: a mask that zeroes padding, which does not occur.
void Settler::settle_factors() {
  std::vector<bool> data = data_values(graph_, context_.decoder.interface);
  std::map<ValueId, bool> known;
  auto is_one = [](const Tensor& tensor) {
    Tensor f32 = materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f32}}});
    return std::all_of(f32.as<float>(), f32.as<float>() + f32.elements(), [](float one) { return one == 1; });
  };
  for (Node& node : graph_.nodes) {
    if (node.op != "Mul" || data[static_cast<size_t>(node.inputs[0])] == data[static_cast<size_t>(node.inputs[1])])
      continue;
    const size_t at = data[static_cast<size_t>(node.inputs[0])] ? 0 : 1;
    const ValueId kept = node.inputs[at], factor = node.inputs[1 - at];
    const auto &from = graph_.value(kept).type.dims, &to = graph_.value(node.outputs[0]).type.dims;
    if (graph_.value(factor).constant || !from || !to || *from != *to) continue;
    auto [row, fresh] = known.try_emplace(factor);
    if (fresh) row->second = holds(factor, is_one);
    if (!row->second) continue;
    node.op = "Identity";
    node.inputs = {kept};
  }
}

/// A rotation by tables of one row per token, indexed by 0, 1, .. in the row: the indexing is dropped, since a
/// token's place in a batch has no meaning.
void Settler::drop_picked_places() {
  std::vector<bool> picks;  // evaluated before any node moves
  for (const Node& node : graph_.nodes)
    picks.push_back(node.op == "RotaryEmbedding" && node.inputs.size() == 4 && node.inputs[3] != no_value &&
                    counts_places(node.inputs[3], node.inputs[1]));
  std::vector<Node> nodes;
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    Node& node = graph_.nodes[i];
    if (picks[i]) {
      for (size_t k : {size_t{1}, size_t{2}}) {
        Node sizes, reshape;
        Dims dims = *graph_.value(node.inputs[3]).type.dims;
        dims.push_back(graph_.value(node.inputs[k]).type.dims->back());
        make_sizes(sizes, dims, false, graph_.symbols);
        reshape.op = "Reshape";
        sizes.outputs = {graph_.add_value({})};
        reshape.inputs = {node.inputs[k], sizes.outputs[0]};
        reshape.outputs = {graph_.add_value({}, {graph_.value(node.inputs[k]).type.dtype, dims})};
        node.inputs[k] = reshape.outputs[0];
        nodes.push_back(std::move(sizes));
        nodes.push_back(std::move(reshape));
      }
      node.inputs.resize(3);
    }
    nodes.push_back(std::move(node));
  }
  graph_.nodes = std::move(nodes);
}

/// The nodes that compute a table from its row numbers (Range from 0) and constants, the Range first; empty if it has
/// other inputs.
std::vector<int32_t> Settler::from_row_numbers(ValueId table) const {
  constexpr size_t most = 32;
  auto producer = producers(graph_);
  auto is = [&](ValueId id, int64_t number) {
    const Tensor* tensor = graph_.constant(id);
    if (!tensor || tensor->elements() != 1) return false;
    Tensor wide = materialize({{}, *tensor, {{RecipeStep::Kind::cast, {}, DType::f64}}});
    return *wide.as<double>() == static_cast<double>(number);
  };
  std::vector<int32_t> found;
  std::vector<ValueId> left{table};
  while (!left.empty() && found.size() <= most) {
    const ValueId id = left.back();
    left.pop_back();
    if (id == no_value || graph_.value(id).constant) continue;
    const int32_t maker = producer[static_cast<size_t>(id)];
    if (maker < 0) return {};
    if (std::find(found.begin(), found.end(), maker) != found.end()) continue;
    const Node& node = graph_.nodes[static_cast<size_t>(maker)];
    const bool range = node.op == "Range" && is(node.inputs[0], 0) && is(node.inputs[2], 1);
    if (!range && (node.inputs.empty() || !node.bodies.empty())) return {};
    found.push_back(maker);
    if (!range) left.insert(left.end(), node.inputs.begin(), node.inputs.end());
  }
  std::sort(found.begin(), found.end());
  auto ranges = std::count_if(found.begin(), found.end(),
                              [&](int32_t node) { return graph_.nodes[static_cast<size_t>(node)].op == "Range"; });
  bool first = !found.empty() && graph_.nodes[static_cast<size_t>(found[0])].op == "Range";
  return ranges == 1 && first && found.size() <= most ? found : std::vector<int32_t>();
}

/// Appends to `made` nodes that compute the rows that `pick` (a Gather) selects from the table of these nodes.
ValueId Settler::rows_of_numbers(Graph& graph, std::vector<Node>& made, const Node& pick,
                                 const std::vector<int32_t>& table) const {
  std::map<ValueId, ValueId> renamed;
  auto add = [&](Node node) {
    for (ValueId& id : node.outputs) {
      ValueId copy = graph.add_value({}, {id == no_value ? DType::none : graph.value(id).type.dtype, std::nullopt});
      if (id != no_value) renamed[id] = copy;
      id = copy;
    }
    made.push_back(std::move(node));
    return made.back().outputs[0];
  };
  auto plain = [&](const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    Node node;
    node.op = op;
    node.inputs = std::move(inputs);
    node.outputs = {no_value};
    node.attributes = std::move(attributes);
    return add(std::move(node));
  };
  const Node& range = graph_.nodes[static_cast<size_t>(table[0])];
  Attributes to;
  to.set("to", static_cast<int64_t>(graph_.value(range.outputs[0]).type.dtype));
  ValueId flat = plain("Reshape", {pick.inputs[1], graph.add_constant(Tensor::of_ints(std::vector<int64_t>{-1}))});
  renamed[range.outputs[0]] = plain("Cast", {flat}, std::move(to));
  for (size_t k = 1; k < table.size(); ++k) {
    Node copy = graph_.nodes[static_cast<size_t>(table[k])];
    for (ValueId& id : copy.inputs)
      if (auto known = renamed.find(id); known != renamed.end()) id = known->second;
    add(std::move(copy));
  }
  Node sizes;
  make_sizes(sizes, *graph.value(pick.outputs[0]).type.dims, false, graph.symbols);
  sizes.outputs = {no_value};
  return plain("Reshape", {renamed.at(pick.inputs[0]), add(std::move(sizes))});
}

/// Whether two values are equal at every probe.
bool Settler::same_values(const Graph& graph, ValueId a, ValueId b) const {
  for (const Probe& probe : {Probe{0, 5}, Probe{3, 4}, Probe{11, 2}, Probe{40, 1}}) {
    if (probe.past && context_.decoder.interface.caches.empty()) continue;
    try {
      Evaluator evaluator = evaluator_at(graph, context_, probe);
      if (!close(floats(evaluator.value(a)), floats(evaluator.value(b)))) return false;
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      return false;
    }
  }
  return true;
}

/// A table with a row per position so far, computed at run time, from which the tokens' rows are gathered: computes
/// only the tokens' rows.
void Settler::compute_picked_rows() {
  std::vector<bool> data = data_values(graph_, context_.decoder.interface);
  std::map<std::pair<ValueId, ValueId>, ValueId> known;  // layers gather from the same tables
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node pick = graph_.nodes[i];
    if (pick.op != "Gather" || pick.attributes.integer("axis", 0) != 0) continue;
    const ValueId table = pick.inputs[0], numbers = pick.inputs[1];
    if (data[static_cast<size_t>(table)] || data[static_cast<size_t>(numbers)] || graph_.value(table).constant ||
        graph_.value(numbers).constant || !is_float(graph_.value(table).type.dtype) ||
        !graph_.value(pick.outputs[0]).type.dims)
      continue;
    auto [row, fresh] = known.try_emplace({table, numbers}, no_value);
    if (fresh) {
      std::vector<int32_t> nodes = from_row_numbers(table);
      if (nodes.empty()) continue;
      Graph trial = graph_;
      std::vector<Node> made;
      ValueId rows = rows_of_numbers(trial, made, pick, nodes);
      const auto count = static_cast<std::ptrdiff_t>(made.size());
      trial.nodes.insert(trial.nodes.begin() + static_cast<std::ptrdiff_t>(i), std::make_move_iterator(made.begin()),
                         std::make_move_iterator(made.end()));
      if (!same_values(trial, pick.outputs[0], rows)) continue;
      graph_ = std::move(trial);
      data.resize(static_cast<size_t>(graph_.value_count()));
      i += static_cast<size_t>(count);
      row->second = rows;
    }
    if (row->second == no_value) continue;
    graph_.nodes[i].op = "Identity";
    graph_.nodes[i].inputs = {row->second};
    graph_.nodes[i].attributes = {};
  }
}

/// Whether `id` is 0, 1, .. at every probe, as many as `table` has rows.
bool Settler::counts_places(ValueId id, ValueId table) const {
  for (const Probe& probe : {Probe{0, 5}, Probe{3, 4}, Probe{11, 2}}) {
    if (probe.past && context_.decoder.interface.caches.empty()) continue;
    auto rows = shape_at(graph_, context_, table, probe);
    if (!rows || rows->rank() != 2 || (*rows)[0] != probe.tokens) return false;
    try {
      std::vector<int64_t> places = to_ints(evaluator_at(graph_, context_, probe).value(id).view());
      if (static_cast<int64_t>(places.size()) != probe.tokens) return false;
      for (size_t i = 0; i < places.size(); ++i)
        if (places[i] != static_cast<int64_t>(i)) return false;
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      return false;
    }
  }
  return true;
}

/// Whether `agrees` holds for the value at every probe, including the longest that the graph's tables allow, to
/// exclude values that depend on the length.
bool Settler::holds(ValueId id, FunctionRef<bool(const Tensor&)> agrees) const {
  const bool cached = !context_.decoder.interface.caches.empty();
  auto at = [&](const Probe& probe) { return agrees(evaluator_at(graph_, context_, probe).value(id)); };
  try {
    for (const Probe& probe : {Probe{0, 5}, Probe{0, 1}, Probe{3, 4}, Probe{11, 2}})
      if ((cached || !probe.past) && !at(probe)) return false;
  } catch (const Error& error) {
    if (!is_about_input(error.code())) throw;
    return false;
  }
  for (const Probe& probe : long_probes(cached)) {
    try {
      return at(probe);
    } catch (const Error& error) {  // a table is too short: the next probe is shorter
      if (!is_about_input(error.code())) throw;
    }
  }
  return false;
}

/// The constant that all elements of a bool value equal at every probe.
std::optional<bool> Settler::settled(ValueId condition) const {
  std::optional<bool> all;
  bool one_thing = holds(condition, [&](const Tensor& tensor) {
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      bool one = tensor.as<uint8_t>()[i] != 0;
      if (all && *all != one) return false;
      all = one;
    }
    return true;
  });
  return one_thing ? all : std::nullopt;
}

/// Slice [.., 0 : end, ..] along the first axis that is longer than 1.
bool cuts_end_of_rows(const Graph& graph, const Node& slice) {
  const auto& dims = graph.value(slice.inputs[0]).type.dims;
  auto number = [&](size_t k) -> std::optional<int64_t> {
    const Tensor* tensor =
        k < slice.inputs.size() && slice.inputs[k] != no_value ? graph.constant(slice.inputs[k]) : nullptr;
    if (!tensor || tensor->elements() != 1) return std::nullopt;
    return to_ints(tensor->view())[0];
  };
  auto axis = slice.inputs.size() > 3 ? number(3) : std::optional<int64_t>(0);
  bool steps = slice.inputs.size() > 4 && slice.inputs[4] != no_value && number(4) != 1;
  if (!dims || !axis || steps || number(1) != 0) return false;
  int64_t at = *axis < 0 ? *axis + static_cast<int64_t>(dims->size()) : *axis;
  for (int64_t before = 0; before < at; ++before)
    if ((*dims)[static_cast<size_t>(before)] != Dim(1)) return false;
  return true;
}

}  // namespace

void settle(Graph& graph, const PassContext& context) {
  Settler settler(graph, context);
  settler.settle_choices();
  settler.settle_factors();
  settler.drop_picked_places();
  settler.compute_picked_rows();
}

/// A table sliced to the current length before rows of it are gathered: the slice is dropped.
void drop_table_slices(Graph& graph) {
  auto producer = producers(graph);
  auto readers = consumers(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "Gather" || graph.nodes[i].attributes.integer("axis", 0) != 0) continue;
    ValueId id = graph.nodes[i].inputs[0];
    int32_t reader = static_cast<int32_t>(i);
    for (;;) {
      int32_t maker = producer[static_cast<size_t>(id)];
      if (maker < 0 || readers[static_cast<size_t>(id)].size() != 1) break;
      Node& node = graph.nodes[static_cast<size_t>(maker)];
      if (node.op == "Squeeze" || node.op == "Cast") {
        reader = maker;
        id = node.inputs[0];
        continue;
      }
      if (node.op == "Slice" && cuts_end_of_rows(graph, node)) {
        std::replace(graph.nodes[static_cast<size_t>(reader)].inputs.begin(),
                     graph.nodes[static_cast<size_t>(reader)].inputs.end(), id, node.inputs[0]);
      }
      break;
    }
  }
}

}  // namespace plait
