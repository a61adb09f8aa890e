// Pass adapt: adds low-rank adapters to weights (LoRA, Hu et al. 2022): y = x w^T + alpha / rank (x a^T) b^T. For
// training, one fixed adapter of projections, tables and experts; for generation, slots for adapters that requests
// name, of projections. Prefixes are in prefix.cpp.
#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/adapt/adapt.h"
#include "core/passes/adapt/sites.h"
#include "core/passes/base/parameter_states.h"

namespace plait {
namespace {

/// The weight there, if no other operand depends on it in the file; otherwise null.
std::shared_ptr<const Constant> own_weight(const Graph& graph, const std::vector<std::vector<int32_t>>& readers,
                                           ValueId id) {
  const std::shared_ptr<const Constant> weight = graph.value(id).constant;
  if (!weight || !is_float(weight->dtype())) return nullptr;
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

/// Chooses the weights that get an adapter; subclasses add it.
class Adapting {
 public:
  explicit Adapting(Graph& graph, PassContext& context)
      : graph_(graph), context_(context), builder_(context.options.ops, graph, knowledge_, "adapter") {}
  virtual ~Adapting() = default;

 protected:
  /// Calls `add` for the requested sites: all Linears but the head, or those with a role, a name that matches a
  /// pattern, or exactly this name.
  void each(bool all, const std::vector<std::string>& targets, const std::vector<std::string>& modules) {
    std::set<std::string> unused(targets.begin(), targets.end());
    for (const AdapterSite& site : adapter_sites(graph_)) {
      if (!takes(site)) continue;
      bool asked =
          (all && site.kind == AdapterSite::Kind::product && !site.roles.contains("head")) ||
          std::any_of(modules.begin(), modules.end(), [&](const std::string& one) { return is_of_site(one, site); });
      for (const std::string& pattern : targets)
        if (site.roles.contains(pattern) || misfit(pattern, site.module) == 0 ||
            std::any_of(site.names.begin(), site.names.end(),
                        [&](const auto& name) { return misfit(pattern, name) == 0; })) {
          asked = true;
          unused.erase(pattern);
        }
      if (asked) add(site);
    }
    if (!unused.empty()) refuse(*unused.begin());
    graph_.sort();
  }

  virtual bool takes(const AdapterSite& site) const = 0;
  virtual void add(const AdapterSite& site) = 0;
  /// Throws: the target matches nothing.
  [[noreturn]] virtual void refuse(const std::string& target) const = 0;
  static constexpr const char* say_targets =
      "; or a pattern of names of weights, nodes or modules, with * and ?: \"*.q_proj*\"; `plait inspect` lists them";

  /// A per-token number from an input of this name, for the tokens of x's rows, in x's dims but the last; no_value if
  /// the rows' tokens are unknown.
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
  std::vector<ValueId> known_;  ///< per-token inputs, by their dims
};

/// Trained adapters, as States.
class TrainedAdapters : public Adapting {
 public:
  TrainedAdapters(Graph& graph, PassContext& context, const LoraOptions& lora)
      : Adapting(graph, context), lora_(lora), readers_(consumers(graph)), random_(lora.seed) {}

  void run() {
    each(lora_.targets.empty() && lora_.modules.empty(), lora_.modules.empty() ? lora_.targets : none_,
         lora_.modules);
    for (const std::string& module : lora_.modules)
      if (std::none_of(added_.begin(), added_.end(), [&](const AdapterSite& one) { return is_of_site(module, one); }))
        throw Error(Code::invalid_argument, cat("the adapter's ", quote(module), " fits no weight of the model"),
                    "the adapter is of another model");
    if (added_.empty()) throw Error(Code::invalid_argument, "the model has no Linear to adapt");
  }

 private:
  bool takes(const AdapterSite&) const override { return true; }

  void refuse(const std::string& target) const override {
    throw Error(Code::invalid_argument, cat("no weight of the model that takes adapters fits ", quote(target)),
                cat("give query, key, value, attention_output, attention, feed_forward, head, embedding or experts",
                    say_targets));
  }

  void add(const AdapterSite& site) override {
    const Node node = graph_.nodes[site.node];
    site_ = &site;
    base_ = is_quantised(node, site) ? nullptr : own_weight(graph_, readers_, node.inputs[site.operand]);
    // Scales the narrow side: `rank` numbers per token.
    scale_ = lora_.alpha / static_cast<double>(lora_.rank);
    switch (site.kind) {
      case AdapterSite::Kind::product: add_to_product(node, site); break;
      case AdapterSite::Kind::table: add_to_table(node, site); break;
      case AdapterSite::Kind::experts: add_to_experts(node, site); break;
    }
    added_.push_back(site);
  }

  /// Whether scales of the weight follow it as operands.
  bool is_quantised(const Node& node, const AdapterSite& site) const {
    constexpr size_t plain_product = 3, plain_table = 2, plain_experts = 3;
    if (site.kind == AdapterSite::Kind::product) return node.inputs.size() > plain_product;
    if (site.kind == AdapterSite::Kind::table) return node.inputs.size() > plain_table;
    return builder_.dims(node.inputs[site.operand]).size() > plain_experts;
  }

  void add_to_product(const Node& node, const AdapterSite& site) {
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const int64_t k = builder_.dims(x).back().constant(), n = builder_.dims(y).back().constant();
    const ValueId a = add_matrix(cat(site.module, lora_a), {lora_.rank, k}, 1 / std::sqrt(static_cast<double>(k)));
    const ValueId b = add_matrix(cat(site.module, lora_b), {n, lora_.rank}, 0);
    Attributes as_base;
    for (const char* name : {"round_x", "many_rows"}) as_base.set(name, node.attributes.integer(name, 0));
    const ValueId low =
        builder_.times(builder_.add("plait.Linear", {dropped(x), a}, as_base), builder_.number(scale_, x));
    add_to_result(y, builder_.add("plait.Linear", {low, b}, as_base));
  }

  /// A token's row of a^T, and b: PEFT initialises b with standard normal numbers, and a with zeros.
  void add_to_table(const Node& node, const AdapterSite& site) {
    const ValueId y = node.outputs[0];
    const int64_t k = builder_.dims(node.inputs[0])[0].constant(), n = builder_.dims(y).back().constant();
    const ValueId a = add_matrix(cat(site.module, table_a), {lora_.rank, k}, 0);
    const ValueId b = add_matrix(cat(site.module, table_b), {n, lora_.rank}, std::sqrt(3.0));
    Attributes swapped, as_floats;
    swapped.set("perm", std::vector<int64_t>{1, 0});
    as_floats.set("to", static_cast<int64_t>(context_.options.trained_dtype()));
    const ValueId rows =
        builder_.add("plait.Embedding", {builder_.add("Transpose", {a}, std::move(swapped)), node.inputs[1]},
                     std::move(as_floats));
    const ValueId low = builder_.times(rows, builder_.number(scale_, rows));
    add_to_result(y, builder_.cast(builder_.add("plait.Linear", {low, b}), y));
  }

  /// Experts' inputs are not visible outside the op, so their weights become w + scale b a.
  void add_to_experts(const Node& node, const AdapterSite& site) {
    if (is_quantised(node, site))
      throw Error(Code::unsupported, cat("the experts ", quote(site.module), " are quantised, and take no adapters"),
                  "adapt other weights, or use the model with unquantised weights");
    if (lora_.dropout != 0)
      throw Error(Code::unsupported, cat("adapters of experts, here ", quote(site.module), ", have no dropout"),
                  "train without lora_dropout, or without experts among lora_targets");
    const ValueId w = node.inputs[site.operand];
    const Dims dims = builder_.dims(w);
    const int64_t e = dims[0].constant(), n = dims[1].constant(), k = dims[2].constant();
    const ValueId a = add_matrix(cat(site.module, lora_a), {e, lora_.rank, k}, 1 / std::sqrt(static_cast<double>(k)));
    const ValueId b = add_matrix(cat(site.module, lora_b), {e, n, lora_.rank}, 0);
    const ValueId change = builder_.add("MatMul", {builder_.times(b, builder_.number(scale_, b)), a});
    const ValueId sum = builder_.plus(builder_.cast(w, change), change);
    graph_.nodes[site.node].inputs[site.operand] = sum;
  }

  /// Replaces the result by the sum, except in the sum itself.
  void add_to_result(ValueId y, ValueId change) {
    const ValueId base = graph_.add_value("", graph_.value(y).type);
    const ValueId sum = builder_.plus(base, change);
    graph_.replace_uses(y, sum);
    graph_.replace_uses(base, y);
  }

  /// x with dropout, different for each adapter.
  ValueId dropped(ValueId x) {
    if (lora_.dropout == 0) return x;
    const ValueId keys = of_tokens(x, "keys", DType::i64);
    if (keys == no_value)
      throw Error(Code::unsupported, "rows that a router sorted have no dropout", "train without lora_dropout");
    Attributes attributes;
    attributes.set("rate", lora_.dropout);
    attributes.set("module", static_cast<int64_t>(added_.size() + 1));
    return builder_.add("plait.Dropout", {x, keys}, std::move(attributes));
  }

  /// Initial values are uniform in [-spread, spread).
  ValueId add_matrix(const std::string& name, const Shape& shape, double spread) {
    Tensor initial(DType::f32, shape);
    for (int64_t i = 0; spread != 0 && i < initial.elements(); ++i)
      initial.as<float>()[i] = static_cast<float>(spread * (static_cast<double>(random_() >> 11) * 0x1p-52 - 1));
    Constant origin{{}, std::move(initial), {}};
    if (const DType dtype = context_.options.trained_dtype(); dtype != DType::f32)
      add_step(origin, {RecipeStep::Kind::cast, {}, dtype});
    Trainable one;
    one.parameter = {.key = store_keys::parameter(name),
                     .name = name,
                     .shape = shape,
                     .origin = std::make_shared<Constant>(std::move(origin)),
                     .base = base_,
                     .begin = site_->begin,
                     .rows = site_->rows,
                     .decays = true};
    one.value = add_parameter(graph_, builder_, one.parameter);
    graph_.value(one.value).name = name;
    context_.adapters.push_back(one);
    return one.value;
  }

  const LoraOptions& lora_;
  const std::vector<std::vector<int32_t>> readers_;  ///< before adapters were added
  const std::vector<std::string> none_;
  std::mt19937_64 random_;
  std::vector<AdapterSite> added_;
  const AdapterSite* site_ = nullptr;     ///< of the current adapter
  std::shared_ptr<const Constant> base_;  ///< of the current adapter
  double scale_ = 0;                      ///< of the current adapter
};

/// Slots for adapters of requests: arrays of slots, and each token's slot as an input.
class Slots : public Adapting {
 public:
  Slots(Graph& graph, PassContext& context, const AdapterCapacity& capacity)
      : Adapting(graph, context), capacity_(capacity) {}

  void run() {
    context_.decoder.adapter_slots = capacity_.slots;
    context_.decoder.adapter_rank = capacity_.rank;
    each(capacity_.all, capacity_.targets, capacity_.modules);
  }

 private:
  bool takes(const AdapterSite& site) const override { return site.kind == AdapterSite::Kind::product; }

  void refuse(const std::string& target) const override {
    throw Error(Code::invalid_argument, cat("no product of the model fits ", quote(target)),
                cat("give query, key, value, attention_output, attention, feed_forward or head", say_targets));
  }

  void add(const AdapterSite& site) override {
    const Node node = graph_.nodes[site.node];
    const ValueId x = node.inputs[0], slots = of_tokens(x, "adapters", DType::i32);
    if (slots == no_value) return;  // rows sorted by a router: their tokens are unknown here
    const int64_t k = builder_.dims(x).back().constant(), n = builder_.dims(node.outputs[0]).back().constant();
    const auto index = static_cast<int64_t>(context_.decoder.adapted.size());
    const auto slots_of = [&](store_keys::AdapterHalf half, const Shape& shape) {
      return add_state(graph_, builder_, store_keys::adapter_slots(half, index), DType::f32, shape);
    };
    const ValueId a = slots_of(store_keys::AdapterHalf::a, {capacity_.slots, capacity_.rank, k});
    const ValueId b = slots_of(store_keys::AdapterHalf::b, {capacity_.slots, n, capacity_.rank});
    context_.decoder.adapted.push_back({site.module, k, n});
    Node& adapted = graph_.nodes[site.node];
    adapted.op = "plait.AdaptedLinear";
    adapted.inputs.resize(5, no_value);
    adapted.inputs.insert(adapted.inputs.end(), {a, b, slots});
  }

  const AdapterCapacity& capacity_;
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
