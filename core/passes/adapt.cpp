// Pass adapt: low-rank adapters beside Linears (LoRA, Hu et al. 2022): y = x w^T + alpha / rank (x a^T) b^T. To train, one that
// is there for good; to generate, room for any that requests name. Prefixes are in adapt_prefix.cpp.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/compile.h"
#include "core/passes/linear_roles.h"
#include "core/passes/module_names.h"
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

/// Of these the one that tells the module: the weight's, or the node's where the file numbers its tensors.
std::string telling_name(const std::vector<std::string>& names, size_t index) {
  for (const std::string& name : names)
    if (name.find(".weight") != std::string::npos || name.find(".qweight") != std::string::npos) return name;
  return names.empty() ? cat("linear.", index) : names.back();
}

/// The rows of the file's weight that the Linear at this node reads.
PackedProduct rows_of_weight(const Graph& graph, const Node& node) {
  PackedProduct out{.size = graph.value(node.outputs[0]).type.dims->back().constant()};
  if (const auto& weight = graph.value(node.inputs[1]).constant)
    for (const RecipeStep& step : weight->steps)
      if (step.kind == RecipeStep::Kind::slice && step.numbers[2] - step.numbers[1] == out.size)
        out.begin = step.numbers[1];
  return out;
}

/// The modules of all Linears, by node.
std::map<size_t, std::string> modules_of(const Graph& graph) {
  struct Product {
    PackedProduct rows;
    size_t node;
  };
  std::map<std::string, std::vector<Product>>
      packed;  // by the weight's telling name: products of one weight have the same
  std::map<std::string, std::set<std::string>> told;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].op != "plait.Linear") continue;
    const std::string name = telling_name(names_of_linear(graph, graph.nodes[i]), i);
    packed[name].push_back({rows_of_weight(graph, graph.nodes[i]), i});
    told[module_of_name(name)].insert(name);
  }
  std::map<size_t, std::string> out;
  for (auto& [name, products] : packed) {
    std::stable_sort(products.begin(), products.end(),
                     [](const Product& a, const Product& b) { return a.rows.begin < b.rows.begin; });
    std::vector<PackedProduct> rows;
    for (const Product& one : products) rows.push_back(one.rows);
    std::vector<std::string> names = names_of_products(name, rows);
    const std::string module = module_of_name(name);
    const bool is_one =
        told.at(module).size() == 1;  // else several products of a module keep the names that they have
    for (size_t part = 0; part < names.size(); ++part)
      out[products[part].node] = is_one ? names[part] : part ? cat(name, ".copy", part) : name;
  }
  return out;
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

/// Which Linears get an adapter, and what stands beside each: subclasses say the latter.
class Adapting {
 public:
  explicit Adapting(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), builder_(context.options.ops, graph, knowledge_, "adapter") {}
  virtual ~Adapting() = default;

 protected:
  /// Calls `add` for those asked for: all but the head, those of a role, or whose names fit a pattern, those that are called so.
  void each(bool all, const std::vector<std::string>& targets, const std::vector<std::string>& modules) {
    std::set<std::string> unused(targets.begin(), targets.end());
    const auto roles = linear_roles(graph_);
    for (const auto& [i, module] : modules_of(graph_)) {
      const std::vector<std::string> names = names_of_linear(graph_, graph_.nodes[i]);
      bool asked = (all && !roles.at(i).contains("head")) ||
                   std::any_of(modules.begin(), modules.end(),
                               [&module = module](const std::string& one) { return means(one, module); });
      for (const std::string& pattern : targets)
        if (roles.at(i).contains(pattern) || std::any_of(names.begin(), names.end(), [&](const std::string& name) {
              return misfit(pattern, name) == 0;
            })) {
          asked = true;
          unused.erase(pattern);
        }
      if (asked) add(i, module);
    }
    if (!unused.empty())
      throw Error(Code::invalid_argument, cat("no Linear of the model fits ", quote(*unused.begin())),
                  "give query, key, value, attention_output, attention, feed_forward or head; or a pattern of names "
                  "of weights or nodes, with * and ?: \"*.q_proj*\"; `plait inspect` lists them");
    graph_.sort();
  }

  /// Of the node at place `at`.
  virtual void add(size_t at, const std::string& module) = 0;

  /// A number of each token, of which an input of this name is made, for the tokens that x has rows of, in x's dims but the
  /// last; no_value where these are not known.
  ValueId of_tokens(ValueId x, const char* name, DType dtype) {
    Dims dims = builder_.dims(x), sizes;
    dims.pop_back();
    std::copy_if(dims.begin(), dims.end(), std::back_inserter(sizes), [](const Dim& dim) { return dim != Dim(1); });
    const ValueId segments = input("segments"), rows = input("rows");
    const bool all = sizes == Dims{builder_.dims(segments)[1]}, some = sizes == Dims{builder_.dims(rows)[1]};
    if (!all && !some) return no_value;
    const auto same = [&](ValueId id) { return builder_.dims(id) == dims; };
    if (auto known = std::find_if(known_.begin(), known_.end(), same); known != known_.end()) return *known;
    if (numbers_ == no_value) {
      numbers_ = graph_.add_value(name, {dtype, builder_.dims(segments)});
      graph_.inputs.push_back(numbers_);
    }
    const ValueId numbers = all ? numbers_ : builder_.add("plait.GatherRows", {numbers_, rows});
    known_.push_back(same(numbers) ? numbers : builder_.reshaped(numbers, dims));
    return known_.back();
  }

  Graph& graph_;
  PassContext& context_;
  Knowledge knowledge_;
  GraphBuilder builder_;

 private:
  ValueId input(std::string_view name) const {
    return *std::find_if(graph_.inputs.begin(), graph_.inputs.end(),
                         [&](ValueId id) { return graph_.value(id).name == name; });
  }

  ValueId numbers_ = no_value;
  std::vector<ValueId> known_;  ///< of tokens, by their dims
};

/// Adapters that are trained: States of their own.
class TrainedAdapters : public Adapting {
 public:
  TrainedAdapters(Graph& graph, PassContext& context, const LoraOptions& lora)
      : Adapting(graph, context), lora_(lora), readers_(consumers(graph)), random_(lora.seed) {}

  void run() {
    each(lora_.targets.empty() && lora_.modules.empty(), lora_.modules.empty() ? lora_.targets : none_,
         lora_.modules);
    for (const std::string& module : lora_.modules)
      if (std::none_of(added_.begin(), added_.end(), [&](const std::string& one) { return means(module, one); }))
        throw Error(Code::invalid_argument, cat("the adapter's ", quote(module), " fits no weight of the model"),
                    "the adapter is of another model");
    if (added_.empty()) throw Error(Code::invalid_argument, "the model has no Linear to adapt");
  }

 private:
  void add(size_t at, const std::string& module) override {
    const Node node = graph_.nodes[at];
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const int64_t k = builder_.dims(x).back().constant(), n = builder_.dims(y).back().constant();
    const auto rank = lora_.rank;
    base_ = own_weight(graph_, readers_, node);
    const ValueId a = add_matrix(cat(module, lora_a), {rank, k}, 1 / std::sqrt(static_cast<double>(k)));
    const ValueId b = add_matrix(cat(module, lora_b), {n, rank}, 0);
    added_.insert(module);
    // The factor belongs to the product's narrow side: there it is a pass over `rank` numbers a token.
    const double scale = lora_.alpha / static_cast<double>(rank);
    Attributes as_base;
    for (const char* name : {"round_x", "many_rows"}) as_base.set(name, node.attributes.integer(name, 0));
    const ValueId low =
        builder_.times(builder_.add("plait.Linear", {dropped(x), a}, as_base), builder_.number(scale, x));
    const ValueId change = builder_.add("plait.Linear", {low, b}, as_base);
    // Whoever read the Linear reads the sum, but for the sum itself.
    const ValueId base = graph_.add_value("", graph_.value(y).type);
    const ValueId sum = builder_.plus(base, change);
    graph_.replace_uses(y, sum);
    graph_.replace_uses(base, y);
  }

  /// x with some of its features dropped, others for each adapter.
  ValueId dropped(ValueId x) {
    if (lora_.dropout == 0) return x;
    const ValueId keys = of_tokens(x, "keys", DType::i64);
    if (keys == no_value)
      throw Error(Code::unsupported, "rows that a router sorted have no dropout", "train without lora_dropout");
    Attributes attributes;
    attributes.set("rate", lora_.dropout);
    attributes.set("module", static_cast<int64_t>(added_.size()));
    return builder_.add("plait.Dropout", {x, keys}, std::move(attributes));
  }

  /// Begins uniform in [-spread, spread).
  ValueId add_matrix(const std::string& name, const Shape& shape, double spread) {
    Tensor initial(DType::f32, shape);
    for (int64_t i = 0; spread != 0 && i < initial.elements(); ++i)
      initial.as<float>()[i] = static_cast<float>(spread * (static_cast<double>(random_() >> 11) * 0x1p-52 - 1));
    Constant origin{{}, std::move(initial), {}};
    if (const DType dtype = context_.options.trained_dtype(); dtype != DType::f32)
      add_step(origin, {RecipeStep::Kind::cast, {}, dtype});
    Trainable one;
    one.parameter = {.key = cat("train.", name),
                     .name = name,
                     .shape = shape,
                     .origin = std::make_shared<Constant>(std::move(origin)),
                     .base = base_,
                     .decays = true};
    one.value = add_parameter(graph_, builder_, one.parameter);
    graph_.value(one.value).name = name;
    context_.adapters.push_back(one);
    return one.value;
  }

  const LoraOptions& lora_;
  const std::vector<std::vector<int32_t>> readers_;  ///< of the values before there were adapters
  const std::vector<std::string> none_;
  std::mt19937_64 random_;
  std::set<std::string> added_;
  std::shared_ptr<const Constant> base_;  ///< of the adapter at hand
};

/// Room for adapters of requests: arrays of slots, and each token's slot as an input.
class Slots : public Adapting {
 public:
  Slots(Graph& graph, PassContext& context, const AdapterRoom& room) : Adapting(graph, context), room_(room) {}

  void run() {
    context_.decoder.adapter_slots = room_.slots;
    context_.decoder.adapter_rank = room_.rank;
    each(room_.all, room_.targets, room_.modules);
  }

 private:
  void add(size_t at, const std::string& module) override {
    const Node node = graph_.nodes[at];
    const ValueId x = node.inputs[0], slots = of_tokens(x, "adapters", DType::i32);
    if (slots == no_value) return;  // rows that a router sorted: whose they are is not known here
    const int64_t k = builder_.dims(x).back().constant(), n = builder_.dims(node.outputs[0]).back().constant();
    const size_t index = context_.decoder.adapted.size();
    const ValueId a = add_state(graph_, builder_, cat("adapter.a.", index), DType::f32, {room_.slots, room_.rank, k});
    const ValueId b = add_state(graph_, builder_, cat("adapter.b.", index), DType::f32, {room_.slots, n, room_.rank});
    context_.decoder.adapted.push_back({module, k, n});
    Node& adapted = graph_.nodes[at];
    adapted.op = "plait.AdaptedLinear";
    adapted.inputs.resize(5, no_value);
    adapted.inputs.insert(adapted.inputs.end(), {a, b, slots});
  }

  const AdapterRoom& room_;
};

}  // namespace

void TrainingOptions::begin_with(const AdapterWeights& adapter) {
  lora.rank = adapter.rank;
  lora.alpha = adapter.alpha;
  lora.modules.clear();
  for (const auto& [module, pair] : adapter.modules) lora.modules.push_back(module);
  prefix.tokens = adapter.prefix_tokens();
}

void adapt(Graph& graph, PassContext& context) {
  const TrainingOptions* training = context.training;
  if (training && training->lora.rank && training->prefix.tokens)
    throw Error(Code::invalid_argument, "a run trains low-rank adapters or a prefix, not both",
                "a file of adapters holds one kind: give lora or prefix");
  if (training && training->prefix.tokens) add_prefix(graph, context);
  else if (training && training->lora.rank) TrainedAdapters(graph, context, training->lora).run();
  else if (!training && context.options.adapters.slots) Slots(graph, context, context.options.adapters).run();
}

}  // namespace plait
