// Raise, attention: walks from a Softmax (or an ONNX Attention) to the query, key and value of the new tokens, past
// scales, masks, soft caps, repeated heads and the cache. What the masks mean is found by probing them with numbers.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/raise.h"

namespace plait {
namespace {

class Matcher {
 public:
  Matcher(const Graph& graph, const PassContext& context, const std::vector<int32_t>& producer,
          const std::vector<std::vector<int32_t>>& consumer, const std::vector<bool>& data)
      : graph_(graph), interface_(context.decoder.interface), producer_(producer), consumer_(consumer), data_(data) {}

  bool from_softmax(const Node& softmax) {
    return scores(softmax.inputs[0]) && context(softmax.outputs[0]) && finish();
  }
  bool from_attention_op(const Node& node);

  AttentionMatch match;
  std::string why;

 private:
  const Node* maker(ValueId id) const {
    int32_t index = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    return index < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(index)];
  }
  bool is_data(ValueId id) const { return id != no_value && data_[static_cast<size_t>(id)]; }
  const Dims* dims(ValueId id) const {
    const auto& found = graph_.value(id).type.dims;
    return found ? &*found : nullptr;
  }
  bool fail(std::string reason) {
    if (why.empty()) why = std::move(reason);
    return false;
  }
  /// A constant of one element, as a double.
  std::optional<double> scalar(ValueId id) const {
    const auto& constant = graph_.value(id).constant;
    if (!constant || constant->shape().elements() != 1) return std::nullopt;
    Tensor wide = materialize({{}, materialize(*constant), {{RecipeStep::Kind::cast, {}, DType::f64}}});
    return *wide.as<double>();
  }

  /// Removes multiplications by constants from the front of a value; `factor` collects them.
  ValueId without_scale(ValueId id, double& factor) const {
    for (const Node* node = maker(id); node; node = maker(id)) {
      if (node->op == "Cast" && is_float(graph_.value(node->inputs[0]).type.dtype)) {
        id = node->inputs[0];
        continue;
      }
      if (node->op != "Mul" && node->op != "Div") return id;
      auto right = scalar(node->inputs[1]), left = scalar(node->inputs[0]);
      if (right) factor = node->op == "Mul" ? factor * *right : factor / *right, id = node->inputs[0];
      else if (left && node->op == "Mul") factor *= *left, id = node->inputs[1];
      else return id;
    }
    return id;
  }

  bool scores(ValueId id);
  bool mask_step(const Node& node, ValueId& id);
  bool operands(const Node& matmul, double factor);
  bool context(ValueId probabilities);
  ValueId without_repeat(ValueId id) const;
  bool cached(ValueId id, ValueId& fresh, int& cache);
  bool finish();

  const Graph& graph_;
  const DecoderInterface& interface_;
  const std::vector<int32_t>& producer_;
  const std::vector<std::vector<int32_t>>& consumer_;
  const std::vector<bool>& data_;
};

/// One masking step on the way back from the softmax: Add of a mask, or Where with a condition.
bool Matcher::mask_step(const Node& node, ValueId& id) {
  if (node.op == "Add") {
    bool right = !is_data(node.inputs[1]), left = !is_data(node.inputs[0]);
    if (right == left) return fail(cat(describe(node), ": neither operand is a mask"));
    match.masks.push_back({node.inputs[right ? 1 : 0], false});
    id = node.inputs[right ? 0 : 1];
    return true;
  }
  bool scores_first = is_data(node.inputs[1]);
  if (is_data(node.inputs[0]) || scores_first == is_data(node.inputs[2]))
    return fail(cat(describe(node), " is not a mask"));
  match.masks.push_back({node.inputs[0], scores_first});
  id = node.inputs[scores_first ? 1 : 2];
  return true;
}

/// From the softmax back to the MatMul of query and key.
bool Matcher::scores(ValueId id) {
  double factor = 1, cap = 0;
  for (;;) {
    id = without_scale(id, factor);
    const Node* node = maker(id);
    if (!node || !is_data(id)) return fail("the softmax does not come from a product of queries and keys");
    if (node->op == "Add" || node->op == "Where") {
      if (factor != 1 || cap != 0) return fail(cat(describe(*node), ": a mask before the scale"));
      if (!mask_step(*node, id)) return false;
    } else if (node->op == "Tanh" && cap == 0) {
      cap = factor;  // cap * tanh(scores / cap): what was collected so far stands outside
      factor = 1;
      id = node->inputs[0];
    } else if (node->op == "MatMul") {
      match.layer.softcap = cap;
      return operands(*node, cap != 0 ? factor * cap : factor);
    } else {
      return fail(cat(describe(*node), " stands between scores and softmax"));
    }
  }
}

bool Matcher::operands(const Node& matmul, double factor) {
  match.query = without_scale(matmul.inputs[0], factor);
  ValueId key = without_scale(matmul.inputs[1], factor);
  const Node* transpose = maker(key);
  if (!transpose || transpose->op != "Transpose") return fail(cat(describe(matmul), ": the keys are not transposed"));
  std::vector<int64_t> order = transpose->attributes.integers("perm");
  if (order != std::vector<int64_t>{0, 1, 3, 2})
    return fail(cat(describe(*transpose), " is no transposition of the last two axes"));
  key = without_scale(transpose->inputs[0], factor);
  match.layer.scale = factor;
  return cached(without_repeat(key), match.key, match.cache_key);
}

/// [b, g, s, d] from [b, g*r, s, d] that was made by Unsqueeze, Expand, Reshape; the value itself if it was not.
ValueId Matcher::without_repeat(ValueId id) const {
  const Node* reshape = maker(id);
  if (!reshape || reshape->op != "Reshape") return id;
  const Node* expand = maker(reshape->inputs[0]);
  if (!expand || expand->op != "Expand") return id;
  const Node* unsqueeze = maker(expand->inputs[0]);
  if (!unsqueeze || (unsqueeze->op != "Unsqueeze" && unsqueeze->op != "Reshape")) return id;
  const Dims *narrow = dims(unsqueeze->inputs[0]), *wide = dims(expand->outputs[0]), *merged = dims(id);
  if (!narrow || !wide || !merged || narrow->size() != 4 || wide->size() != 5 || merged->size() != 4) return id;
  bool repeats = (*wide)[1] == (*narrow)[1] && (*wide)[3] == (*narrow)[2] && (*wide)[4] == (*narrow)[3] &&
                 (*merged)[1] == (*wide)[1] * (*wide)[2];
  return repeats ? unsqueeze->inputs[0] : id;
}

/// Splits [cache, fresh] along the sequence. A value that is no such Concat is all fresh.
bool Matcher::cached(ValueId id, ValueId& fresh, int& cache) {
  const Node* concat = maker(id);
  fresh = id;
  if (!concat || concat->op != "Concat" || concat->inputs.size() != 2) return true;
  for (size_t i = 0; i < interface_.caches.size(); ++i) {
    if (interface_.caches[i].past != concat->inputs[0]) continue;
    int64_t axis = concat->attributes.integer("axis", 0);
    if (axis < 0) axis += 4;
    if (axis != interface_.caches[i].axis || axis != 2)
      return fail(cat(describe(*concat), " joins the cache along another axis than the sequence"));
    fresh = concat->inputs[1];
    cache = static_cast<int>(i);
  }
  return true;
}

/// From the probabilities forward to the product with the values.
bool Matcher::context(ValueId id) {
  for (;;) {
    const auto& readers = consumer_[static_cast<size_t>(id)];
    const Node* next = nullptr;
    for (int32_t index : readers) {
      const Node& node = graph_.nodes[static_cast<size_t>(index)];
      if (node.op == "IsNaN") continue;  // Where(IsNaN(p), 0, p): rows that see no key; ours give zero by definition
      if (next) return fail(cat("the probabilities are read twice, by ", describe(node)));
      next = &node;
    }
    if (!next) return fail("nobody reads the probabilities");
    if (next->op == "Cast" || next->op == "Where") {
      id = next->outputs[0];
      continue;
    }
    if (next->op != "MatMul" || next->inputs[0] != id) return fail(cat(describe(*next), " reads the probabilities"));
    match.output = next->outputs[0];
    return cached(without_repeat(next->inputs[1]), match.value, match.cache_value);
  }
}

/// ONNX's Attention, opset 23 and 24, with the cache inside or outside.
bool Matcher::from_attention_op(const Node& node) {
  auto input = [&](size_t i) { return i < node.inputs.size() ? node.inputs[i] : no_value; };
  const Dims* query = dims(input(0));
  if (!query) return fail(cat(describe(node), ": the rank of the query is not known"));
  match.packed = query->size() == 3;
  match.query = input(0);
  match.output = node.outputs[0];
  match.causal = node.attributes.integer("is_causal", 0) != 0;
  match.layer.scale = node.attributes.real("scale", 0);
  match.layer.softcap = node.attributes.real("softcap", 0);
  match.layer.query_heads = node.attributes.integer("q_num_heads", 0);
  match.layer.kv_heads = node.attributes.integer("kv_num_heads", 0);
  if (input(6) != no_value) return fail(cat(describe(node), " keeps its cache outside, in a buffer of fixed length"));
  if (node.outputs.size() > 3 && node.outputs[3] != no_value)
    return fail(cat(describe(node), " hands out its scores"));
  if (ValueId mask = input(3); mask != no_value) {
    if (is_data(mask)) return fail(cat(describe(node), ": the mask depends on the tokens"));
    match.masks.push_back({mask, graph_.value(mask).type.dtype == DType::boolean});
  }
  if (input(4) == no_value) {
    if (!cached(match.packed ? input(1) : without_repeat(input(1)), match.key, match.cache_key) ||
        !cached(match.packed ? input(2) : without_repeat(input(2)), match.value, match.cache_value))
      return false;
    return finish();
  }
  match.key = input(1);
  match.value = input(2);
  for (size_t i = 0; i < interface_.caches.size(); ++i) {
    if (interface_.caches[i].past == input(4)) match.cache_key = static_cast<int>(i);
    if (interface_.caches[i].past == input(5)) match.cache_value = static_cast<int>(i);
  }
  if (match.cache_key < 0 || match.cache_value < 0)
    return fail(cat(describe(node), ": its past is not an input of the model"));
  return finish();
}

/// Head counts and sizes, from the dims.
bool Matcher::finish() {
  AttentionLayer& layer = match.layer;
  const Dims *query = dims(match.query), *key = dims(match.key), *value = dims(match.value);
  size_t rank = match.packed ? 3 : 4;
  if (!query || !key || !value || query->size() != rank || key->size() != rank || value->size() != rank)
    return fail("queries, keys and values have not the ranks expected");
  for (const Dims* one : {query, key, value})
    if (!one->back().is_constant() || (!match.packed && !(*one)[1].is_constant()))
      return fail("the head count or head size is not a constant");
  auto last = [](const Dims* one) { return one->back().constant(); };
  if (match.packed) {
    if (!layer.query_heads || !layer.kv_heads) return fail("packed queries without head counts");
    layer.key_size = last(query) / layer.query_heads;
    layer.value_size = last(value) / layer.kv_heads;
    if (last(key) != layer.kv_heads * layer.key_size) return fail("the sizes of queries and keys do not agree");
  } else {
    layer.query_heads = (*query)[1].constant();
    layer.kv_heads = (*key)[1].constant();
    layer.key_size = last(query);
    layer.value_size = last(value);
    if (last(key) != layer.key_size || (*value)[1].constant() != layer.kv_heads)
      return fail("the heads of queries, keys and values do not agree");
  }
  if (layer.query_heads % layer.kv_heads) return fail("the query heads are no multiple of the key heads");
  if (layer.scale == 0) layer.scale = 1 / std::sqrt(static_cast<double>(layer.key_size));
  if ((match.cache_key < 0) != (match.cache_value < 0)) return fail("only one of keys and values is cached");
  return true;
}

/// Which keys [0, past + tokens) each of the new tokens sees, by all masks together.
std::vector<uint8_t> visible(const Graph& graph, const PassContext& context, const AttentionMatch& match,
                             const Probe& probe) {
  int64_t keys = probe.past + probe.tokens;
  std::vector<uint8_t> seen(static_cast<size_t>(probe.tokens * keys), 1);
  if (match.causal)
    for (int64_t i = 0; i < probe.tokens; ++i)
      for (int64_t j = probe.past + i + 1; j < keys; ++j) seen[static_cast<size_t>(i * keys + j)] = 0;
  Evaluator evaluator = evaluator_at(graph, context, probe);
  for (const AttentionMatch::Mask& mask : match.masks) {
    Tensor tensor = evaluator.value(mask.value);
    const Shape& shape = tensor.shape();
    int64_t rows = shape.rank() >= 2 ? shape.back(2) : 1, columns = shape.rank() >= 1 ? shape.back(1) : 1;
    bool fits = (rows == probe.tokens || rows == 1) && (columns == keys || columns == 1);
    if (!fits)
      throw Error(Code::unsupported,
                  cat("a mask of shape ", shape.text(), " for ", probe.tokens, " tokens and ", keys, " keys"));
    bool boolean = tensor.dtype() == DType::boolean;
    Constant as_numbers{{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f32}}};
    Tensor real = boolean ? tensor : materialize(as_numbers);
    int64_t planes = shape.elements() / (rows * columns);
    for (int64_t plane = 0; plane < planes; ++plane)
      for (int64_t i = 0; i < probe.tokens; ++i)
        for (int64_t j = 0; j < keys; ++j) {
          int64_t at = (plane * rows + (rows == 1 ? 0 : i)) * columns + (columns == 1 ? 0 : j);
          float value = boolean ? 0 : real.as<float>()[at];
          bool open = boolean ? (tensor.as<uint8_t>()[at] != 0) == mask.keeps : value > -1e4f;
          if (open && value != 0)
            throw Error(Code::unsupported, "a mask adds more than zero to what it lets through");
          if (!open) seen[static_cast<size_t>(i * keys + j)] = 0;
        }
  }
  return seen;
}

bool is_causal_window(const std::vector<uint8_t>& seen, const Probe& probe, int64_t window) {
  int64_t keys = probe.past + probe.tokens;
  for (int64_t i = 0; i < probe.tokens; ++i)
    for (int64_t j = 0; j < keys; ++j) {
      int64_t position = probe.past + i;
      bool expected = j <= position && (window == 0 || j > position - window);
      if ((seen[static_cast<size_t>(i * keys + j)] != 0) != expected) return false;
    }
  return true;
}

}  // namespace

std::optional<AttentionMatch> match_attention(const Graph& graph, const PassContext& context,
                                              const std::vector<int32_t>& producer,
                                              const std::vector<std::vector<int32_t>>& consumer,
                                              const std::vector<bool>& data, int32_t index, std::string& why) {
  const Node& node = graph.nodes[static_cast<size_t>(index)];
  bool softmax = node.op == "Softmax" && data[static_cast<size_t>(node.outputs[0])];
  if (!softmax && node.op != "Attention") return std::nullopt;
  Matcher matcher(graph, context, producer, consumer, data);
  bool found = softmax ? matcher.from_softmax(node) : matcher.from_attention_op(node);
  if (found) return matcher.match;
  // A softmax that is no attention (of a router, say) is no obstacle; whether it may stay is decided later.
  why = cat(describe(node), ": ", matcher.why);
  return std::nullopt;
}

bool probe_masks(const Graph& graph, const PassContext& context, AttentionMatch& match, std::string& why) {
  // The window is where a single query far back in a long past begins to see. Tables of fixed length in the graph
  // (learned positions, a causal buffer) allow less far: the first length that works is taken.
  match.layer.window = 0;
  std::string last_error = "no probe worked";
  bool found = false;
  for (int64_t past : {int64_t{70000}, int64_t{20000}, int64_t{8000}, int64_t{4000}, int64_t{2000}, int64_t{1000},
                       int64_t{500}, int64_t{120}, int64_t{30}}) {
    try {
      Probe probe{past, 1};
      std::vector<uint8_t> seen = visible(graph, context, match, probe);
      auto first = std::find(seen.begin(), seen.end(), 1) - seen.begin();
      match.layer.window = first == 0 ? 0 : past + 1 - first;
      found = true;
      break;
    } catch (const Error& error) {
      last_error = error.message();
    }
  }
  if (!found) {
    why = cat("its masks could not be evaluated: ", last_error);
    return false;
  }
  int64_t window = match.layer.window;
  std::vector<Probe> probes = {{0, 1}, {0, 6}, {5, 3}, {17, 1}};
  if (window > 3) probes.insert(probes.end(), {{window - 3, 6}, {0, std::min<int64_t>(window + 3, 96)}});
  for (const Probe& probe : probes) {
    try {
      if (is_causal_window(visible(graph, context, match, probe), probe, window)) continue;
      why = cat("its masks are not causal with a window of ", window, " at ", probe.past, " past and ", probe.tokens,
                " new tokens");
    } catch (const Error& error) {
      why = cat("its masks could not be evaluated: ", error.message());
    }
    return false;
  }
  return true;
}

}  // namespace plait
