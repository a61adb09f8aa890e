// Raise, spelling: expands fused ops of ONNX Runtime's optimizer and builder into ONNX's own. Later passes then
// recognise one form of each; fuse joins ops again for kernels.
#include <algorithm>
#include <map>
#include <numeric>

#include "core/passes/normalize/normalize.h"
#include "core/passes/raise/raise.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

/// What a Tile along only the first axis repeats, and how often.
struct Copies {
  ValueId of = no_value;
  int64_t count = 1;
};

/// The replacement nodes of one node.
struct Spelling {
  Graph& graph;
  const Node& node;
  const std::vector<bool>& read;  ///< by value
  const std::map<ValueId, Copies>& copies;
  std::vector<Node> out;

  ValueId input(size_t k) const { return k < node.inputs.size() ? node.inputs[k] : no_value; }
  ValueId output(size_t k) const { return k < node.outputs.size() ? node.outputs[k] : no_value; }
  bool wants(size_t k) const { return output(k) != no_value && read[static_cast<size_t>(output(k))]; }
  DType dtype() const { return graph.value(node.inputs[0]).type.dtype; }
  size_t rank(ValueId id) const { return graph.value(id).type.dims ? graph.value(id).type.dims->size() : 0; }
  /// Of input k; nullopt if it is absent or its rank is unknown.
  std::optional<Dims> dims(size_t k) const {
    return input(k) == no_value ? std::nullopt : graph.value(input(k)).type.dims;
  }

  /// Adds a node whose output is `made`, or a new value.
  ValueId add(std::string op, std::vector<ValueId> inputs, Attributes attributes = {}, ValueId made = no_value) {
    Node one;
    one.op = std::move(op);
    one.name = node.name;
    one.inputs = std::move(inputs);
    one.outputs = {made == no_value ? graph.add_value({}) : made};
    one.attributes = std::move(attributes);
    out.push_back(std::move(one));
    return out.back().outputs[0];
  }
  /// Symbolic sizes as a tensor.
  ValueId sizes(const Dims& wanted, bool scalar) {
    Node one;
    make_sizes(one, wanted, scalar, graph.symbols);
    one.name = node.name;
    Dims shape;
    if (!scalar) shape.push_back(Dim(static_cast<int64_t>(wanted.size())));
    one.outputs = {graph.add_value({}, {DType::i64, std::move(shape)})};
    out.push_back(std::move(one));
    return out.back().outputs[0];
  }
  Attributes normal(double epsilon) const {
    Attributes all;
    all.set("axis", int64_t{-1});
    all.set("epsilon", node.attributes.real("epsilon", epsilon));
    return all;
  }
};

/// x and scale, over the last axis: another name of RMSNormalization.
bool simplified_norm(Spelling& to) {
  int64_t axis = to.node.attributes.integer("axis", -1);
  bool last = axis == -1 || axis == static_cast<int64_t>(to.rank(to.input(0))) - 1;
  if (!last || to.wants(1)) return false;
  to.add("RMSNormalization", {to.input(0), to.input(1)}, to.normal(1e-5), to.output(0));
  return true;
}

/// Normalises input + skip (+ bias), which may be an output too; the default epsilon is smaller than ONNX's.
bool skip_norm(Spelling& to) {
  if (to.wants(1) || to.wants(2)) return false;
  bool simplified = to.node.op == "com.microsoft.SkipSimplifiedLayerNormalization";
  ValueId bias = to.input(simplified ? 3 : 4), sum = to.input(0);
  if (bias != no_value) sum = to.add("Add", {sum, bias});
  sum = to.add("Add", {sum, to.input(1)}, {}, to.output(3));
  std::vector<ValueId> operands{sum, to.input(2)};
  if (!simplified && to.input(3) != no_value) operands.push_back(to.input(3));
  to.add(simplified ? "RMSNormalization" : "LayerNormalization", std::move(operands), to.normal(1e-12), to.output(0));
  return true;
}

bool gelu(Spelling& to) {
  bool fast = to.node.op == "com.microsoft.FastGelu";
  Attributes attributes;
  if (fast) attributes.set("approximate", std::string("tanh"));
  ValueId x = to.input(0);
  if (to.input(1) != no_value) x = to.add("Add", {x, to.input(1)});
  to.add("Gelu", {x}, std::move(attributes), to.output(0));
  return true;
}

bool quick_gelu(Spelling& to) {
  Attributes attributes;
  attributes.set("alpha", to.node.attributes.real("alpha", 1.702));
  to.add("Swish", {to.input(0)}, std::move(attributes), to.output(0));
  return true;
}

/// x sigmoid(alpha x), as steps that other element-wise ops join.
bool quick_gelu_steps(Spelling& to) {
  const auto alpha = static_cast<float>(to.node.attributes.real("alpha", 1.702));
  const ValueId factor = to.graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&alpha, 1}));
  to.add("Mul", {to.input(0), to.add("Sigmoid", {to.add("Mul", {to.input(0), factor})})}, {}, to.output(0));
  return true;
}

/// With transBatch the first dim of a matrix is before those of the batch.
bool fused_matmul(Spelling& to) {
  const Attributes& old = to.node.attributes;
  if (to.dtype() != DType::f32) return false;
  ValueId sides[2] = {to.input(0), to.input(1)};
  for (size_t k : {size_t{0}, size_t{1}}) {
    size_t rank = to.rank(sides[k]);
    if (rank < 2) return false;
    std::vector<int64_t> order(rank);
    std::iota(order.begin(), order.end(), 0);
    if (old.integer(k ? "transBatchB" : "transBatchA", 0))
      std::rotate(order.begin(), order.begin() + 1, order.end() - 1);
    if (old.integer(k ? "transB" : "transA", 0)) std::swap(order[rank - 1], order[rank - 2]);
    if (std::is_sorted(order.begin(), order.end())) continue;
    Attributes attributes;
    attributes.set("perm", std::move(order));
    sides[k] = to.add("Transpose", {sides[k]}, std::move(attributes));
  }
  float alpha = static_cast<float>(old.real("alpha", 1));
  if (alpha == 1) {
    to.add("MatMul", {sides[0], sides[1]}, {}, to.output(0));
    return true;
  }
  ValueId product = to.add("MatMul", {sides[0], sides[1]});
  ValueId scale = to.graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&alpha, 1}));
  to.add("Mul", {product, scale}, {}, to.output(0));
  return true;
}

/// Packed heads [b, s, h * d] become [b, h, s, d], and the operands get ONNX's order; positions by token only.
bool rotary(Spelling& to) {
  bool microsoft = to.node.op == "com.microsoft.RotaryEmbedding", packed = to.rank(to.input(0)) == 3;
  if (!packed && !microsoft) return false;
  if (microsoft && (to.rank(to.input(1)) != 2 || to.node.attributes.real("scale", 1) != 1)) return false;
  ValueId x = to.input(0), cosine = to.input(microsoft ? 2 : 1), sine = to.input(microsoft ? 3 : 2);
  Attributes rotation, swap;
  rotation.set("interleaved", to.node.attributes.integer("interleaved", 0));
  rotation.set("rotary_embedding_dim", to.node.attributes.integer("rotary_embedding_dim", 0));
  swap.set("perm", std::vector<int64_t>{0, 2, 1, 3});
  if (!packed) {
    to.add("RotaryEmbedding", {x, cosine, sine, to.input(1)}, std::move(rotation), to.output(0));
    return true;
  }
  const auto &dims = to.graph.value(x).type.dims, &table = to.graph.value(cosine).type.dims;
  if (!dims->back().is_constant() || !table || !table->back().is_constant()) return false;
  int64_t width = dims->back().constant(), heads = to.node.attributes.integer("num_heads", 0);
  if (heads < 1) heads = width / (2 * table->back().constant());  // the whole head is rotated
  if (heads < 1 || width % heads) return false;
  auto sizes = [&](std::vector<int64_t> numbers) { return to.graph.add_constant(Tensor::of_ints(numbers)); };
  x = to.add("Transpose", {to.add("Reshape", {x, sizes({0, 0, heads, width / heads})})}, swap);
  std::vector<ValueId> operands{x, cosine, sine};
  if (ValueId positions = to.input(microsoft ? 1 : 3); positions != no_value) operands.push_back(positions);
  x = to.add("Transpose", {to.add("RotaryEmbedding", std::move(operands), std::move(rotation))}, swap);
  to.add("Reshape", {x, sizes({0, 0, width})}, {}, to.output(0));
  return true;
}

/// Makes negative axes positive; false if one is out of range. Lists too long to be folded are unchecked.
bool count_from_front(std::vector<int64_t>& axes, size_t of_rank) {
  const auto rank = static_cast<int64_t>(of_rank);
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) return false;
    if (axis < 0) axis += rank;
  }
  return true;
}

/// Strided slices of axes of known size become gathers by number, whose rule shows that other axes are free (a
/// Slice's rule knows neither steps nor ends).
bool strided_slice(Spelling& to) {
  const Graph& graph = to.graph;
  ValueId x = to.input(0);
  const auto& dims = graph.value(x).type.dims;
  if (!dims || !is_float(to.dtype()) || to.input(3) == no_value || to.input(4) == no_value) return false;
  std::vector<int64_t> numbers[4];  // starts, ends, axes, steps
  for (size_t k = 0; k < 4; ++k) {
    const Tensor* tensor = graph.constant(to.input(k + 1));
    if (!tensor) return false;
    numbers[k] = to_ints(tensor->view());
  }
  auto& [starts, ends, axes, steps] = numbers;
  if (std::all_of(steps.begin(), steps.end(), [](int64_t step) { return step == 1; })) return false;
  if (!count_from_front(axes, dims->size()) || starts.size() != axes.size() || ends.size() != axes.size() ||
      steps.size() != axes.size())
    return false;
  for (int64_t axis : axes)
    if (!(*dims)[static_cast<size_t>(axis)].is_constant()) return false;
  for (size_t k = 0; k < axes.size(); ++k) {
    const int64_t size = (*dims)[static_cast<size_t>(axes[k])].constant();
    const int64_t step = std::clamp(steps[k], -size - 1, size + 1);  // larger ones are equivalent
    auto place = [&](int64_t at) {
      return std::clamp(at < 0 ? at + size : at, int64_t{step < 0 ? -1 : 0}, step < 0 ? size - 1 : size);
    };
    bool to_front = step < 0 && ends[k] < -size;
    int64_t from = place(starts[k]), end = to_front ? -1 : place(ends[k]);
    std::vector<int64_t> picked;
    for (int64_t at = from; step > 0 ? at < end : at > end; at += step) picked.push_back(at);
    Attributes along;
    along.set("axis", axes[k]);
    ValueId places = to.graph.add_constant(Tensor::of_ints(picked));
    x = to.add("Gather", {x, places}, std::move(along), k + 1 == axes.size() ? to.output(0) : no_value);
  }
  return true;
}

/// A reduction whose sizes do not show which axis is removed ([t, 2, 2] to [t, 2]) keeps the axis and drops it
/// afterwards: its dims rule sees only sizes.
bool reduction(Spelling& to) {
  const auto& dims = to.graph.value(to.input(0)).type.dims;
  const Tensor* given = to.input(1) == no_value ? nullptr : to.graph.constant(to.input(1));
  if (!dims || !given || to.node.attributes.integer("keepdims", 1)) return false;
  std::vector<int64_t> axes = to_ints(given->view());
  if (!count_from_front(axes, dims->size())) return false;
  std::vector<bool> gone(dims->size());
  for (int64_t axis : axes) gone[static_cast<size_t>(axis)] = true;
  bool ambiguous = false;
  for (size_t i = 0; i < dims->size(); ++i)
    for (size_t k = 0; k < dims->size(); ++k)
      ambiguous = ambiguous || (gone[i] && !gone[k] && (*dims)[i] == (*dims)[k]);
  if (!ambiguous) return false;
  Attributes keep = to.node.attributes;
  keep.set("keepdims", int64_t{1});
  ValueId kept = to.add(to.node.op, to.node.inputs, std::move(keep));
  to.add("Squeeze", {kept, to.input(1)}, {}, to.output(0));
  return true;
}

/// Tiled copies of x [t, h], reshaped to [n, t, h], become a broadcast of x: in between, one axis would have tokens
/// after the copy's number.
bool copies_apart(Spelling& to) {
  auto found = to.copies.find(to.input(0));
  if (found == to.copies.end()) return false;
  const auto &one = to.graph.value(found->second.of).type.dims, &all = to.graph.value(to.output(0)).type.dims;
  if (!one || !all || all->size() != one->size() + 1 || (*all)[0] != Dim(found->second.count)) return false;
  if (!std::equal(one->begin(), one->end(), all->begin() + 1)) return false;
  ValueId apart =
      to.add("Unsqueeze", {found->second.of, to.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{0}))});
  Dims wanted = *to.graph.value(to.output(0)).type.dims;
  to.add("Expand", {apart, to.sizes(wanted, false)}, {}, to.output(0));
  return true;
}

/// The padding mask of com.microsoft.MultiHeadAttention as a bool over keys that broadcasts to [b, h, s, total]: 0 or
/// 1 per key, per query and key, or the number of keys. no_value for others.
ValueId seen_keys(Spelling& to, const Dims& query, const Dim& fresh, const Dim& past) {
  auto sizes = [&](const std::vector<int64_t>& numbers) { return to.graph.add_constant(Tensor::of_ints(numbers)); };
  auto cast = [&](ValueId id, DType dtype) {
    Attributes attributes;
    attributes.set("to", static_cast<int64_t>(dtype));
    return to.add("Cast", {id}, std::move(attributes));
  };
  ValueId mask = to.input(4);
  const auto dims = to.dims(4);
  if (!dims || dims->empty() || dims->size() > 3) return no_value;
  if (dims->size() == 1) {
    if ((*dims)[0] != query[0]) return no_value;
    ValueId zero = to.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{0}).reshaped({})),
            one = to.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{1}).reshaped({}));
    ValueId places = to.add("Range", {zero, to.sizes({past + fresh}, true), one});
    return to.add("Less", {places, to.add("Unsqueeze", {cast(mask, DType::i64), sizes({1, 2, 3})})});
  }
  ValueId seen = cast(mask, DType::boolean);
  if (dims->back() == fresh && past != Dim(0)) {  // of the new keys only: past keys are all visible
    std::vector<uint8_t> yes{1};
    ValueId all = to.graph.add_constant(Tensor::of<uint8_t>(DType::boolean, Shape{1, 1}, yes));
    all = to.add("Expand", {all, to.sizes({query[0], past}, false)});
    Attributes along;
    along.set("axis", int64_t{1});
    seen = dims->size() == 2 ? to.add("Concat", {all, seen}, std::move(along)) : no_value;
  }
  if (seen == no_value) return no_value;
  return to.add("Unsqueeze", {seen, dims->size() == 2 ? sizes({1, 2}) : sizes({1})});
}

/// Query, key and value of com.microsoft.MultiHeadAttention in one of its layouts, split and with their biases.
struct HeadParts {
  ValueId query = no_value, key = no_value, value = no_value;
  bool heads_first = false;  ///< keys and values are [b, h, t, d]: then queries are, too; otherwise [b, s, h * d]
};
std::optional<HeadParts> head_parts(Spelling& to, int64_t heads) {
  auto sizes = [&](const std::vector<int64_t>& numbers) { return to.graph.add_constant(Tensor::of_ints(numbers)); };
  auto last = [&](ValueId id) {
    const auto& dims = to.graph.value(id).type.dims;
    return dims && dims->back().is_constant() ? dims->back().constant() : 0;
  };
  // One part of [b, s, h, parts, d].
  auto part = [&](ValueId id, int64_t which) {
    Attributes along;
    along.set("axis", int64_t{3});
    ValueId number = to.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{which}).reshaped({}));
    return to.add("Reshape", {to.add("Gather", {id, number}, std::move(along)), sizes({0, 0, heads * last(id)})});
  };
  HeadParts out{to.input(0), to.input(1), to.input(2)};
  bool all_packed = out.key == no_value, pair = !all_packed && out.value == no_value;
  if (last(out.query) < 1 || (!all_packed && last(out.key) < 1) || to.rank(out.query) != (all_packed ? 5u : 3u))
    return std::nullopt;
  if (pair && to.rank(out.key) != 5) return std::nullopt;
  out.heads_first = !all_packed && to.rank(out.key) == 4;
  int64_t width = all_packed ? heads * last(out.query) : last(out.query), size = width / heads;
  int64_t value_width = all_packed || pair        ? width
                        : to.rank(out.value) == 4 ? heads * last(out.value)
                                                  : last(out.value);
  if (all_packed) {
    ValueId all = out.query;
    out = {part(all, 0), part(all, 1), part(all, 2)};
  } else if (pair) {
    ValueId both = out.key;
    out.key = part(both, 0), out.value = part(both, 1);
  }
  if (ValueId bias = to.input(3); bias != no_value) {
    if (out.heads_first || value_width < 1) return std::nullopt;
    int64_t begin = 0;
    for (ValueId* one : {&out.query, &out.key, &out.value}) {
      int64_t end = begin + (one == &out.value ? value_width : width);
      *one = to.add("Add", {*one, to.add("Slice", {bias, sizes({begin}), sizes({end}), sizes({0})})});
      begin = end;
    }
  }
  if (!out.heads_first) return out;
  Attributes swap;
  swap.set("perm", std::vector<int64_t>{0, 2, 1, 3});
  out.query = to.add("Transpose", {to.add("Reshape", {out.query, sizes({0, 0, heads, size})})}, std::move(swap));
  return out;
}

/// com.microsoft.MultiHeadAttention becomes ONNX's Attention of packed heads; padding mask and bias become one mask.
bool multi_head(Spelling& to) {
  const Attributes& old = to.node.attributes;
  int64_t heads = old.integer("num_heads", 0);
  const auto query = to.dims(0), past = to.dims(6), key = to.input(1) == no_value ? query : to.dims(1);
  bool shared = to.input(8) != no_value || to.input(9) != no_value;
  if (heads < 1 || shared || to.wants(3) || !query || !key ||
      (to.input(6) != no_value && (!past || past->size() != 4)))
    return false;
  Dim fresh = (*key)[key->size() == 4 ? 2 : 1], before = past ? (*past)[2] : Dim(0);
  auto parts = head_parts(to, heads);
  if (!parts) return false;
  ValueId mask = to.input(5);
  if (to.input(4) != no_value) {
    ValueId seen = seen_keys(to, *query, fresh, before);
    if (seen == no_value) return false;
    float numbers[] = {static_cast<float>(old.real("mask_filter_value", -10000)), 0};
    ValueId hidden = to.graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&numbers[0], 1}));
    ValueId none = to.graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&numbers[1], 1}));
    ValueId padding = to.add("Where", {seen, none, hidden});
    mask = mask == no_value ? padding : to.add("Add", {mask, padding});
  }
  Attributes attributes;
  attributes.set("is_causal", old.integer("unidirectional", 0));
  if (old.real("scale", 0) != 0) attributes.set("scale", old.real("scale", 0));
  if (!parts->heads_first)
    for (const char* name : {"q_num_heads", "kv_num_heads"}) attributes.set(name, heads);
  ValueId made = to.add("Attention", {parts->query, parts->key, parts->value, mask, to.input(6), to.input(7)},
                        std::move(attributes), parts->heads_first ? no_value : to.output(0));
  auto& outputs = to.out.back().outputs;
  for (size_t k : {size_t{1}, size_t{2}}) outputs.push_back(to.output(k));
  if (!parts->heads_first) return true;
  Attributes swap;
  swap.set("perm", std::vector<int64_t>{0, 2, 1, 3});
  made = to.add("Transpose", {made}, std::move(swap));
  to.add("Reshape", {made, to.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{0, 0, -1}))}, {}, to.output(0));
  return true;
}

/// A Squeeze without axes squeezes those that are always 1: a decoder that squeezes others when a step has one token
/// is two graphs in one.
bool squeeze(Spelling& to) {
  const auto from = to.dims(0);
  if (to.input(1) != no_value || !from) return false;
  std::vector<int64_t> axes;
  for (size_t axis = 0; axis < from->size(); ++axis)
    if ((*from)[axis] == Dim(1)) axes.push_back(static_cast<int64_t>(axis));
  to.add("Squeeze", {to.input(0), to.graph.add_constant(Tensor::of_ints(axes))}, {}, to.output(0));
  return true;
}

/// What each Tile copies, by its output.
std::map<ValueId, Copies> copies_of(const Graph& graph) {
  std::map<ValueId, Copies> out;
  for (const Node& node : graph.nodes) {
    const Tensor* repeats = node.op == "Tile" ? graph.constant(node.inputs[1]) : nullptr;
    if (!repeats) continue;
    std::vector<int64_t> counts = to_ints(repeats->view());
    bool first_alone =
        counts.size() > 1 && std::all_of(counts.begin() + 1, counts.end(), [](int64_t n) { return n == 1; });
    if (first_alone) out[node.outputs[0]] = {node.inputs[0], counts[0]};
  }
  return out;
}

using Speller = bool (*)(Spelling&);
using Spellers = std::map<std::string_view, Speller>;

/// Those whose steps have faster kernels than they, in f32.
const Spellers& plain_spellers() {
  static const Spellers all = {
      {"SimplifiedLayerNormalization", simplified_norm},
      {"com.microsoft.SimplifiedLayerNormalization", simplified_norm},
      {"com.microsoft.SkipSimplifiedLayerNormalization", skip_norm},
      {"com.microsoft.SkipLayerNormalization", skip_norm},
      {"com.microsoft.Gelu", gelu},
      {"com.microsoft.FastGelu", gelu},
      {"com.microsoft.BiasGelu", gelu},
      {"com.microsoft.QuickGelu", quick_gelu_steps},
      {"com.microsoft.FusedMatMul", fused_matmul},
      {"com.microsoft.MultiHeadAttention", multi_head},
  };
  return all;
}

/// Of a decoder: these too, and what is found in its layers.
const Spellers& spellers() {
  static const Spellers all = [] {
    Spellers rows = {
        {"com.microsoft.QuickGelu", quick_gelu},
        {"com.microsoft.RotaryEmbedding", rotary},
        {"RotaryEmbedding", rotary},
        {"Slice", strided_slice},
        {"Squeeze", squeeze},
        {"Reshape", copies_apart},
        {"ReduceMax", reduction},
        {"ReduceMean", reduction},
        {"ReduceMin", reduction},
        {"ReduceSum", reduction},
    };
    rows.insert(plain_spellers().begin(), plain_spellers().end());  // but for those that have a row here
    return rows;
  }();
  return all;
}

/// Replaces the nodes that have a speller among `known` and that it takes; whether there is any.
bool spell(Graph& graph, const Spellers& known, bool only_f32) {
  bool any = false;
  std::vector<bool> read(static_cast<size_t>(graph.value_count()));
  for (const Node& node : graph.nodes)
    for (ValueId id : node.inputs)
      if (id != no_value) read[static_cast<size_t>(id)] = true;
  for (ValueId id : graph.outputs) read[static_cast<size_t>(id)] = true;
  std::map<ValueId, Copies> copies = copies_of(graph);
  std::vector<Node> nodes;
  for (Node& node : graph.nodes) {
    auto speller = known.find(node.op);
    Spelling spelling{graph, node, read, copies, {}};
    const bool has = speller != known.end() && (!only_f32 || spelling.dtype() == DType::f32);
    if (!has || !speller->second(spelling)) {
      nodes.push_back(std::move(node));
      continue;
    }
    any = true;
    for (Node& one : spelling.out) nodes.push_back(std::move(one));
  }
  graph.nodes = std::move(nodes);
  return any;
}

bool spell_plain(Graph& graph) {
  bool any = spell(graph, plain_spellers(), true);
  for (Node& node : graph.nodes)
    for (auto& [name, body] : node.bodies) {
      if (!body->refusal.empty()) continue;
      body = std::make_shared<Graph>(*body);  // several graphs may share it
      any = spell_plain(*body) || any;
    }
  return any;
}

}  // namespace

bool spell_out(Graph& graph) { return spell(graph, spellers(), false); }

bool is_spelled(std::string_view op) { return plain_spellers().count(op) != 0; }

void spell_fused(Graph& graph, PassContext& context) {
  if (context.options.device == DeviceKind::host && spell_plain(graph)) fold(graph, context);
}

}  // namespace plait
