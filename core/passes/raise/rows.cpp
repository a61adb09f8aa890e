// Raise, rows: the token axis. Checks that tokens are independent, gathers the requested rows as early as possible,
// and removes transposes that only move the token axis back and forth.
#include <algorithm>

#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/raise/routed.h"

namespace plait {
namespace {

bool mentions(const Graph& graph, ValueId id, SymbolId symbol) {
  if (id == no_value || !graph.value(id).type.dims) return false;
  return std::any_of(graph.value(id).type.dims->begin(), graph.value(id).type.dims->end(),
                     [&](const Dim& dim) { return mentions(dim, symbol); });
}

/// t, or a multiple of it: each token several times, adjacent in one axis.
bool counts_tokens(const Dim& size, SymbolId tokens) {
  return size.terms().size() == 1 && size.terms()[0].symbols == std::vector<SymbolId>{tokens};
}

/// Whether tokens come first in every axis that joins them with something, so that such an axis has one meaning.
bool tokens_lead(const DimsRule& rule, const FactorSizes& sizes, SymbolId tokens) {
  auto leads = [&](const RuleTensor& tensor) {
    for (const RuleDim& dim : tensor.dims) {
      bool first = true;
      for (const Factor& factor : dim.factors) {
        auto size = sizes.find(factor.name);
        bool one = factor.fixed == 1 || (size != sizes.end() && size->second == Dim(1));
        if (!first && size != sizes.end() && mentions(size->second, tokens)) return false;
        first = first && one;
      }
    }
    return true;
  };
  return std::all_of(rule.operands.begin(), rule.operands.end(), leads) &&
         std::all_of(rule.results.begin(), rule.results.end(), leads);
}

/// "" if the token factor is free in the node, otherwise the reason why not.
std::string trouble(const OpSchema& schema, const Node& node, const std::vector<Type>& inputs,
                    const std::vector<Type>& outputs, SymbolId tokens) {
  auto rule = rule_of(schema, node, inputs, outputs);
  if (!rule) return "has no dims rule";
  FactorSizes sizes = factor_sizes(*rule, dims_list(inputs), dims_list(outputs), &schema);
  std::vector<std::string> names;
  for (const FactorUse& use : factors(*rule)) {
    auto size = sizes.find(use.factor.name);
    if (size == sizes.end() || !mentions(size->second, tokens)) continue;
    names.push_back(use.factor.name);
    if (!counts_tokens(size->second, tokens)) return "changes the number of tokens";
    if (use.factor.whole || use.factor.fixed || use.factor.jagged)
      return cat("needs all tokens at once (", text(*rule), ")");
    if (use.factor.offset) return cat("depends on a token's place in the row (", text(*rule), ")");
    if (use.contracted()) return cat("sums over tokens (", text(*rule), ")");
  }
  if (!tokens_lead(*rule, sizes, tokens)) return cat("puts another axis before the tokens (", text(*rule), ")");
  if (names.size() > 1) return cat("relates tokens to tokens (", text(*rule), ")");
  return names.empty() ? cat("has a token axis that its dims rule does not follow (", text(*rule), ")") : "";
}

}  // namespace

/// A size from the number of tokens that shape arithmetic could not follow: it may be the sequence's current length,
/// which the number of new tokens is not.
static const char* unknown_from_tokens(const Graph& graph, const std::vector<int32_t>& producer, const Node& node,
                                       SymbolId tokens) {
  SymbolTable symbols = graph.symbols;
  bool sized = false;
  std::vector<SymbolId> known{tokens};
  for (ValueId id : node.inputs) {
    if (id == no_value) continue;
    int32_t maker = producer[static_cast<size_t>(id)];
    if (maker >= 0 && graph.nodes[static_cast<size_t>(maker)].op == "plait.Sizes")
      for (const Dim& dim : sizes_of(graph.nodes[static_cast<size_t>(maker)], symbols)) {
        sized = sized || mentions(dim, tokens);
        for (SymbolId symbol : dim.symbols()) known.push_back(symbol);
      }
    if (graph.value(id).type.dims)
      for (const Dim& dim : *graph.value(id).type.dims)
        for (SymbolId symbol : dim.symbols()) known.push_back(symbol);
  }
  if (!sized) return nullptr;
  for (ValueId id : node.outputs) {
    if (id == no_value || !graph.value(id).type.dims) continue;
    for (const Dim& dim : *graph.value(id).type.dims)
      for (SymbolId symbol : dim.symbols())
        if (std::find(known.begin(), known.end(), symbol) == known.end())
          return " makes a size that cannot be derived from the number of tokens";
  }
  return nullptr;
}

bool tokens_are_free(const Graph& graph, const PassContext& context, SymbolId tokens, std::string& why) {
  auto producer = producers(graph);
  RoutedRows routed(graph, tokens);
  for (const Node& node : graph.nodes) {
    if (reads_segments(node.op) || is_state(node) || node.op == "plait.Sizes") continue;
    bool concerns = routed.concerns(node);
    if (concerns && routed.follow(node)) continue;
    bool touches = false;
    std::vector<Type> inputs, outputs;
    for (ValueId id : node.inputs) {
      touches = touches || mentions(graph, id, tokens);
      inputs.push_back(id == no_value ? Type{} : graph.value(id).type);
    }
    for (ValueId id : node.outputs) {
      touches = touches || mentions(graph, id, tokens);
      outputs.push_back(id == no_value ? Type{} : graph.value(id).type);
    }
    if (const char* size = unknown_from_tokens(graph, producer, node, tokens)) {
      why = cat(describe(node), size);
      return false;
    }
    std::optional<SymbolId> count;
    if (concerns) count = routed.rows_of(node);
    if (concerns && !count && node.op != "NonZero") {
      why = cat(describe(node), " may mix tokens that were routed");
      return false;
    }
    if (!touches && !count) continue;
    if (!node.bodies.empty()) {
      why = cat(describe(node), " has a body");
      return false;
    }
    std::string what = trouble(*context.options.ops.find(node.op), node, inputs, outputs, count.value_or(tokens));
    if (what.empty() && count) routed.keep_rows(node, *count);
    if (what.empty()) continue;
    why = cat(describe(node), " ", what);
    return false;
  }
  bool left = std::any_of(graph.outputs.begin(), graph.outputs.end(), [&](ValueId id) { return routed.routed(id); });
  if (left) why = "the logits have rows that were routed";
  return !left;
}

namespace {

class RowGatherer {
 public:
  RowGatherer(Graph& graph, ValueId rows, SymbolId tokens, SymbolId asked, bool has_cache)
      : graph_(graph), rows_(rows), tokens_(tokens), asked_(asked), has_cache_(has_cache) {}

  void run() {
    while (!choose()) {
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node node = graph_.nodes[i];
      if (moved_[i]) {
        for (ValueId& id : node.inputs) id = gathered(id);
        for (ValueId id : node.outputs)
          if (id != no_value) graph_.value(id).type.dims.reset();  // r replaces t; inferred again
      }
      kept_.push_back(std::move(node));
    }
    graph_.nodes = std::move(kept_);
    producer_ = producers(graph_);
    for (ValueId& id : graph_.outputs)
      if (mentions(graph_, id, tokens_)) id = gathered(id);  // an output that was not moved
    for (Node& node : kept_) graph_.nodes.push_back(std::move(node));
  }

 private:
  /// Marks the nodes that can run on the requested rows only: those whose readers all can. False if a node was
  /// excluded because an operand cannot be gathered; then the choice restarts.
  bool choose() {
    auto readers = consumers(graph_);
    producer_ = producers(graph_);
    banned_.resize(graph_.nodes.size());
    ban_routes();
    moved_.assign(graph_.nodes.size(), false);
    std::vector<bool> is_output(static_cast<size_t>(graph_.value_count()));
    for (ValueId id : graph_.outputs) is_output[static_cast<size_t>(id)] = true;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      // A query of the cache may be computed for some rows; writes and states need all tokens.
      bool all_tokens = reads_segments(node.op) && !(has_cache_ && node.op == "plait.PagedAttention");
      if (banned_[i] || all_tokens || is_state(node) || node.op == "plait.Sizes") continue;
      bool all = true, any = false;
      for (ValueId id : node.outputs) {
        if (id == no_value) continue;
        any = any || mentions(graph_, id, tokens_);
        if (readers[static_cast<size_t>(id)].empty() && !is_output[static_cast<size_t>(id)]) continue;
        for (int32_t reader : readers[static_cast<size_t>(id)]) all = all && moved_[static_cast<size_t>(reader)];
      }
      moved_[i] = all && any;
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!moved_[i]) continue;
      for (ValueId id : graph_.nodes[i].inputs)
        if (!can_gather(id)) {
          banned_[i] = true;
          return false;
        }
    }
    return true;
  }

  /// Routed values depend on all tokens: their readers cannot run on some rows only.
  void ban_routes() {
    std::vector<bool> routed(static_cast<size_t>(graph_.value_count()));
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      bool reads = std::any_of(node.inputs.begin(), node.inputs.end(),
                               [&](ValueId id) { return id != no_value && routed[static_cast<size_t>(id)]; });
      banned_[i] = banned_[i] || reads;
      for (ValueId id : node.outputs)
        if (id != no_value && (reads || node.op == "NonZero") && !mentions(graph_, id, tokens_))
          routed[static_cast<size_t>(id)] = true;
    }
  }

  bool is_sizes(ValueId id) const {
    int32_t maker = producer_[static_cast<size_t>(id)];
    return maker >= 0 && graph_.nodes[static_cast<size_t>(maker)].op == "plait.Sizes";
  }
  bool can_gather(ValueId id) const {
    if (id == no_value || !mentions(graph_, id, tokens_) || is_sizes(id)) return true;
    int32_t maker = producer_[static_cast<size_t>(id)];
    if (maker >= 0 && moved_[static_cast<size_t>(maker)]) return true;
    const Dims& dims = *graph_.value(id).type.dims;
    return dims.size() >= 2 && dims[0] == Dim(1) && dims[1] == Dim::symbol(tokens_);
  }

  /// The value on the requested rows: itself if it has no tokens or was moved, otherwise a gathered copy.
  ValueId gathered(ValueId id) {
    if (id == no_value) return id;
    int32_t maker = producer_[static_cast<size_t>(id)];
    if (maker >= 0 && static_cast<size_t>(maker) < moved_.size() && moved_[static_cast<size_t>(maker)]) return id;
    auto known = copies_.find(id);
    if (known != copies_.end()) return known->second;
    if (is_sizes(id)) {
      const Node& sizes = graph_.nodes[static_cast<size_t>(maker)];
      Dims dims = sizes_of(sizes, graph_.symbols);
      if (std::none_of(dims.begin(), dims.end(), [&](const Dim& dim) { return mentions(dim, tokens_); })) return id;
      for (Dim& dim : dims) dim = dim.substitute(tokens_, Dim::symbol(asked_));
      Node copy;
      make_sizes(copy, dims, sizes.attributes.has("scalar"), graph_.symbols);
      copy.outputs = {graph_.add_value({})};
      kept_.push_back(copy);
      producer_.resize(static_cast<size_t>(graph_.value_count()), -1);
      return copies_[id] = copy.outputs[0];
    }
    if (!mentions(graph_, id, tokens_)) return id;
    Node gather;
    gather.op = "plait.GatherRows";
    gather.inputs = {id, rows_};
    gather.outputs = {graph_.add_value({})};
    kept_.push_back(gather);
    producer_.resize(static_cast<size_t>(graph_.value_count()), -1);
    return copies_[id] = gather.outputs[0];
  }

  Graph& graph_;
  ValueId rows_;
  SymbolId tokens_, asked_;
  const bool has_cache_;
  std::vector<int32_t> producer_;
  std::vector<bool> moved_, banned_;
  std::vector<Node> kept_;
  std::map<ValueId, ValueId> copies_;
};

}  // namespace

void gather_rows(Graph& graph, PassContext& context, ValueId rows, SymbolId tokens, SymbolId asked) {
  RowGatherer(graph, rows, tokens, asked, !context.training).run();
}

namespace {

bool keeps_last_axis(const std::vector<int64_t>& order) {
  return !order.empty() && order.back() == static_cast<int64_t>(order.size()) - 1;
}

bool undoes(const std::vector<int64_t>& second, const std::vector<int64_t>& first) {
  if (first.size() != second.size()) return false;
  for (size_t i = 0; i < first.size(); ++i)
    if (first[static_cast<size_t>(second[i])] != static_cast<int64_t>(i)) return false;
  return true;
}

/// Whether the node works on each vector of the last axis separately, with input 0 as the only variable one.
bool works_on_last_axis(const Graph& graph, const Node& node) {
  static constexpr std::string_view unary[] = {"Neg",  "Abs",   "Exp",  "Tanh", "Sigmoid", "Relu",
                                               "Gelu", "Swish", "Cast", "Sqrt", "Erf"};
  if (std::find(std::begin(unary), std::end(unary), node.op) != std::end(unary)) return true;
  bool norm = node.op == "RMSNormalization" || node.op == "LayerNormalization";
  bool scaled = node.op == "Mul" || node.op == "Add" || node.op == "Div" || node.op == "Sub";
  if (!norm && !scaled) return false;
  if (norm && node.attributes.integer("axis", -1) != -1 && node.attributes.integer("axis", -1) != 3) return false;
  for (size_t k = 1; k < node.inputs.size(); ++k) {
    const auto& constant = node.inputs[k] == no_value ? nullptr : graph.value(node.inputs[k]).constant;
    if (!constant || constant->shape().rank() > 1) return false;
  }
  return true;
}

}  // namespace

void cancel_transposes(Graph& graph) {
  for (bool changed = true; changed;) {
    changed = false;
    auto producer = producers(graph);
    auto readers = consumers(graph);
    auto maker = [&](ValueId id) -> Node* {
      int32_t index = producer[static_cast<size_t>(id)];
      return index < 0 ? nullptr : &graph.nodes[static_cast<size_t>(index)];
    };
    for (Node& node : graph.nodes) {
      if (node.op != "Transpose" || readers[static_cast<size_t>(node.outputs[0])].empty()) continue;
      std::vector<int64_t> order = node.attributes.integers("perm");
      Node* before = maker(node.inputs[0]);
      if (!before) continue;
      if (before->op == "Transpose" && undoes(order, before->attributes.integers("perm"))) {
        if (std::find(graph.outputs.begin(), graph.outputs.end(), node.outputs[0]) != graph.outputs.end()) continue;
        graph.replace_uses(node.outputs[0], before->inputs[0]);
        changed = true;
      } else if (keeps_last_axis(order) && before->outputs.size() == 1 &&
                 readers[static_cast<size_t>(node.inputs[0])].size() == 1 && works_on_last_axis(graph, *before)) {
        // Transpose(f(x)) = f(Transpose(x)): moves the transpose up to where it may meet its inverse.
        Node* first = maker(before->inputs[0]);
        if (!first || first->op != "Transpose" || !undoes(order, first->attributes.integers("perm"))) continue;
        before->inputs[0] = first->inputs[0];
        graph.value(before->outputs[0]).type.dims = graph.value(node.outputs[0]).type.dims;
        graph.replace_uses(node.outputs[0], before->outputs[0]);
        changed = true;
      }
      if (changed) break;
    }
  }
  graph.remove_dead();
}

}  // namespace plait
