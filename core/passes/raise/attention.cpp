// Raise, attention: matches backwards from a Softmax (or a whole attention op) to query, key and value of the new
// tokens, through scales, masks, soft caps, repeated heads and the cache. masks.cpp interprets the masks, heads.cpp
// the layout ops between cache and product.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

class Matcher {
 public:
  Matcher(const Graph& graph, const PassContext& context, const std::vector<int32_t>& producer,
          const std::vector<std::vector<int32_t>>& consumer, const std::vector<bool>& data)
      : graph_(graph),
        context_(context),
        interface_(context.decoder.interface),
        producer_(producer),
        consumer_(consumer),
        data_(data) {}

  bool from_softmax(const Node& softmax);
  bool from_attention_op(const Node& node);
  bool from_grouped_op(const Node& node);

  AttentionMatch match;
  std::string why;

 private:
  const Node* maker(ValueId id) const {
    int32_t index = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    return index < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(index)];
  }
  bool is_data(ValueId id) const { return id != no_value && data_[static_cast<size_t>(id)]; }
  const Dims* dims(ValueId id) const {
    const auto& found = id == no_value ? std::nullopt : graph_.value(id).type.dims;
    return found ? &*graph_.value(id).type.dims : nullptr;
  }
  bool fail(std::string reason) {
    if (why.empty()) why = std::move(reason);
    return false;
  }
  std::optional<double> scalar(ValueId id) const { return scalar_of(graph_, id); }

  bool moves_rows(const Node& node) const;
  std::optional<ValueId> before_scale(const Node& node, double& factor) const;
  ValueId without_scale(ValueId id, double& factor) const;
  bool scores(ValueId id);
  bool mask_step(const Node& node, double factor, ValueId& id);
  bool less_its_maximum(const Node& node) const;
  bool sink_step(const Node& node, double factor, ValueId& id);
  bool drops_sink(const Node& node) const;
  bool operands(const Node& matmul, double factor);
  bool context(ValueId probabilities);
  bool key_and_value(const HeadOperand& key, const HeadOperand& value);
  bool cached_outside(const HeadOperand& operand, HeadValue& fresh, int& cache, double& factor);
  bool counts_keys(ValueId id);
  bool finish();

  const Graph& graph_;
  const PassContext& context_;
  const DecoderInterface& interface_;
  const std::vector<int32_t>& producer_;
  const std::vector<std::vector<int32_t>>& consumer_;
  const std::vector<bool>& data_;
  HeadOperand key_, value_;
};

/// Whether the node only reshapes, without splitting the last axis.
bool Matcher::moves_rows(const Node& node) const {
  if (node.op != "Reshape" && node.op != "Flatten" && node.op != "Unsqueeze" && node.op != "Squeeze") return false;
  const Dims *from = dims(node.inputs[0]), *to = dims(node.outputs[0]);
  return from && to && !from->empty() && !to->empty() && from->back() == to->back();
}

/// The operand that the node multiplies by a constant (or only casts, or guards from underflow).
std::optional<ValueId> Matcher::before_scale(const Node& node, double& factor) const {
  if (node.op == "Cast" && is_float(graph_.value(node.inputs[0]).type.dtype)) return node.inputs[0];
  if (node.inputs.size() != 2) return std::nullopt;
  auto right = scalar(node.inputs[1]), left = scalar(node.inputs[0]);
  if (node.op == "Mul" && (right || left)) {
    factor *= right ? *right : *left;
    return node.inputs[right ? 0 : 1];
  }
  if (node.op == "Div" && right) {
    factor /= *right;
    return node.inputs[0];
  }
  constexpr double lowest = -1e4;  // all scores are above; smaller mask values hide
  if (node.op == "Max" && (right || left) && (right ? *right : *left) < lowest) return node.inputs[right ? 0 : 1];
  return std::nullopt;
}

/// Strips multiplications by constants; `factor` collects them.
ValueId Matcher::without_scale(ValueId id, double& factor) const {
  for (const Node* node = maker(id); node; node = maker(id)) {
    auto before = before_scale(*node, factor);
    if (!before || node->op == "Max") break;
    id = *before;
  }
  return id;
}

/// One masking step backwards from the softmax: Add of a mask, or Where with a condition.
bool Matcher::mask_step(const Node& node, double factor, ValueId& id) {
  if (node.op == "Add") {
    bool right = !is_data(node.inputs[1]), left = !is_data(node.inputs[0]);
    if (right == left) return fail(cat(describe(node), ": neither operand is a mask"));
    match.masks.push_back({node.inputs[right ? 1 : 0], false, factor});
    id = node.inputs[right ? 0 : 1];
    return true;
  }
  bool scores_first = is_data(node.inputs[1]);
  if (is_data(node.inputs[0]) || scores_first == is_data(node.inputs[2]))
    return fail(cat(describe(node), " is not a mask"));
  match.masks.push_back({node.inputs[0], scores_first, factor});
  id = node.inputs[scores_first ? 1 : 2];
  return true;
}

/// x - max(x) by row, to which softmax is invariant.
bool Matcher::less_its_maximum(const Node& node) const {
  const Node* most = node.op == "Sub" ? maker(node.inputs[1]) : nullptr;
  const Dims* rows = most ? dims(node.inputs[0]) : nullptr;
  if (!rows || most->op != "ReduceMax" || most->inputs[0] != node.inputs[0]) return false;
  const Dims* maxima = dims(most->outputs[0]);
  if (!maxima || maxima->size() != rows->size() || maxima->back() != Dim(1)) return false;
  return std::equal(rows->begin(), rows->end() - 1, maxima->begin());
}

/// Scores with a column of sinks appended, one number per head.
bool Matcher::sink_step(const Node& node, double factor, ValueId& id) {
  const Dims *all = dims(node.outputs[0]), *column = node.inputs.size() == 2 ? dims(node.inputs[1]) : nullptr;
  int64_t axis = node.attributes.integer("axis", 0);
  if (!all || !column || column->size() != 4 || column->back() != Dim(1) || is_data(node.inputs[1]) ||
      (axis != -1 && axis != 3) || !(*column)[1].is_constant() || match.sinks != no_value || factor != 1)
    return fail(cat(describe(node), " is between scores and softmax"));
  int64_t heads = (*column)[1].constant();
  ValueId sinks = node.inputs[1];
  for (const Node* before = maker(sinks); before && !graph_.value(sinks).constant; before = maker(sinks)) {
    bool spreads = before->op == "Expand" || before->op == "Reshape" || before->op == "Unsqueeze" ||
                   before->op == "Tile" || before->op == "Cast";
    if (!spreads) break;
    sinks = before->inputs[0];
  }
  const auto& constant = graph_.value(sinks).constant;
  if (!constant || constant->shape().elements() != heads) return fail("the sinks are not one number a head");
  Probe probe{3, 2};
  if (interface_.caches.empty()) probe.past = 0;
  auto wide = [](const Tensor& tensor) {
    return materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f64}}});
  };
  Tensor spread = wide(evaluator_at(graph_, context_, probe).value(node.inputs[1])),
         one = wide(materialize(*constant));
  for (int64_t i = 0; i < spread.elements(); ++i)
    if (spread.as<double>()[i] != one.as<double>()[i / probe.tokens % heads])
      return fail("the sinks are not the same for all tokens");
  match.sinks = sinks;
  id = node.inputs[0];
  return true;
}

/// All columns but the sink's.
bool Matcher::drops_sink(const Node& node) const {
  if (match.sinks == no_value || node.op != "Slice" || node.inputs.size() < 4) return false;
  const Dims *from = dims(node.inputs[0]), *to = dims(node.outputs[0]);
  if (!from || !to || from->empty() || from->size() != to->size() || to->back() + Dim(1) != from->back())
    return false;
  const Tensor *starts = graph_.constant(node.inputs[1]), *axes = graph_.constant(node.inputs[3]);
  if (!starts || !axes || starts->elements() != 1 || to_ints(starts->view())[0] != 0) return false;
  int64_t axis = to_ints(axes->view())[0];
  return axis == -1 || axis == static_cast<int64_t>(from->size()) - 1;
}

bool Matcher::from_softmax(const Node& softmax) {
  const Dims* rows = dims(softmax.outputs[0]);
  int64_t axis = softmax.attributes.integer("axis", -1);
  if (!rows || (axis != -1 && axis != static_cast<int64_t>(rows->size()) - 1))
    return fail("the softmax is not over the last axis");
  return scores(softmax.inputs[0]) && context(softmax.outputs[0]) && key_and_value(key_, value_) && finish();
}

/// Backwards from the softmax to the MatMul of query and key.
bool Matcher::scores(ValueId id) {
  double factor = 1, cap = 0;
  for (;;) {
    const Node* node = maker(id);
    if (!node || !is_data(id)) return fail("the softmax does not come from a product of queries and keys");
    if (auto before = before_scale(*node, factor)) {
      id = *before;
    } else if (moves_rows(*node)) {
      id = node->inputs[0];
    } else if (node->op == "Add" || node->op == "Where") {
      if (cap != 0) return fail(cat(describe(*node), ": a mask before the soft cap"));
      if (!mask_step(*node, factor, id)) return false;
    } else if (cap == 0 && less_its_maximum(*node)) {
      id = node->inputs[0];
    } else if (node->op == "Concat" && cap == 0) {
      if (!sink_step(*node, factor, id)) return false;
    } else if (node->op == "Tanh" && cap == 0) {
      cap = factor;  // cap * tanh(scores / cap): the factors collected so far are outside
      factor = 1;
      id = node->inputs[0];
    } else if (node->op == "MatMul") {
      match.layer.softcap = cap;
      return operands(*node, cap != 0 ? factor * cap : factor);
    } else {
      return fail(cat(describe(*node), " is between scores and softmax"));
    }
  }
}

/// The heads of [..., rows, columns] of batch 1: the product of the leading axes; nullopt if symbolic.
std::optional<int64_t> leading_heads(const Dims& dims, SymbolId batch) {
  Dim heads(1);
  for (size_t axis = 0; axis + 2 < dims.size(); ++axis) heads = heads * dims[axis].substitute(batch, Dim(1));
  return heads.is_constant() ? std::optional(heads.constant()) : std::nullopt;
}

/// Whether broadcasting the leading axes of `narrow` to those of `wide` shares one among adjacent heads.
bool spread_evenly(const Dims& wide, const Dims& narrow, SymbolId batch) {
  if (narrow.size() > wide.size()) return false;
  int64_t all = leading_heads(wide, batch).value_or(0), some = leading_heads(narrow, batch).value_or(0);
  if (all < 1 || some < 1 || all % some) return false;
  bool split = false;  // a differing head axis: all axes further out must differ too
  for (size_t back = 3; back <= wide.size(); ++back) {  // from the innermost leading axis outwards
    auto size_in = [&](const Dims& dims) {
      return back > dims.size() ? 1 : dims[dims.size() - back].substitute(batch, Dim(1)).constant();
    };
    const int64_t size = size_in(wide), own = size_in(narrow);
    if (own != 1 && own != size) return false;
    if (size == 1) continue;
    if (own == 1 && split) return false;
    split = split || own == size;
  }
  return true;
}

bool Matcher::operands(const Node& matmul, double factor) {
  match.query.value = without_scale(matmul.inputs[0], factor);
  match.layer.scale = factor;
  const Dims *query = dims(match.query.value), *key = dims(matmul.inputs[1]);
  if (!query || !key || query->size() < 3 || key->size() < 3)
    return fail(cat(describe(matmul), ": the ranks of queries and keys are not known"));
  if ((*query)[query->size() - 2] != Dim::symbol(interface_.sequence) || !query->back().is_constant())
    return fail(cat(describe(matmul), ": the queries are not [heads, tokens, elements]"));
  auto query_heads = leading_heads(*query, interface_.batch), key_heads = leading_heads(*key, interface_.batch);
  if (!query_heads || !key_heads) return fail("the head count is not a constant");
  if (!spread_evenly(*query, *key, interface_.batch)) return fail("heads share keys in an order of their own");
  match.layer.query_heads = *query_heads;
  match.layer.key_size = query->back().constant();
  key_ = {matmul.inputs[1], *key_heads, match.layer.key_size, "hds"};
  return true;
}

/// Forwards from the probabilities to the product with the values.
bool Matcher::context(ValueId id) {
  for (;;) {
    const auto& readers = consumer_[static_cast<size_t>(id)];
    const Node* next = nullptr;
    for (int32_t index : readers) {
      const Node& node = graph_.nodes[static_cast<size_t>(index)];
      if (node.op == "IsNaN") continue;  // Where(IsNaN(p), 0, p): rows without visible keys; ours give 0 anyway
      if (next) return fail(cat("the probabilities are read twice, by ", describe(node)));
      next = &node;
    }
    if (!next) return fail("the probabilities have no reader");
    if (next->op == "Cast" || next->op == "Where" || moves_rows(*next) || drops_sink(*next)) {
      id = next->outputs[0];
      continue;
    }
    if (next->op != "MatMul" || next->inputs[0] != id) return fail(cat(describe(*next), " reads the probabilities"));
    match.output = next->outputs[0];
    const Dims* value = dims(next->inputs[1]);
    auto heads = value && value->size() > 2 ? leading_heads(*value, interface_.batch) : std::nullopt;
    if (!heads || !value->back().is_constant()) return fail("the head count or head size is not a constant");
    if (!dims(id) || !spread_evenly(*dims(id), *value, interface_.batch))
      return fail("heads share values in an order of their own");
    value_ = {next->inputs[1], *heads, value->back().constant(), "hsd"};
    return true;
  }
}

bool Matcher::cached_outside(const HeadOperand& operand, HeadValue& fresh, int& cache, double& factor) {
  std::string reason;
  auto source = trace_heads(graph_, context_, producer_, data_, operand, reason);
  if (!source) return fail(std::move(reason));
  fresh = source->fresh;
  cache = source->cache;
  factor = source->factor;
  if (match.layer.kv_heads && match.layer.kv_heads != source->heads)
    return fail("keys and values have not as many heads");
  match.layer.kv_heads = source->heads;
  return true;
}

/// The new tokens' keys and values, from operands that include the cache.
bool Matcher::key_and_value(const HeadOperand& key, const HeadOperand& value) {
  double key_factor = 1, value_factor = 1;
  match.layer.kv_heads = 0;
  match.layer.key_size = key.size;
  match.layer.value_size = value.size;
  if (!cached_outside(key, match.key, match.cache_key, key_factor) ||
      !cached_outside(value, match.value, match.cache_value, value_factor))
    return false;
  match.layer.scale *= key_factor;
  if (value_factor != 1) return fail("the values are scaled");
  return true;
}

/// ONNX's Attention, opset 23 and 24, with the cache inside or outside.
bool Matcher::from_attention_op(const Node& node) {
  auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : no_value; };
  const Dims *query = dims(input(0)), *key = dims(input(1)), *value = dims(input(2));
  if (!query || !key || !value) return fail(cat(describe(node), ": the rank of an operand is not known"));
  if (query->size() != key->size() || query->size() != value->size())
    return fail(cat(describe(node), ": queries, keys and values have not one rank"));
  match.packed = query->size() == 3;
  std::string order = match.packed ? "shd" : "hsd";
  match.query = {input(0), order};
  match.output = node.outputs[0];
  match.causal = node.attributes.integer("is_causal", 0) != 0;
  const int64_t left = node.attributes.integer("left_window_size", -1), right = node.attributes.integer("right_window_size", -1);
  if (left >= 0) match.window = left + 1;
  if (right > 0 && !match.causal) return fail(cat(describe(node), ": queries see later keys"));
  match.causal = match.causal || right == 0;
  match.layer.softcap = node.attributes.real("softcap", 0);
  AttentionLayer& layer = match.layer;
  for (const Dims* one : {query, key, value})
    if (!one->back().is_constant() || (!match.packed && !(*one)[1].is_constant()))
      return fail("the head count or head size is not a constant");
  auto size = [&](const Dims* one, int64_t heads) { return one->back().constant() / (match.packed ? heads : 1); };
  layer.query_heads = match.packed ? node.attributes.integer("q_num_heads", 0) : (*query)[1].constant();
  layer.kv_heads = match.packed ? node.attributes.integer("kv_num_heads", 0) : (*key)[1].constant();
  if (layer.query_heads < 1 || layer.kv_heads < 1) return fail("packed queries without head counts");
  layer.key_size = size(query, layer.query_heads);
  layer.value_size = size(value, layer.kv_heads);
  layer.scale = node.attributes.real("scale", 0);
  if (layer.scale == 0) layer.scale = 1 / std::sqrt(static_cast<double>(layer.key_size));
  if (size(key, layer.kv_heads) != layer.key_size) return fail("the sizes of queries and keys do not agree");
  match.told_length = input(6) != no_value;
  if (node.outputs.size() > 3 && node.outputs[3] != no_value)
    return fail(cat(describe(node), " hands out its scores"));
  if (ValueId mask = input(3); mask != no_value) {
    if (is_data(mask)) return fail(cat(describe(node), ": the mask depends on the tokens"));
    match.masks.push_back({mask, graph_.value(mask).type.dtype == DType::boolean});
  }
  if (input(4) == no_value)
    return key_and_value({input(1), layer.kv_heads, layer.key_size, order},
                         {input(2), layer.kv_heads, layer.value_size, order}) &&
           (!match.told_length || counts_keys(input(6))) && finish();
  match.key = {input(1), order};
  match.value = {input(2), order};
  match.cache_key = cache_of(graph_, interface_, producer_, input(4));
  match.cache_value = cache_of(graph_, interface_, producer_, input(5));
  if (match.cache_key < 0 || match.cache_value < 0)
    return fail(cat(describe(node), ": its past is not an input of the model"));
  return finish();
}

/// Whether the value is the number of keys at each probe: past and new tokens, as far as a ring still has them.
bool Matcher::counts_keys(ValueId id) {
  const DecoderInterface::Cache* cache =
      match.cache_key < 0 ? nullptr : &interface_.caches[static_cast<size_t>(match.cache_key)];
  const int64_t length = cache ? cache->length : 0;
  for (const Probe& probe : {Probe{3, 4}, Probe{0, 5}, Probe{6, 1}, Probe{2 * length, 1}}) {
    const int64_t total = probe.past + probe.tokens;
    if ((!cache && probe.past) || (length && total > length && !cache->ring)) continue;
    Tensor told = evaluator_at(graph_, context_, probe).value(id);
    if (told.elements() != 1 || to_ints(told.view())[0] != (length ? std::min(total, length) : total))
      return fail("its number of keys is not that of past and new tokens");
  }
  return true;
}

/// com.microsoft.GroupQueryAttention: packed heads, causal, optional rotation, with the cache inside.
bool Matcher::from_grouped_op(const Node& node) {
  auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : no_value; };
  AttentionLayer& layer = match.layer;
  layer.query_heads = node.attributes.integer("num_heads", 0);
  layer.kv_heads = node.attributes.integer("kv_num_heads", 0);
  match.packed_qkv = input(1) == no_value;
  match.packed = true;
  const Dims* query = dims(input(0));
  if (!query || query->size() != 3 || !query->back().is_constant() || layer.query_heads < 1 || layer.kv_heads < 1)
    return fail("the head size is not a constant");
  layer.key_size = query->back().constant() / (layer.query_heads + (match.packed_qkv ? 2 * layer.kv_heads : 0));
  layer.value_size = layer.key_size;
  layer.scale = node.attributes.real("scale", 0);
  if (layer.scale == 0) layer.scale = 1 / std::sqrt(static_cast<double>(layer.key_size));
  layer.softcap = node.attributes.real("softcap", 0);
  if (!node.attributes.integer("causal", 1)) return fail("it sees later tokens");
  match.causal = true;
  match.window = std::max<int64_t>(0, node.attributes.integer("local_window_size", -1));
  match.query = {input(0), "shd"};
  match.key = {match.packed_qkv ? input(0) : input(1), "shd"};
  match.value = {match.packed_qkv ? input(0) : input(2), "shd"};
  match.output = node.outputs[0];
  match.cache_key = cache_of(graph_, interface_, producer_, input(3));
  match.cache_value = cache_of(graph_, interface_, producer_, input(4));
  if (input(3) != no_value && (match.cache_key < 0 || match.cache_value < 0))
    return fail("its past is not an input of the model");
  if (node.attributes.integer("do_rotary", 0)) {
    match.cosine = input(7);
    match.sine = input(8);
    match.interleaved = node.attributes.integer("rotary_interleaved", 0) != 0;
    if (match.cosine == no_value || match.sine == no_value) return fail("it rotates without tables");
  }
  if (input(10) != no_value) match.masks.push_back({input(10), false});
  match.sinks = input(11);
  if (node.attributes.integer("smooth_softmax", 0) > 0 && match.sinks == no_value)
    return fail("its softmax has a sink of its own");
  for (size_t extra : {size_t{12}, size_t{13}, size_t{14}, size_t{15}})
    if (input(extra) != no_value) return fail(cat("its input ", extra, " is not read"));
  if (node.outputs.size() > 3 && node.outputs[3] != no_value) return fail("it hands out its scores");
  // Its length operands must be those of the cache and the new tokens.
  for (const Probe& probe : {Probe{3, 4}, Probe{0, 5}, Probe{6, 1}}) {
    if (match.cache_key < 0 && probe.past) continue;
    Evaluator evaluator = evaluator_at(graph_, context_, probe);
    int64_t total = probe.past + probe.tokens;
    if (to_ints(evaluator.value(input(5)).view())[0] != total - 1 ||
        to_ints(evaluator.value(input(6)).view())[0] != total)
      return fail("its lengths are not those of past and new tokens");
    if (input(9) == no_value) continue;
    std::vector<int64_t> positions = to_ints(evaluator.value(input(9)).view());
    for (size_t i = 0; i < positions.size(); ++i)
      if (positions[i] != probe.past + static_cast<int64_t>(i)) return fail("its positions are not the tokens' own");
  }
  return finish();
}

bool Matcher::finish() {
  const AttentionLayer& layer = match.layer;
  if (layer.kv_heads < 1 || layer.query_heads % layer.kv_heads)
    return fail("the query heads are no multiple of the key heads");
  if ((match.cache_key < 0) != (match.cache_value < 0)) return fail("only one of keys and values is cached");
  return true;
}

}  // namespace

std::optional<AttentionMatch> match_attention(const Graph& graph, const PassContext& context,
                                              const std::vector<int32_t>& producer,
                                              const std::vector<std::vector<int32_t>>& consumer,
                                              const std::vector<bool>& data, int32_t index, std::string& why) {
  const Node& node = graph.nodes[static_cast<size_t>(index)];
  bool softmax = node.op == "Softmax" && data[static_cast<size_t>(node.outputs[0])];
  bool grouped = node.op == "com.microsoft.GroupQueryAttention";
  if (!softmax && !grouped && node.op != "Attention") return std::nullopt;
  Matcher matcher(graph, context, producer, consumer, data);
  bool found = softmax   ? matcher.from_softmax(node)
               : grouped ? matcher.from_grouped_op(node)
                         : matcher.from_attention_op(node);
  if (found) return matcher.match;
  // A softmax that is not attention (e.g. of a router) is no obstacle; later checks decide whether it may stay.
  why = cat(describe(node), ": ", matcher.why);
  return std::nullopt;
}

}  // namespace plait
