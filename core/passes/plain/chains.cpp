// Pass chains: element-wise ops that lead to one value become one plait.Elementwise, or steps of the convolution before them, so
// that what lies between them never goes to memory. Chains of f32 read integers, and end in codes, where casts, DequantizeLinear and
// QuantizeLinear are at their ends.
#include <algorithm>
#include <queue>
#include <set>

#include "core/base/elementwise_steps.h"
#include "core/base/text.h"
#include "core/graph/links.h"
#include "core/passes/plain/plain.h"

namespace plait {
namespace {

/// Of a QuantizeLinear or DequantizeLinear that has one constant for all, or none.
int64_t zero_point(const Graph& graph, const Node& node) {
  const ValueId zero = node.inputs.size() > 2 ? node.inputs[2] : no_value;
  return zero == no_value ? 0 : to_ints(graph.constant(zero)->view())[0];
}

/// Steps and operands of one chain.
class ChainBuilder {
 public:
  /// `first`: the value of register 0, which is no operand; no_value: register 0 is the first operand.
  ChainBuilder(Graph& graph, ValueId first) : graph_(graph) {
    if (first != no_value) operands_.push_back(first);
    own_ = operands_.size();
  }

  /// The values of the operands, without register 0's if that is the convolution.
  std::vector<ValueId> operands() const {
    return {operands_.begin() + static_cast<std::ptrdiff_t>(own_), operands_.end()};
  }
  /// Empty if the chain exceeds the limits of a kernel.
  std::vector<std::string> steps() const {
    std::vector<std::string> out;
    if (operands_.size() > most_step_operands || steps_.size() > most_steps) return out;
    auto number = [&](Register at) { return at.made ? static_cast<int>(operands_.size()) + at.index : at.index; };
    for (const Step& step : steps_) {
      out.push_back(cat(step_ops[static_cast<size_t>(step.op)].name, " ", number(step.a)));
      if (step_ops[static_cast<size_t>(step.op)].operands == 2) out.back() += cat(" ", number(step.b));
    }
    return out;
  }

  void add(const Node& node) {
    const Register made = compute(node);
    made_.emplace_back(node.outputs[0], made);
  }

 private:
  struct Register {
    bool made = false;  ///< by a step; otherwise an operand
    int index = 0;
  };
  struct Step {
    StepOp op;
    Register a, b;
  };

  Register of(ValueId id) {
    for (const auto& [value, at] : made_)
      if (value == id) return at;
    for (size_t i = 0; i < operands_.size(); ++i)
      if (operands_[i] == id) return {false, static_cast<int>(i)};
    operands_.push_back(id);
    return {false, static_cast<int>(operands_.size()) - 1};
  }
  Register number(double value) {
    const auto narrow = static_cast<float>(value);
    return of(graph_.add_constant(Tensor::of<float>(DType::f32, {}, {&narrow, 1})));
  }
  Register step(StepOp op, Register a) { return step(op, a, a); }
  Register step(StepOp op, Register a, Register b) {
    steps_.push_back({op, a, b});
    return {true, static_cast<int>(steps_.size()) - 1};
  }

  Register scale(const Node& node) { return number(*graph_.constant(node.inputs[1])->as<float>()); }

  Register compute(const Node& node) {
    Register x = of(node.inputs[0]);
    if (node.op == "Cast") return x;  // as it is read
    if (node.op == "DequantizeLinear") {
      const int64_t zero = zero_point(graph_, node);
      if (zero != 0) x = step(StepOp::sub, x, number(static_cast<double>(zero)));
      return step(StepOp::mul, x, scale(node));
    }
    if (node.op == "QuantizeLinear") return step(StepOp::div, x, scale(node));
    if (node.op == "Clip") {
      if (node.inputs.size() > 1 && node.inputs[1] != no_value) x = step(StepOp::max, x, of(node.inputs[1]));
      if (node.inputs.size() > 2 && node.inputs[2] != no_value) x = step(StepOp::min, x, of(node.inputs[2]));
      return x;
    }
    if (node.op == "HardSigmoid") {
      x = step(StepOp::mul, x, number(node.attributes.real("alpha", 0.2)));
      x = step(StepOp::add, x, number(node.attributes.real("beta", 0.5)));
      x = step(StepOp::max, x, number(0));
      return step(StepOp::min, x, number(1));
    }
    if (node.op == "LeakyRelu") return step(StepOp::prelu, x, number(node.attributes.real("alpha", 0.01)));
    if (node.op == "Pow") return step(StepOp::mul, x, x);  // by 2: see `joins`
    if (node.op == "Sum" || step_ops[static_cast<size_t>(*step_op(node.op))].operands == 2) {
      const StepOp op = node.op == "Sum" ? StepOp::add : *step_op(node.op);
      for (size_t k = 1; k < node.inputs.size(); ++k) x = step(op, x, of(node.inputs[k]));
      return x;
    }
    return step(*step_op(node.op), x);
  }

  Graph& graph_;
  std::vector<ValueId> operands_;
  size_t own_ = 0;
  std::vector<Step> steps_;
  std::vector<std::pair<ValueId, Register>> made_;
};

class Chains {
 public:
  explicit Chains(Graph& graph) : graph_(graph), links_(graph), gone_(graph.nodes.size()) {}

  void run() {
    for (size_t i = graph_.nodes.size(); i-- > 0;)
      if (!gone_[i] && (joins(graph_.nodes[i]) || makes_codes(graph_.nodes[i]))) fuse_chain(i);
    std::vector<Node> kept;
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (!gone_[i]) kept.push_back(std::move(graph_.nodes[i]));
    graph_.nodes = std::move(kept);
    graph_.remove_dead();
  }

 private:
  const Type& type(ValueId id) const { return graph_.value(id).type; }

  static bool is_code(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }
  /// Whether scale and zero point of QuantizeLinear or DequantizeLinear are one number each.
  bool has_one_scale(const Node& node) const {
    for (size_t k = 1; k < node.inputs.size(); ++k) {
      const Tensor* one = node.inputs[k] == no_value ? nullptr : graph_.constant(node.inputs[k]);
      if (node.inputs[k] != no_value && (!one || one->elements() != 1)) return false;
    }
    return node.attributes.integer("block_size", 0) == 0 && type(node.inputs[1]).dtype == DType::f32;
  }
  /// Whether the node makes f32 of integers, which a chain does as it reads them.
  bool reads_integers(const Node& node) const {
    if (node.op != "Cast" && node.op != "DequantizeLinear") return false;
    const Type &x = type(node.inputs[0]), &y = type(node.outputs[0]);
    if (!x.dims || y.dtype != DType::f32) return false;
    return node.op == "Cast" ? is_step_integer(x.dtype) : is_code(x.dtype) && has_one_scale(node);
  }
  /// Whether the node can be the end of a chain of which it makes codes.
  bool makes_codes(const Node& node) const {
    return node.op == "QuantizeLinear" && type(node.inputs[0]).dtype == DType::f32 && type(node.outputs[0]).dims &&
           is_code(type(node.outputs[0]).dtype) && has_one_scale(node);
  }

  /// Whether the node can be a part of a chain.
  bool joins(const Node& node) const {
    if (node.outputs.size() != 1 || node.inputs.empty() || !type(node.outputs[0]).dims) return false;
    if (reads_integers(node)) return true;
    for (ValueId id : node.inputs)
      if (id == no_value ? node.op != "Clip" : type(id).dtype != DType::f32 || !type(id).dims) return false;
    if (node.op == "Clip") {  // bounds of one number
      for (size_t k = 1; k < node.inputs.size(); ++k)
        if (node.inputs[k] != no_value && !type(node.inputs[k]).dims->empty()) return false;
      return node.inputs[0] != no_value && node.inputs.size() > 1;
    }
    if (node.op == "HardSigmoid" || node.op == "LeakyRelu" || node.op == "Sum") return true;
    if (node.op == "Swish") return node.attributes.real("alpha", 1) == 1;
    if (node.op == "Gelu") return node.attributes.string("approximate", "none") == "none";
    if (node.op == "Pow") {
      const Tensor* power = graph_.constant(node.inputs[1]);
      return power && power->elements() == 1 && power->shape().rank() == 0 && *power->as<float>() == 2;
    }
    return step_op(node.op).has_value();
  }
  bool takes_steps(const Node& node) const {
    return node.op == "plait.ChannelsLastConv" && !node.attributes.has("steps");
  }

  /// Nodes before `root` whose results only the chain reads, with its root's sizes; then the last convolution that only
  /// the chain reads, if any.
  void fuse_chain(size_t root) {
    const Dims& sizes = *type(graph_.nodes[root].outputs[0]).dims;
    const bool coded = makes_codes(graph_.nodes[root]);  // convolutions do not
    std::set<size_t> chain{root};
    std::priority_queue<size_t> reached;  // later nodes first: all readers of a value are seen before its producer
    std::set<size_t> seen;
    auto reach = [&](const Node& node) {
      for (ValueId id : node.inputs)
        if (const int32_t at = links_.producer(id); at >= 0 && seen.insert(static_cast<size_t>(at)).second)
          reached.push(static_cast<size_t>(at));
    };
    reach(graph_.nodes[root]);
    int64_t start = -1;
    constexpr size_t most_nodes = 14;  // of up to four steps and operands, of which few have so many
    while (!reached.empty()) {
      const size_t at = reached.top();
      reached.pop();
      const Node& node = graph_.nodes[at];
      const bool begins = takes_steps(node) && start < 0 && !coded;
      if (gone_[at] || (!begins && !joins(node)) || links_.is_output(node.outputs[0])) continue;
      const auto& dims = type(node.outputs[0]).dims;
      if (!dims || *dims != sizes) continue;
      const auto& readers = links_.readers(node.outputs[0]);
      if (!std::all_of(readers.begin(), readers.end(),
                       [&](int32_t one) { return chain.count(static_cast<size_t>(one)); }))
        continue;
      if (begins) start = static_cast<int64_t>(at);
      else if (chain.size() < most_nodes) chain.insert(at), reach(node);
    }
    if (start >= 0 || chain.size() > 1) replace(root, chain, start);
  }

  /// What messages call the joined nodes: the first and the last of their names, or ops.
  std::string names_of(const std::set<size_t>& chain, const Node* conv) const {
    std::vector<std::string> names;
    auto add = [&](const Node& node) { names.push_back(node.name.empty() ? node.op : node.name); };
    if (conv) add(*conv);
    for (size_t at : chain) add(graph_.nodes[at]);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (names.size() > 4) names.erase(names.begin() + 2, names.end() - 1), names.insert(names.begin() + 2, "...");
    return join(names, " + ");
  }

  void replace(size_t root, const std::set<size_t>& chain, int64_t start) {
    Node* conv = start < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(start)];
    ChainBuilder builder(graph_, conv ? conv->outputs[0] : no_value);
    for (size_t at : chain) builder.add(graph_.nodes[at]);
    std::vector<std::string> steps = builder.steps();
    if (steps.empty()) return;
    const std::vector<ValueId> operands = builder.operands();
    Node made;
    if (conv) made = *conv;
    else made.op = "plait.Elementwise";
    made.name = names_of(chain, conv);
    made.inputs.insert(made.inputs.end(), operands.begin(), operands.end());
    made.outputs = graph_.nodes[root].outputs;
    made.attributes.set("steps", std::move(steps));
    if (const Node& last = graph_.nodes[root]; makes_codes(last)) {
      made.attributes.set("to", static_cast<int64_t>(type(last.outputs[0]).dtype));
      made.attributes.set("zero", zero_point(graph_, last));
    }
    for (size_t at : chain) gone_[at] = at != root;
    if (conv) gone_[static_cast<size_t>(start)] = true;
    graph_.nodes[root] = std::move(made);
  }

  Graph& graph_;
  const Links links_;
  std::vector<bool> gone_;
};

}  // namespace

void chains(Graph& graph, PassContext& context) {
  if (context.options.device == DeviceKind::host) Chains(graph).run();
}

}  // namespace plait
