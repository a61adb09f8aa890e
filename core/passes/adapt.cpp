// Pass adapt: low-rank adapters beside Linears (LoRA, Hu et al. 2022): y = x w^T + alpha / rank (x a^T) b^T.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/compile.h"
#include "core/passes/train_parameters.h"

namespace plait {
namespace {

/// What the Linear at this node is called: its weight's names in the file, the value's, and the node's.
std::vector<std::string> names_of_linear(const Graph& graph, const Node& node) {
  const Value& weight = graph.value(node.inputs[1]);
  std::vector<std::string> out;
  if (weight.constant) out = names_of(*weight.constant);
  if (!weight.name.empty()) out.push_back(weight.name);
  if (!node.name.empty()) out.push_back(node.name);
  return out;
}

/// "model.layers.0.self_attn.q_proj" of its weight's name, or of the node's where the file numbers its tensors.
std::string module_of(const std::vector<std::string>& names, size_t index) {
  for (const std::string& name : names) {
    const size_t end = name.rfind(".weight");
    if (end != std::string::npos) return name.substr(0, end);
  }
  return names.empty() ? cat("linear.", index) : names.back();
}

/// The Linear's weight, where a change of it in the file changes nothing but this Linear; else null.
std::shared_ptr<const Constant> own_weight(const Graph& graph, const std::vector<std::vector<int32_t>>& readers,
                                           const Node& node) {
  constexpr size_t plain_operands = 3;  // a quantised weight has scales behind them
  const ValueId id = node.inputs[1];
  const std::shared_ptr<const Constant> weight = graph.value(id).constant;
  if (node.inputs.size() > plain_operands || !weight || !is_float(weight->dtype())) return nullptr;
  const std::vector<std::string> names = names_of(*weight);
  if (names.empty() || readers[static_cast<size_t>(id)].size() > 1) return nullptr;
  for (ValueId other = 0; other < static_cast<ValueId>(readers.size()); ++other) {
    const auto& constant = graph.value(other).constant;
    if (other == id || !constant || readers[static_cast<size_t>(other)].empty()) continue;
    for (const std::string& name : names_of(*constant))
      if (std::find(names.begin(), names.end(), name) != names.end() && !are_apart(*weight, *constant))
        return nullptr;
  }
  return weight;
}

class Adapting {
 public:
  /// `weights`: an adapter that is there, as constants; null: one that is trained, as States.
  Adapting(Graph& graph, PassContext& context, const LoraOptions& lora, const AdapterWeights* weights)
      : graph_(graph),
        context_(context),
        lora_(lora),
        weights_(weights),
        builder_(context.options.ops, graph, knowledge_, "adapter"),
        old_(graph.nodes.size()),
        readers_(consumers(graph)),
        random_(lora_.seed) {}

  void run() {
    const int32_t head = find_head(graph_).node;
    std::set<std::string> unused(lora_.targets.begin(), lora_.targets.end());
    std::set<std::string> left(lora_.modules.begin(), lora_.modules.end());
    for (size_t i = 0; i < old_; ++i) {
      const Node node = graph_.nodes[i];
      if (node.op != "plait.Linear") continue;
      const std::vector<std::string> names = names_of_linear(graph_, node);
      std::string module = module_of(names, i);
      // A packed weight is read by several Linears, each of a part.
      if (const int64_t part = parts_[module]++) module = cat(module, ".part", part);
      if (!lora_.modules.empty()) {
        if (left.erase(module)) add(node, module);
        continue;
      }
      bool asked = lora_.targets.empty() && static_cast<int32_t>(i) != head;
      for (const std::string& pattern : lora_.targets)
        if (std::any_of(names.begin(), names.end(),
                        [&](const std::string& name) { return misfit(pattern, name) == 0; })) {
          asked = true;
          unused.erase(pattern);
        }
      if (asked) add(node, module);
    }
    if (!left.empty())
      throw Error(Code::invalid_argument, cat("the adapter's ", quote(*left.begin()), " fits no weight of the model"),
                  "the adapter is of another model");
    if (!unused.empty())
      throw Error(
          Code::invalid_argument, cat("no Linear of the model fits ", quote(*unused.begin())),
          "patterns are of names of weights or nodes, with * and ?: \"*.q_proj*\"; `plait inspect` lists them");
    if (!added_) throw Error(Code::invalid_argument, "the model has no Linear to adapt");
    graph_.sort();
  }

 private:
  void add(const Node& node, const std::string& module) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const int64_t k = builder_.dims(x).back().constant(), n = builder_.dims(y).back().constant();
    const auto rank = lora_.rank;
    base_ = own_weight(graph_, readers_, node);
    const ValueId a =
        weights_ ? constant(module, ".lora_A.weight", &AdapterWeights::Pair::a, {rank, k})
                 : add_matrix(cat(module, ".lora_A.weight"), {rank, k}, 1 / std::sqrt(static_cast<double>(k)));
    const ValueId b = weights_ ? constant(module, ".lora_B.weight", &AdapterWeights::Pair::b, {n, rank})
                               : add_matrix(cat(module, ".lora_B.weight"), {n, rank}, 0);
    added_ = true;
    // The factor belongs to the product's narrow side: there it is a pass over `rank` numbers a token.
    const double scale = lora_.alpha / static_cast<double>(rank);
    Attributes as_base;
    for (const char* name : {"round_x", "many_rows"}) as_base.set(name, node.attributes.integer(name, 0));
    const ValueId low = builder_.times(builder_.add("plait.Linear", {x, a}, as_base), builder_.number(scale, x));
    const ValueId change = builder_.add("plait.Linear", {low, b}, as_base);
    // Whoever read the Linear reads the sum, but for the sum itself.
    const ValueId base = graph_.add_value("", graph_.value(y).type);
    const ValueId sum = builder_.plus(base, change);
    graph_.replace_uses(y, sum);
    graph_.replace_uses(base, y);
  }

  ValueId constant(const std::string& module, const char* what, Tensor AdapterWeights::Pair::*half,
                   const Shape& shape) {
    const Tensor& there = weights_->modules.at(module).*half;
    if (there.shape() != shape)
      throw Error(Code::invalid_argument,
                  cat("the adapter's ", quote(module + what), " is ", there.shape().text(), ", the model's is ",
                      shape.text()),
                  "the adapter is of another model");
    return graph_.add_constant(there, module + what);
  }

  /// Begins uniform in [-spread, spread).
  ValueId add_matrix(const std::string& name, const Shape& shape, double spread) {
    Tensor initial(DType::f32, shape);
    for (int64_t i = 0; spread != 0 && i < initial.elements(); ++i)
      initial.as<float>()[i] = static_cast<float>(spread * (static_cast<double>(random_() >> 11) * 0x1p-52 - 1));
    Trainable one;
    one.parameter = {.key = cat("train.", name),
                     .name = name,
                     .shape = shape,
                     .origin = std::make_shared<Constant>(Constant{{}, std::move(initial), {}}),
                     .base = base_,
                     .decays = true};
    one.value = add_parameter(graph_, builder_, one.parameter);
    graph_.value(one.value).name = name;
    context_.adapters.push_back(one);
    return one.value;
  }

  Graph& graph_;
  PassContext& context_;
  const LoraOptions& lora_;
  const AdapterWeights* weights_;
  Knowledge knowledge_;
  GraphBuilder builder_;
  const size_t old_;
  const std::vector<std::vector<int32_t>> readers_;  ///< of the values before there were adapters
  std::mt19937_64 random_;
  std::map<std::string, int64_t> parts_;
  std::shared_ptr<const Constant> base_;  ///< of the adapter at hand
  bool added_ = false;
};

}  // namespace

void adapt(Graph& graph, PassContext& context) {
  const AdapterWeights* weights = context.options.adapter.get();
  if (context.training && context.training->lora.rank)
    Adapting(graph, context, context.training->lora, nullptr).run();
  else if (weights) Adapting(graph, context, weights->options(), weights).run();
}

}  // namespace plait
