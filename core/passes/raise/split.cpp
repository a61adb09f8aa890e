// Raise, packed projections: a Linear whose result is only sliced along its last axis (query, key and value, or gate
// and up) becomes a Linear per part, with a slice of its weight. So the canonical graph has the same projections for
// any packing, each sharded by its own rule; fuse joins those that read the same value.
#include <algorithm>
#include <utility>

#include "core/passes/base/evaluate.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

class Splitter {
 public:
  explicit Splitter(Graph& graph) : graph_(graph), readers_(consumers(graph)) {}

  bool run() {
    std::vector<Node> added;
    for (const Node& node : graph_.nodes)
      if (node.op == "plait.Linear" && node.inputs.size() == 2) split(node, added);
    for (Node& node : added) graph_.nodes.push_back(std::move(node));
    if (added.empty()) return false;
    graph_.sort();
    graph_.remove_dead();
    return true;
  }

 private:
  struct Part {
    ValueId value;
    int64_t begin, end;
  };

  const Dims* dims(ValueId id) const {
    const auto& found = graph_.value(id).type.dims;
    return found && !found->empty() ? &*found : nullptr;
  }
  bool is_output(ValueId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }
  std::vector<int64_t> numbers(const Node& node, size_t input) const {
    const Tensor* tensor = input < node.inputs.size() ? graph_.constant(node.inputs[input]) : nullptr;
    return tensor ? to_ints(tensor->view()) : std::vector<int64_t>();
  }
  /// Whether the node adds a vector, or reshapes rows.
  bool passes_columns(const Node& node, ValueId from) const {
    const Dims *before = dims(from), *after = dims(node.outputs[0]);
    if (!before || !after || before->back() != after->back()) return false;
    if (node.op == "Reshape") return node.inputs[0] == from;
    if (node.op != "Add") return false;
    const auto& bias = graph_.value(node.inputs[node.inputs[0] == from ? 1 : 0]).constant;
    return bias && bias->shape().rank() == 1 && Dim(bias->shape()[0]) == before->back();
  }

  /// The parts that all readers of a value slice from its last axis; empty if one of them does anything else.
  std::vector<Part> parts_of(ValueId id) const {
    std::vector<Part> out;
    const Dims* whole = dims(id);
    auto last = static_cast<int64_t>(whole->size()) - 1;
    for (int32_t index : readers_[static_cast<size_t>(id)]) {
      const Node& node = graph_.nodes[static_cast<size_t>(index)];
      if (node.op == "Split") {
        int64_t axis = node.attributes.integer("axis", 0), begin = 0;
        if (axis != -1 && axis != last) return {};
        for (ValueId part : node.outputs) {
          if (part == no_value || !dims(part) || !dims(part)->back().is_constant()) return {};
          out.push_back({part, begin, begin + dims(part)->back().constant()});
          begin = out.back().end;
        }
      } else if (node.op == "Slice" && node.inputs[0] == id) {
        std::vector<int64_t> starts = numbers(node, 1), axes = numbers(node, 3), steps = numbers(node, 4);
        const Dims* part = dims(node.outputs[0]);
        bool plain = starts.size() == 1 && axes.size() == 1 && (steps.empty() || steps[0] == 1) && part;
        if (!plain || (axes[0] != -1 && axes[0] != last) || !part->back().is_constant()) return {};
        int64_t width = whole->back().constant();
        int64_t begin = std::clamp(starts[0] < 0 ? starts[0] + width : starts[0], int64_t{0}, width);
        out.push_back({node.outputs[0], begin, begin + part->back().constant()});
      } else {
        return {};
      }
    }
    return out.size() > 1 ? out : std::vector<Part>();
  }

  void split(const Node& linear, std::vector<Node>& added) {
    const auto& weight = graph_.value(linear.inputs[1]).constant;
    if (!weight || weight->shape().rank() != 2) return;
    std::vector<const Node*> chain;
    ValueId id = linear.outputs[0];
    while (readers_[static_cast<size_t>(id)].size() == 1 && !is_output(id)) {
      const Node& next = graph_.nodes[static_cast<size_t>(readers_[static_cast<size_t>(id)][0])];
      if (!passes_columns(next, id)) break;
      chain.push_back(&next);
      id = next.outputs[0];
    }
    if (is_output(id) || !dims(id) || !dims(id)->back().is_constant()) return;
    std::vector<Part> parts = parts_of(id);
    for (const Part& part : parts) add_part(linear, chain, part, added);
  }

  Constant slice(const Constant& whole, int64_t begin, int64_t end) const {
    Constant out = whole;
    bool transposed = !out.steps.empty() && out.steps.back() == RecipeStep{RecipeStep::Kind::transpose, {1, 0}, {}};
    // Only the part is transposed.
    if (transposed) out.steps.pop_back();
    add_step(out, {RecipeStep::Kind::slice, {transposed ? 1 : 0, begin, end}, {}});
    if (transposed) add_step(out, {RecipeStep::Kind::transpose, {1, 0}, {}});
    return out;
  }

  void add_part(const Node& linear, const std::vector<const Node*>& chain, const Part& part,
                std::vector<Node>& added) {
    Node first = linear;
    first.inputs[1] = graph_.add_constant(slice(*graph_.value(linear.inputs[1]).constant, part.begin, part.end));
    ValueId from = linear.outputs[0], now = part_of(from, part);
    first.outputs = {now};
    added.push_back(std::move(first));
    for (const Node* step : chain) {
      Node copy = *step;
      size_t side = copy.inputs[0] == from ? 0 : 1;
      copy.inputs[side] = now;
      if (copy.op == "Add") {
        copy.inputs[1 - side] =
            graph_.add_constant(slice(*graph_.value(copy.inputs[1 - side]).constant, part.begin, part.end));
      } else {
        Node sizes;
        Dims wanted = *dims(step->outputs[0]);
        wanted.back() = Dim(part.end - part.begin);
        make_sizes(sizes, wanted, false, graph_.symbols);
        sizes.outputs = {graph_.add_value({}, {DType::i64, Dims{Dim(static_cast<int64_t>(wanted.size()))}})};
        copy.inputs[1] = sizes.outputs[0];
        added.push_back(std::move(sizes));
      }
      from = step->outputs[0];
      now = part_of(from, part);
      copy.outputs = {now};
      added.push_back(std::move(copy));
    }
    graph_.replace_uses(part.value, now);
  }

  /// A new value like `whole`, of the part's width.
  ValueId part_of(ValueId whole, const Part& part) {
    Type type = graph_.value(whole).type;
    type.dims->back() = Dim(part.end - part.begin);
    return graph_.add_value({}, std::move(type));
  }

  Graph& graph_;
  std::vector<std::vector<int32_t>> readers_;
};

}  // namespace

bool split_linears(Graph& graph) { return Splitter(graph).run(); }

}  // namespace plait
