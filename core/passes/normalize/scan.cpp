// Pass scan: converts a Scan into a Loop that gathers its slices, so that programs have one kind of repetition.
//
//   finals, ys = Scan(states, xs, captures)
// is
//   n = the length of the scanned axes
//   finals, stacked = Loop(n, , states, xs, n, captures)  with  x = Gather(xs, i) (or n - 1 - i) before the old body
//   ys = stacked, reversed and transposed as the attributes specify
//
// Bodies are rewritten in copies: several graphs may share them.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/normalize/normalize.h"

namespace plait {
namespace {

/// Appends nodes to a list, with inferred outputs, on behalf of `origin`.
struct Emitter {
  const OpSet& ops;
  Graph& graph;
  Knowledge& knowledge;
  std::vector<Node>& nodes;
  const Node& origin;

  Node node(std::string op, std::vector<ValueId> inputs, Attributes attributes = {}) const {
    Node out;
    out.op = std::move(op);
    out.inputs = std::move(inputs);
    out.attributes = std::move(attributes);
    out.name = origin.name;
    out.stage = origin.stage;
    return out;
  }
  void add(Node one) const {
    infer_node(ops, graph, one, knowledge);
    nodes.push_back(std::move(one));
  }
  ValueId emit(std::string op, std::vector<ValueId> inputs, Attributes attributes = {}) const {
    Node one = node(std::move(op), std::move(inputs), std::move(attributes));
    one.outputs = {graph.add_value({})};
    add(one);
    return one.outputs[0];
  }
  ValueId ints(std::vector<int64_t> numbers) const { return graph.add_constant(Tensor::of_ints(numbers)); }
};

class ScanToLoop {
 public:
  ScanToLoop(Emitter emit, const Node& scan) : to_(emit), scan_(scan) {
    int64_t scanned = scan.attributes.integer("num_scan_inputs", 0), all = static_cast<int64_t>(scan.inputs.size());
    int64_t carried = scan.attributes.integer("carried", all - scanned);
    auto body =
        std::find_if(scan.bodies.begin(), scan.bodies.end(), [](const auto& row) { return row.first == "body"; });
    if (scanned < 1 || carried < 0 || carried + scanned > all || body == scan.bodies.end() ||
        carried > static_cast<int64_t>(scan.outputs.size()) || body->second->inputs.size() != scan.inputs.size())
      throw Error(Code::bad_model, cat(describe(scan), ": its operands, attributes and body do not fit each other"));
    states_ = static_cast<size_t>(carried);
    scanned_ = static_cast<size_t>(scanned);
    body_ = std::make_shared<Graph>(*body->second);
  }

  void run() {
    ValueId length = scan_length();
    Node loop = to_.node("Loop", {length, no_value});
    auto first = scan_.inputs.begin(), xs = first + static_cast<std::ptrdiff_t>(states_);
    auto captures = xs + static_cast<std::ptrdiff_t>(scanned_);
    loop.inputs.insert(loop.inputs.end(), first, captures);
    loop.inputs.push_back(length);
    loop.inputs.insert(loop.inputs.end(), captures, scan_.inputs.end());
    loop.attributes.set("carried", static_cast<int64_t>(states_));
    rewrite_body();
    loop.bodies = {{"body", body_}};
    for (size_t k = 0; k < scan_.outputs.size(); ++k) loop.outputs.push_back(raw_output(k));
    std::vector<Type> types;  // a Scan's types are more precise than a Loop's, whose number of iterations is open
    for (ValueId id : scan_.outputs) types.push_back(id == no_value ? Type{} : to_.graph.value(id).type);
    std::vector<ValueId> raw = loop.outputs;
    to_.add(std::move(loop));
    for (size_t k = states_; k < raw.size(); ++k) arrange(k, raw[k]);
    for (size_t k = 0; k < types.size(); ++k)
      if (scan_.outputs[k] != no_value) to_.graph.value(scan_.outputs[k]).type = std::move(types[k]);
  }

 private:
  int64_t listed(const char* attribute, size_t k) const {
    std::vector<int64_t> all = scan_.attributes.integers(attribute);
    return k < all.size() ? all[k] : 0;
  }

  /// The length of the scanned axes as a scalar; if there are several, the maximum: the Gather on a shorter one
  /// rejects the index.
  ValueId scan_length() {
    std::vector<ValueId> lengths;
    for (size_t k = 0; k < scanned_; ++k) {
      int64_t axis = listed("scan_input_axes", k);
      Attributes range;
      range.set("start", axis);
      if (axis != -1) range.set("end", axis + 1);
      lengths.push_back(to_.emit("Squeeze", {to_.emit("Shape", {scan_.inputs[states_ + k]}, std::move(range))}));
    }
    return lengths.size() == 1 ? lengths[0] : to_.emit("Max", lengths);
  }

  /// In: iteration, condition, states, whole scanned inputs, length, captures. Out: the condition, and the old
  /// outputs.
  void rewrite_body() {
    Graph& body = *body_;
    ValueId iteration = body.add_value({}, {DType::i64, Dims{}}), go = body.add_value({}, {DType::boolean, Dims{}});
    ValueId length = body.add_value({}, {DType::i64, Dims{}});
    std::vector<ValueId> old = body.inputs;
    std::vector<Node> slices;
    Knowledge unused;  // the Loop's own inference runs over the body again, with the outer knowledge
    Emitter inside{to_.ops, body, unused, slices, scan_};
    ValueId backwards = no_value;
    body.inputs = {iteration, go};
    body.inputs.insert(body.inputs.end(), old.begin(), old.begin() + static_cast<std::ptrdiff_t>(states_));
    for (size_t k = 0; k < scanned_; ++k) {
      ValueId whole = body.add_value({}), at = iteration;
      body.inputs.push_back(whole);
      if (listed("scan_input_directions", k)) {
        if (backwards == no_value) {
          int64_t one = 1;
          ValueId unit = body.add_constant(Tensor::of<int64_t>(DType::i64, Shape{}, {&one, 1}));
          backwards = inside.emit("Sub", {inside.emit("Sub", {length, iteration}), unit});
        }
        at = backwards;
      }
      Attributes axis;
      axis.set("axis", listed("scan_input_axes", k));
      Node gather = inside.node("Gather", {whole, at}, std::move(axis));
      gather.outputs = {old[states_ + k]};
      slices.push_back(std::move(gather));
    }
    body.inputs.push_back(length);
    body.inputs.insert(body.inputs.end(), old.begin() + static_cast<std::ptrdiff_t>(states_ + scanned_), old.end());
    body.nodes.insert(body.nodes.begin(), std::make_move_iterator(slices.begin()),
                      std::make_move_iterator(slices.end()));
    body.outputs.insert(body.outputs.begin(), go);
  }

  bool reversed(size_t output) const { return listed("scan_output_directions", output - states_) != 0; }
  int64_t axis_of(size_t output) const { return listed("scan_output_axes", output - states_); }

  /// Destination of the Loop's output `k`: the Scan's own output, unless it has to be rearranged.
  ValueId raw_output(size_t k) {
    ValueId id = scan_.outputs[k];
    bool as_it_is = id == no_value || k < states_ || (!reversed(k) && axis_of(k) == 0);
    return as_it_is ? id : to_.graph.add_value({});
  }

  void arrange(size_t k, ValueId raw) {
    if (scan_.outputs[k] == raw) return;
    std::vector<Node> steps;
    if (reversed(k))
      steps.push_back(to_.node("Slice", {raw, to_.ints({-1}), to_.ints({INT64_MIN}), to_.ints({0}), to_.ints({-1})}));
    if (axis_of(k) != 0) {
      const auto& dims = to_.graph.value(raw).type.dims;
      if (!dims)
        throw Error(Code::unsupported, cat(describe(scan_), ": the rank of scan output ", k, " is unknown"));
      auto rank = static_cast<int64_t>(dims->size()), axis = axis_of(k) < 0 ? axis_of(k) + rank : axis_of(k);
      std::vector<int64_t> order;
      for (int64_t i = 1; i < rank; ++i) order.push_back(i);
      if (axis < 0 || axis >= rank)
        throw Error(Code::bad_model, cat(describe(scan_), ": scan output axis ", axis_of(k), " of rank ", rank));
      order.insert(order.begin() + axis, 0);
      Attributes perm;
      perm.set("perm", std::move(order));
      steps.push_back(to_.node("Transpose", {raw}, std::move(perm)));
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      steps[i].inputs[0] = raw;
      steps[i].outputs = {raw = i + 1 == steps.size() ? scan_.outputs[k] : to_.graph.add_value({})};
      to_.add(std::move(steps[i]));
    }
  }

  Emitter to_;
  const Node& scan_;
  std::shared_ptr<Graph> body_;
  size_t states_, scanned_;
};

bool has_scan(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.op == "Scan" ||
           std::any_of(node.bodies.begin(), node.bodies.end(), [](const auto& row) { return has_scan(*row.second); });
  });
}

void rewrite(const OpSet& ops, Graph& graph, Knowledge& knowledge) {
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    for (auto& [name, body] : node.bodies) {
      if (!has_scan(*body)) continue;
      body = std::make_shared<Graph>(*body);
      Knowledge inner;
      inner.scope = cat(knowledge.scope, node.outputs.empty() ? 0 : node.outputs[0], ".", name, ".");
      rewrite(ops, *body, inner);
    }
    if (node.op == "Scan") ScanToLoop({ops, graph, knowledge, nodes, node}, node).run();
    else nodes.push_back(std::move(node));
  }
  graph.nodes = std::move(nodes);
}

}  // namespace

void scan(Graph& graph, PassContext& context) {
  if (has_scan(graph)) rewrite(context.options.ops, graph, context.knowledge);
}

}  // namespace plait
