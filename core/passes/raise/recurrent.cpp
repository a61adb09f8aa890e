// Raise, recurrences: convolutions and linear attention along the tokens, whose states become slots of the Store.
// Recurrent ops are taken directly; a causal convolution written with Conv is found by evaluation: prepending the
// state, slicing the results and taking the next state may have any form.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/error_kind.h"
#include "core/base/text.h"
#include "core/exec/store_keys.h"
#include "core/passes/raise/raiser.h"
#include "core/passes/raise/region.h"

namespace plait {
namespace {

/// Ops that keep the elements and their order.
bool keeps_order(std::string_view op) {
  return op == "Cast" || op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Identity" ||
         op == "Flatten";
}

/// Traces back through ops that keep the order of elements.
ValueId origin(const Graph& graph, const std::vector<int32_t>& producer, ValueId id) {
  for (;;) {
    int32_t maker = id == no_value ? -1 : producer[static_cast<size_t>(id)];
    if (maker < 0 || !keeps_order(graph.nodes[static_cast<size_t>(maker)].op)) return id;
    id = graph.nodes[static_cast<size_t>(maker)].inputs[0];
  }
}

/// Sizes of a value after the first, if all are known.
std::optional<std::vector<int64_t>> known_sizes(const Graph& graph, ValueId id, size_t rank) {
  if (id == no_value || !graph.value(id).type.dims || graph.value(id).type.dims->size() != rank) return std::nullopt;
  std::vector<int64_t> out;
  for (const Dim& dim : *graph.value(id).type.dims) out.push_back(dim.is_constant() ? dim.constant() : -1);
  return out;
}

class RecurrentMatcher {
 public:
  RecurrentMatcher(const Graph& graph, const PassContext& context, const std::vector<int32_t>& producer,
                   const std::vector<std::vector<int32_t>>& consumer, const Node& node)
      : graph_(graph),
        context_(context),
        interface_(context.decoder.interface),
        producer_(producer),
        consumer_(consumer),
        node_(node) {}

  std::optional<RecurrentMatch> run(std::string& why) {
    bool found = false;
    if (node_.op == "CausalConvWithState") found = take_conv_op();
    else if (node_.op == "LinearAttention") found = take_attention_op();
    else if (node_.op == "Conv") found = take_conv();
    if (!why_.empty()) why = cat(describe(node_), ": ", why_);
    return found ? std::optional(std::move(match_)) : std::nullopt;
  }

 private:
  bool refuse(std::string why) {
    why_ = std::move(why);
    return false;
  }
  ValueId input(size_t k) const { return k < node_.inputs.size() ? node_.inputs[k] : no_value; }

  /// Finds the cache whose past is `past`, and whose present is the node's output 1.
  bool find_cache(ValueId past) {
    if (past == no_value) {
      if (interface_.caches.empty()) return true;  // a prefill graph: it gets a state
      return refuse("it begins anew at each run, though the graph has a past");
    }
    ValueId from = origin(graph_, producer_, past);
    for (size_t k = 0; k < interface_.caches.size(); ++k)
      if (interface_.caches[k].past == from) match_.cache = static_cast<int>(k);
    if (match_.cache < 0) return refuse("its past state is no input of the graph");
    int present = interface_.caches[static_cast<size_t>(match_.cache)].present;
    ValueId next = origin(graph_, producer_, graph_.outputs[static_cast<size_t>(present)]);
    if (node_.outputs.size() < 2 || node_.outputs[1] == no_value || next != node_.outputs[1])
      return refuse("its state is not what the graph hands on");
    return true;
  }

  bool take_conv_op() {
    auto x = known_sizes(graph_, input(0), 3), w = known_sizes(graph_, input(1), 3);
    if (!x || !w || (*w)[0] < 1 || (*w)[2] < 2) return refuse("its sizes are not known");
    match_.op = "plait.CausalConv";
    match_.attributes.set("activation", node_.attributes.string("activation", "none"));
    match_.operands = {input(0), input(1), input(2)};
    match_.output = node_.outputs[0];
    match_.sizes = {(*w)[2] - 1, (*w)[0]};
    return find_cache(input(3));
  }

  bool take_attention_op() {
    auto q = known_sizes(graph_, input(0), 3), v = known_sizes(graph_, input(2), 3);
    const int64_t heads = node_.attributes.integer("q_num_heads"), states = node_.attributes.integer("kv_num_heads");
    if (!q || !v || (*q)[2] < 1 || (*v)[2] < 1 || heads < 1 || states < 1) return refuse("its sizes are not known");
    match_.op = "plait.LinearAttention";
    match_.attributes = node_.attributes;
    match_.attributes.erase("chunk_size");  // affects only how it is computed
    match_.operands = {input(0), input(1), input(2), input(4), input(5)};
    match_.output = node_.outputs[0];
    match_.sizes = {states, (*q)[2] / heads, (*v)[2] / states};
    return find_cache(input(3));
  }

  /// A Conv with one kernel per channel, along the tokens.
  bool take_conv() {
    auto w = known_sizes(graph_, input(1), 3);
    const bool depthwise = w && (*w)[0] > 0 && (*w)[1] == 1 && (*w)[2] > 1 && graph_.value(input(1)).constant &&
                           node_.attributes.integer("group", 1) == (*w)[0];
    const bool biased = input(2) != no_value;
    if (!depthwise || (biased && !graph_.value(input(2)).constant)) return false;
    channels_ = (*w)[0], taps_ = (*w)[2];
    match_.op = "plait.CausalConv";
    match_.attributes.set("activation", std::string("none"));
    ValueId x = elements();
    if (x == no_value) return refuse("it has no single operand that holds the new tokens");
    match_.operands = {x, input(1), input(2)};
    match_.sizes = {taps_ - 1, channels_};
    if (match_.cache < 0 && !interface_.caches.empty())
      return refuse("it begins anew at each run, though the graph has a past");
    for (ValueId id : results()) {
      match_.output = id;
      try {
        constexpr Probe probes[] = {{3, 4}, {0, 7}, {5, 1}, {2, 2}};
        if (std::all_of(std::begin(probes), std::end(probes), [&](const Probe& probe) { return agrees(probe); }))
          return true;
      } catch (const Error& error) {
        if (!is_about_input(error.code())) throw;
        return refuse(cat("it could not be run on numbers: ", error.message()));
      }
    }
    return refuse("it is no causal convolution, or its state is not the last elements");
  }

  bool has_tokens(ValueId id) const {
    const auto& dims = graph_.value(id).type.dims;
    return dims && dims->size() == 3 && (*dims)[1] == Dim(channels_) &&
           (*dims)[2] == Dim::symbol(interface_.sequence);
  }

  /// The Conv's results, and what remains after slicing off those of padding, once or twice.
  std::vector<ValueId> results() const {
    std::vector<ValueId> out{node_.outputs[0]};
    for (int cuts = 0; cuts < 2; ++cuts) {
      const auto& readers = consumer_[static_cast<size_t>(out.back())];
      if (readers.size() != 1 || graph_.nodes[static_cast<size_t>(readers[0])].op != "Slice") break;
      out.push_back(graph_.nodes[static_cast<size_t>(readers[0])].outputs[0]);
    }
    return out;
  }

  /// The new elements that the Conv reads, after a state or zeros.
  ValueId elements() {
    ValueId id = input(0);
    for (int steps = 0; steps < 8; ++steps) {
      if (has_tokens(id)) return id;
      int32_t maker = producer_[static_cast<size_t>(id)];
      if (maker < 0) return no_value;
      const Node& node = graph_.nodes[static_cast<size_t>(maker)];
      if (node.op == "Concat" && node.inputs.size() == 2) {
        match_.cache = cache_of(graph_, interface_, producer_, node.inputs[0]);
        id = node.inputs[1];
      } else if (node.op == "Pad" || node.op == "Slice" || keeps_order(node.op)) {
        id = node.inputs[0];
      } else {
        return no_value;
      }
    }
    return no_value;
  }

  static Tensor as(DType dtype, const Shape& shape, const std::vector<float>& numbers) {
    return materialize({{}, Tensor::of<float>(DType::f32, shape, numbers), {{RecipeStep::Kind::cast, {}, dtype}}});
  }

  /// Whether results and next state are those of the canonical op, for a state before some tokens.
  bool agrees(const Probe& probe) const {
    const int64_t before = taps_ - 1, n = probe.tokens;
    int64_t width = before;  // of the state: at least what the kernel reads
    Evaluator evaluator = evaluator_at(graph_, context_, probe);
    std::vector<float> past;
    if (match_.cache >= 0) {
      ValueId id = interface_.caches[static_cast<size_t>(match_.cache)].past;
      auto shape = shape_at(graph_, context_, id, probe);
      if (!shape || shape->rank() != 3 || (*shape)[1] != channels_ || (*shape)[2] < before) return false;
      width = (*shape)[2];
      past = samples(static_cast<size_t>(shape->elements()), -1, 1);
      evaluator.bind(id, as(graph_.value(id).type.dtype, *shape, past));
    } else {
      past.assign(static_cast<size_t>(channels_ * width), 0);
    }
    ValueId x = match_.operands[0];
    std::vector<float> fresh = samples(static_cast<size_t>(channels_ * n), -1, 1);
    std::reverse(fresh.begin(), fresh.end());  // different numbers than the state's
    evaluator.bind(x, as(graph_.value(x).type.dtype, Shape{1, channels_, n}, fresh));
    std::vector<float> w = floats(materialize(*graph_.value(input(1)).constant)),
                       bias(static_cast<size_t>(channels_));
    if (input(2) != no_value) bias = floats(materialize(*graph_.value(input(2)).constant));
    std::vector<float> y, next;
    for (int64_t channel = 0; channel < channels_; ++channel) {
      auto line = [&](int64_t at) {  // index from the first of the state
        return at < width ? past[static_cast<size_t>(channel * width + at)]
                          : fresh[static_cast<size_t>(channel * n + at - width)];
      };
      for (int64_t i = 0; i < n; ++i) {
        double sum = bias[static_cast<size_t>(channel)];
        for (int64_t tap = 0; tap < taps_; ++tap)
          sum += double{w[static_cast<size_t>(channel * taps_ + tap)]} * line(width - before + i + tap);
        y.push_back(static_cast<float>(sum));
      }
      for (int64_t i = 0; i < width; ++i) next.push_back(line(n + i));
    }
    if (!close(floats(evaluator.value(match_.output)), y)) return false;
    if (match_.cache < 0) return true;
    int present = interface_.caches[static_cast<size_t>(match_.cache)].present;
    return close(floats(evaluator.value(graph_.outputs[static_cast<size_t>(present)])), next);
  }

  const Graph& graph_;
  const PassContext& context_;
  const DecoderInterface& interface_;
  const std::vector<int32_t>& producer_;
  const std::vector<std::vector<int32_t>>& consumer_;
  const Node& node_;
  int64_t channels_ = 0, taps_ = 0;
  RecurrentMatch match_;
  std::string why_;
};

}  // namespace

bool reads_segments(std::string_view op) {
  return op == "plait.PagedAttention" || op == "plait.KvWrite" || op == "plait.CausalConv" ||
         op == "plait.LinearAttention";
}

std::optional<RecurrentMatch> match_recurrent(const Graph& graph, const PassContext& context,
                                              const std::vector<int32_t>& producer,
                                              const std::vector<std::vector<int32_t>>& consumer, int32_t index,
                                              std::string& why) {
  return RecurrentMatcher(graph, context, producer, consumer, graph.nodes[static_cast<size_t>(index)]).run(why);
}

std::vector<size_t> in_front_of(const Graph& graph, const std::vector<int32_t>& producer, const RecurrentMatch& match,
                                const std::vector<RecurrentMatch>& earlier) {
  auto is_weight = [&](ValueId id) {
    if (id == no_value || !graph.value(id).constant) return false;
    const Constant& constant = *graph.value(id).constant;
    return is_float(constant.dtype()) && constant.shape().rank() >= 2;
  };
  std::vector<size_t> out;
  std::set<ValueId> seen{no_value};
  std::vector<ValueId> open = match.operands;
  while (!open.empty()) {
    ValueId id = open.back();
    open.pop_back();
    if (!seen.insert(id).second) continue;
    auto made = std::find_if(earlier.begin(), earlier.end(), [&](const auto& one) { return one.output == id; });
    if (made != earlier.end()) out.push_back(static_cast<size_t>(made - earlier.begin()));
    int32_t maker = producer[static_cast<size_t>(id)];
    if (made != earlier.end() || maker < 0) continue;
    const std::vector<ValueId>& inputs = graph.nodes[static_cast<size_t>(maker)].inputs;
    if (std::none_of(inputs.begin(), inputs.end(), is_weight)) open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return out;
}

void rewrite_recurrent(Graph& graph, const RecurrentMatch& match, size_t index, ValueId segments, ValueId slots) {
  std::vector<Node> made;
  auto insert = [&](std::string op, std::vector<ValueId> inputs, Attributes attributes = {}, int outputs = 1) {
    Node node;
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    for (int i = 0; i < outputs; ++i) node.outputs.push_back(graph.add_value({}));
    node.attributes = std::move(attributes);
    made.push_back(std::move(node));
    return made.back().outputs.back();
  };
  auto permuted = [&](ValueId id, std::vector<int64_t> order) {
    Attributes attributes;
    attributes.set("perm", std::move(order));
    return insert("Transpose", {id}, std::move(attributes));
  };
  const bool conv = match.op == "plait.CausalConv";
  Attributes key;
  key.set("key", store_keys::cache_states(index));
  ValueId state = insert("plait.State", {}, std::move(key));
  Dims dims{graph.symbol("u")};
  dims.insert(dims.end(), match.sizes.begin(), match.sizes.end());
  graph.value(state).type = {DType::f32, std::move(dims)};
  std::vector<ValueId> operands{state};
  if (conv) {
    const int64_t taps = match.sizes[0] + 1, channels = match.sizes[1];
    ValueId sizes = graph.add_constant(Tensor::of_ints(std::vector<int64_t>{channels, taps}));
    ValueId rows = insert("Reshape", {match.operands[1], sizes});
    operands.insert(operands.end(),
                    {permuted(match.operands[0], {0, 2, 1}), permuted(rows, {1, 0}), segments, slots});
    operands.push_back(match.operands[2]);
  } else {
    operands.insert(operands.end(), match.operands.begin(), match.operands.begin() + 3);
    operands.insert(operands.end(), {segments, slots});
    operands.insert(operands.end(), match.operands.begin() + 3, match.operands.end());
  }
  while (operands.back() == no_value) operands.pop_back();
  ValueId out = insert(match.op, std::move(operands), match.attributes, 2);
  if (conv) out = permuted(out, {0, 2, 1});
  // Inserts the new nodes before the one that made the output: their operands come before it.
  auto maker = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    return std::find(node.outputs.begin(), node.outputs.end(), match.output) != node.outputs.end();
  });
  for (Node& node : made) node.name = maker->name;
  graph.replace_uses(match.output, out);
  graph.nodes.insert(maker, std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
}

}  // namespace plait
