// Raise, lengths: choices that a graph makes once per run by sequence length become choices per token by its own
// sequence's length. LongRoPE (Ding et al. 2024) is such a choice, in any exported form: one table of angles up to a
// length, another beyond.
#include <algorithm>
#include <map>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

/// Evaluates a bool of the graph for sequences of any length.
class LengthProbe {
 public:
  LengthProbe(const Graph& graph, const PassContext& context, ValueId id)
      : graph_(graph), context_(context), id_(id), cached_(!context.decoder.interface.caches.empty()) {}

  /// The length up to which it is `first`, and beyond which it is not; nullopt for other conditions.
  std::optional<int64_t> limit() {
    try {
      first = at({0, 1});
      auto far = differing_length();
      if (!far) return std::nullopt;
      int64_t same = 1, other = *far;
      while (other - same > 1) {
        int64_t middle = same + (other - same) / 2;
        (one_more(middle) == first ? same : other) = middle;
      }
      return depends_on_length_alone(same, *far) ? std::optional(same) : std::nullopt;
    } catch (const Error& error) {
      if (!is_about_input(error.code())) throw;
      return std::nullopt;  // it depends on more than sizes, mask and positions
    }
  }

  bool first = false;

 private:
  bool at(const Probe& probe) const {
    Tensor tensor = evaluator_at(graph_, context_, probe).value(id_);
    if (tensor.elements() != 1) throw Error(Code::unsupported, "no single answer");
    return *tensor.as<uint8_t>() != 0;
  }
  bool one_more(int64_t length) const { return at(cached_ ? Probe{length - 1, 1} : Probe{0, length}); }

  /// Tries the longest length that the graph's tables allow.
  std::optional<int64_t> differing_length() const {
    for (const Probe& probe : long_probes(cached_)) {
      int64_t length = probe.past + probe.tokens;
      try {
        return one_more(length) != first ? std::optional(length) : std::nullopt;
      } catch (const Error& error) {  // a table is too short: the next length is shorter
        if (!is_about_input(error.code())) throw;
      }
    }
    return std::nullopt;
  }

  /// For any split into past and new tokens.
  bool depends_on_length_alone(int64_t limit, int64_t far) const {
    constexpr int64_t most_new = 5000;  // masks grow quadratically
    for (int64_t length : {int64_t{2}, int64_t{6}, limit / 2 + 1, limit, limit + 1, limit + 9, 2 * limit, far})
      for (int64_t tokens : {int64_t{1}, int64_t{2}, int64_t{6}, length}) {
        if (tokens > length || length > far || (tokens > most_new && cached_) || (!cached_ && tokens != length))
          continue;
        if ((at({length - tokens, tokens}) == first) != (length <= limit)) return false;
      }
    return true;
  }

  const Graph& graph_;
  const PassContext& context_;
  ValueId id_;
  bool cached_;
};

/// One element for any batch.
bool is_single_bool(const Graph& graph, const DecoderInterface& interface, ValueId id) {
  const Type& type = graph.value(id).type;
  return type.dtype == DType::boolean && type.dims &&
         std::all_of(type.dims->begin(), type.dims->end(),
                     [&](const Dim& dim) { return dim == Dim(1) || dim == Dim::symbol(interface.batch); });
}

}  // namespace

std::vector<LengthChoice> find_length_choices(Graph& graph, const PassContext& context) {
  const DecoderInterface& interface = context.decoder.interface;
  std::vector<bool> data = data_values(graph, interface);
  struct Found {
    ValueId id;
    int64_t limit;
    bool first;
  };
  std::vector<Found> found;
  std::vector<bool> covered(static_cast<size_t>(graph.value_count()));  // computed from a choice already found
  for (const Node& node : graph.nodes) {
    bool behind = std::any_of(node.inputs.begin(), node.inputs.end(),
                              [&](ValueId id) { return id != no_value && covered[static_cast<size_t>(id)]; });
    for (ValueId id : node.outputs) {
      if (id == no_value) continue;
      auto at = static_cast<size_t>(id);
      covered[at] = behind;
      if (behind || data[at] || !node.bodies.empty() || !is_single_bool(graph, interface, id)) continue;
      LengthProbe probe(graph, context, id);
      auto limit = probe.limit();
      if (!limit) continue;
      found.push_back({id, *limit, probe.first});
      covered[at] = true;
    }
  }
  std::vector<LengthChoice> out;
  std::vector<Node> front;
  auto add = [&](std::string op, std::vector<ValueId> inputs) {
    Node node;
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    node.outputs = {graph.add_value({}, {DType::boolean, std::nullopt})};
    front.push_back(std::move(node));
    return front.back().outputs[0];
  };
  for (const Found& one : found) {
    auto known = std::find_if(out.begin(), out.end(), [&](const auto& choice) { return choice.limit == one.limit; });
    if (known == out.end()) {
      ValueId longer = graph.add_value(cat("longer.", one.limit), {DType::boolean, Dims{}});
      graph.inputs.push_back(longer);
      known = out.insert(out.end(), {longer, one.limit});
    }
    ValueId answer = one.first ? add("Not", {known->longer}) : known->longer;
    const Dims dims = *graph.value(one.id).type.dims;
    if (!dims.empty()) {  // batch 1, as in all raised graphs
      std::vector<int64_t> sizes(dims.size(), 1);
      answer = add("Reshape", {answer, graph.add_constant(Tensor::of_ints(sizes))});
      graph.value(answer).type.dims = dims;
    } else {
      graph.value(answer).type.dims = Dims{};
    }
    graph.replace_uses(one.id, answer);
  }
  graph.nodes.insert(graph.nodes.begin(), std::make_move_iterator(front.begin()),
                     std::make_move_iterator(front.end()));
  return out;
}

namespace {

class TokenChooser {
 public:
  TokenChooser(Graph& graph, const PassContext& context, const LengthChoice& choice, ValueId lengths,
               ValueId positions, SymbolId tokens)
      : graph_(graph), choice_(choice), lengths_(lengths), positions_(positions), tokens_(tokens) {
    data_ = data_values(graph, context.decoder.interface);
  }

  void run() {
    pick_rows();
    std::vector<ValueId> met = values_met();
    if (met.empty()) return;
    std::vector<int64_t> limit{choice_.limit};
    ValueId wide = add("Cast", {lengths_}, "to", static_cast<int64_t>(DType::i64));
    longer_ = add("Greater", {wide, graph_.add_constant(Tensor::of_ints(limit))});
    auto beyond = computed(met, true), within = computed(met, false);
    for (ValueId id : met) {
      std::vector<int64_t> sizes;
      for (const Dim& dim : *graph_.value(id).type.dims) sizes.push_back(dim.is_constant() ? 1 : -1);
      ValueId rows = add("Reshape", {longer_, graph_.add_constant(Tensor::of_ints(sizes))});
      graph_.replace_uses(id, add("Where", {rows, beyond.at(id), within.at(id)}));
    }
    for (Node& node : made_) graph_.nodes.push_back(std::move(node));
    graph_.sort();
    graph_.remove_dead();
  }

 private:
  ValueId add(std::string op, std::vector<ValueId> inputs, const char* name = nullptr, int64_t number = 0) {
    Node node;
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    node.outputs = {graph_.add_value({})};
    if (name) node.attributes.set(name, number);
    made_.push_back(std::move(node));
    return made_.back().outputs[0];
  }

  /// A rotation that indexes a chosen table itself gets one row per token instead.
  void pick_rows() {
    std::vector<bool> chosen = behind({choice_.longer});
    std::vector<Node> nodes;
    auto is_chosen_table = [&](ValueId id) {
      const auto& dims = graph_.value(id).type.dims;
      return chosen[static_cast<size_t>(id)] && dims && dims->size() == 2;
    };
    for (Node& node : graph_.nodes) {
      bool picks = node.op == "RotaryEmbedding" && node.inputs.size() > 3 && node.inputs[3] != no_value &&
                   graph_.value(node.inputs[3]).type.dims && is_chosen_table(node.inputs[1]) &&
                   is_chosen_table(node.inputs[2]);
      for (size_t k = 1; picks && k < 3; ++k) {
        Type rows = graph_.value(node.inputs[k]).type;
        Dims dims = *graph_.value(node.inputs[3]).type.dims;
        dims.push_back(rows.dims->back());
        Node gather;
        gather.op = "Gather";
        gather.name = node.name;
        gather.inputs = {node.inputs[k], node.inputs[3]};
        gather.outputs = {graph_.add_value({}, {rows.dtype, std::move(dims)})};
        node.inputs[k] = gather.outputs[0];
        nodes.push_back(std::move(gather));
      }
      if (picks) node.inputs.resize(3);
      nodes.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes);
    data_.resize(static_cast<size_t>(graph_.value_count()));
  }

  bool has_row_a_token(ValueId id) const {
    const auto& dims = graph_.value(id).type.dims;
    if (!dims) return false;
    auto rows = std::count(dims->begin(), dims->end(), Dim::symbol(tokens_));
    auto known = std::count_if(dims->begin(), dims->end(), [](const Dim& dim) { return dim.is_constant(); });
    return rows == 1 && known + 1 == static_cast<std::ptrdiff_t>(dims->size());
  }

  /// By value: whether it depends on one of these, but not on token data.
  std::vector<bool> behind(const std::vector<ValueId>& sources) const {
    std::vector<bool> out(static_cast<size_t>(graph_.value_count()));
    for (ValueId id : sources) out[static_cast<size_t>(id)] = true;
    for (const Node& node : graph_.nodes) {
      bool any = std::any_of(node.inputs.begin(), node.inputs.end(),
                             [&](ValueId id) { return id != no_value && out[static_cast<size_t>(id)]; });
      for (ValueId id : node.outputs)
        if (id != no_value && any && !data_[static_cast<size_t>(id)]) out[static_cast<size_t>(id)] = true;
    }
    return out;
  }

  /// Values that depend on the choice and are combined with token data.
  std::vector<ValueId> values_met() const {
    std::vector<bool> chosen = behind({choice_.longer});
    std::vector<ValueId> out;
    for (const Node& node : graph_.nodes) {
      bool own = std::any_of(node.outputs.begin(), node.outputs.end(),
                             [&](ValueId id) { return id != no_value && data_[static_cast<size_t>(id)]; });
      if (!own) continue;
      for (ValueId id : node.inputs)
        if (id != no_value && chosen[static_cast<size_t>(id)] && has_row_a_token(id) &&
            std::find(out.begin(), out.end(), id) == out.end())
          out.push_back(id);
    }
    return out;
  }

  /// Copies of `wanted` for one answer. The table for shorter sequences may end at the limit: tokens of longer ones
  /// read its first row instead.
  std::map<ValueId, ValueId> computed(const std::vector<ValueId>& wanted, bool answer) {
    std::map<ValueId, ValueId> copy;
    std::vector<uint8_t> byte{answer};
    copy[choice_.longer] = graph_.add_constant(Tensor::of<uint8_t>(DType::boolean, Shape{}, byte));
    if (!answer) {
      std::vector<int32_t> zero{0};
      ValueId first = graph_.add_constant(Tensor::of<int32_t>(DType::i32, Shape{}, zero));
      copy[positions_] = add("Where", {longer_, first, positions_});
    }
    std::vector<bool> depends = behind({choice_.longer, positions_}), needed(depends.size());
    for (ValueId id : wanted) needed[static_cast<size_t>(id)] = true;
    std::vector<const Node*> nodes;
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      bool asked = std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
        return id != no_value && needed[static_cast<size_t>(id)] && depends[static_cast<size_t>(id)];
      });
      if (!asked) continue;
      nodes.push_back(&node);
      for (ValueId id : node.inputs)
        if (id != no_value) needed[static_cast<size_t>(id)] = true;
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      Node one = **node;
      for (ValueId& id : one.inputs)
        if (auto known = copy.find(id); known != copy.end()) id = known->second;
      for (ValueId& id : one.outputs) {
        if (id == no_value) continue;
        Type type = graph_.value(id).type;
        id = copy[id] = graph_.add_value({}, std::move(type));
      }
      made_.push_back(std::move(one));
    }
    return copy;
  }

  Graph& graph_;
  const LengthChoice& choice_;
  ValueId lengths_, positions_;
  SymbolId tokens_;
  std::vector<bool> data_;
  std::vector<Node> made_;
  ValueId longer_ = no_value;  ///< by token
};

}  // namespace

void choose_by_token(Graph& graph, const PassContext& context, const LengthChoice& choice, ValueId lengths,
                     ValueId positions, SymbolId tokens) {
  TokenChooser(graph, context, choice, lengths, positions, tokens).run();
}

}  // namespace plait
