// Rows that stand for tokens: where a graph computes embeddings of ids, and all that follows reads only these, as in a decoder whose
// file takes them as an input, a host may give rows in their place.
#include <algorithm>

#include "core/graph/graft.h"
#include "core/passes/normalize/normalize.h"

namespace plait {

void give_rows(Graph& graph, const OpSet& ops) {
  const ValueId seam = graph.find(embeddings_input), ids = find_interface(graph, ops).ids;
  if (seam == no_value || ids == no_value || graph.find(given_rows_input) != no_value) return;
  const Type type = graph.value(seam).type;
  const auto maker = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return std::find(node.outputs.begin(), node.outputs.end(), seam) != node.outputs.end();
  });
  if (maker == graph.nodes.end() || !type.dims || type.dims->size() != 3 || !type.dims->back().is_constant()) return;
  const auto input = [&](std::string_view name, DType dtype, Dims dims) {
    graph.inputs.push_back(graph.add_value(std::string(name), {dtype, std::move(dims)}));
    return graph.inputs.back();
  };
  const ValueId rows = input(given_rows_input, DType::f32, {graph.symbol(given_symbol), type.dims->back()});
  const ValueId at = input(given_at_input, DType::i32, *graph.value(ids).type.dims);
  std::vector<Node> made;
  const auto add = [&](const char* op, std::vector<ValueId> operands, Attributes attributes = {}) {
    Node& node = made.emplace_back();
    node.op = op;
    node.inputs = std::move(operands);
    node.outputs = {graph.add_value({})};
    node.attributes = std::move(attributes);
    node.name = maker->name;
    return node.outputs[0];
  };
  const int32_t none = 0;
  const ValueId own = add("Less", {at, graph.add_constant(Tensor::of<int32_t>(DType::i32, {}, {&none, 1}))});
  const ValueId own_row = add("Unsqueeze", {own, graph.add_constant(Tensor::of_ints(std::vector<int64_t>{2}))});
  ValueId given = add("Gather", {rows, at});  // of -1: the last row, which is not taken
  if (type.dtype != DType::f32) {
    Attributes to;
    to.set("to", static_cast<int64_t>(type.dtype));
    given = add("Cast", {given}, std::move(to));
  }
  const ValueId chosen = graph.add_value({});
  graph.replace_uses(seam, chosen);
  add("Where", {own_row, seam, given});
  made.back().outputs = {chosen};
  graph.nodes.insert(maker + 1, std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
}

}  // namespace plait
