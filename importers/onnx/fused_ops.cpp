// Expands whole-subgraph ops of ONNX Runtime's older optimizers: so graphs have one form of attention, and these ops
// need no kernels.
#include <algorithm>
#include <array>
#include <cmath>

#include "importers/onnx/old_node.h"

namespace plait::onnx_import {
namespace {

Attributes permuted(std::vector<int64_t> order) {
  Attributes out;
  out.set("perm", std::move(order));
  return out;
}

ValueId number(OldNode& old, int64_t value) {
  return old.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{value}).reshaped({}));
}

/// The size of axis `axis`, as a scalar.
ValueId size_of(OldNode& old, ValueId id, int64_t axis) {
  return old.emit("Gather", {old.emit("Shape", {id}), number(old, axis)}, OldNode::with("axis", 0));
}

/// Column counts of queries, keys and values in the weight [in, q + k + v].
std::array<int64_t, 3> parts_of(OldNode& old) {
  std::vector<int64_t> given = old.node.attributes.integers("qkv_hidden_sizes");
  if (given.size() == 3) return {given[0], given[1], given[2]};
  const auto& dims = old.graph.value(old.required(1)).type.dims;
  if (!dims || dims->size() != 2 || !(*dims)[1].is_constant() || (*dims)[1].constant() % 3)
    throw Error(Code::unsupported, "the weight is not [in, 3 * hidden]");
  int64_t third = (*dims)[1].constant() / 3;
  return {third, third, third};
}

/// Scores [b, h, s, total], with hidden ones replaced by `fill`; the mask input is [b] numbers of keys, or [b, total]
/// of 0 and 1, or has a row per query.
ValueId masked(OldNode& old, ValueId scores, ValueId fill) {
  ValueId mask = old.input(3);
  if (mask == no_value) return scores;
  const auto& dims = old.graph.value(mask).type.dims;
  size_t rank = dims ? dims->size() : 2;
  if (rank == 1) {
    ValueId keys = old.emit("Range", {number(old, 0), size_of(old, scores, 3), number(old, 1)});
    ValueId counts = old.emit("Cast", {old.emit("Unsqueeze", {mask, old.ints({1, 2, 3})})},
                              OldNode::with("to", static_cast<int64_t>(DType::i64)));
    return old.emit("Where", {old.emit("Less", {keys, counts}), scores, fill});
  }
  if (rank != 2 && rank != 3)
    throw Error(Code::unsupported, cat("a mask of rank ", rank,
                                       "; read are a number of keys for each text, and 0 or 1 "
                                       "for each key, of rank 2 or 3"));
  ValueId wide = old.emit("Unsqueeze", {mask, rank == 2 ? old.ints({1, 2}) : old.ints({1})});
  ValueId seen = old.emit("Cast", {wide}, OldNode::with("to", static_cast<int64_t>(DType::boolean)));
  return old.emit("Where", {seen, scores, fill});
}

/// Scores [b, h, s, total], with keys after their query replaced by `fill`; the queries are the last s places.
ValueId causal(OldNode& old, ValueId scores, ValueId fill) {
  if (!old.node.attributes.integer("unidirectional", 0)) return scores;
  ValueId s = size_of(old, scores, 2), total = size_of(old, scores, 3), one = number(old, 1);
  ValueId keys = old.emit("Range", {number(old, 0), total, one});
  ValueId queries = old.emit("Range", {old.emit("Sub", {total, s}), total, one});
  ValueId seen = old.emit("LessOrEqual", {keys, old.emit("Unsqueeze", {queries, old.ints({1})})});
  return old.emit("Where", {seen, scores, fill});
}

}  // namespace

/// com.microsoft.Attention: x [b, s, in], one weight and bias of queries, keys and values, mask?, past? [2, b, h, p,
/// d] -> [b, s, hidden], present.
void spell_attention(OldNode& old) {
  const Attributes attributes = old.node.attributes;
  int64_t heads = attributes.integer("num_heads", 0);
  std::array<int64_t, 3> parts = parts_of(old);
  bool odd = old.input(5) != no_value || old.input(6) != no_value || attributes.integer("do_rotary", 0) ||
             attributes.integer("past_present_share_buffer", 0) || heads < 1 || parts[0] % heads || parts[2] % heads;
  if (odd) throw Error(Code::unsupported, "a form of this op with biases, rotations or shared buffers inside");
  ValueId all = old.emit("MatMul", {old.required(0), old.required(1)});
  if (old.input(2) != no_value) all = old.emit("Add", {all, old.input(2)});
  std::array<ValueId, 3> sides{};
  int64_t begin = 0;
  for (size_t k = 0; k < 3; ++k) {
    ValueId part = old.emit("Slice", {all, old.ints({begin}), old.ints({begin + parts[k]}), old.ints({2})});
    begin += parts[k];
    part = old.emit("Reshape", {part, old.ints({0, 0, heads, parts[k] / heads})});
    sides[k] = old.emit("Transpose", {part}, permuted({0, 2, 1, 3}));
  }
  for (int64_t k : {int64_t{0}, int64_t{1}}) {
    if (old.input(4) == no_value) break;
    ValueId past = old.emit("Gather", {old.input(4), number(old, k)}, OldNode::with("axis", 0));
    ValueId& side = sides[static_cast<size_t>(k) + 1];
    side = old.emit("Concat", {past, side}, OldNode::with("axis", 2));
  }
  if (old.output(1) != no_value) {
    ValueId keys = old.emit("Unsqueeze", {sides[1], old.ints({0})});
    ValueId values = old.emit("Unsqueeze", {sides[2], old.ints({0})});
    old.emit("Concat", {keys, values}, OldNode::with("axis", 0), old.output(1));
  }
  double scale = attributes.real("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(parts[0]) / static_cast<double>(heads));
  ValueId scores = old.emit("MatMul", {sides[0], old.emit("Transpose", {sides[1]}, permuted({0, 1, 3, 2}))});
  scores = old.emit("Mul", {scores, old.scalar_like(scale, scores)});
  ValueId fill = old.scalar_like(attributes.real("mask_filter_value", -10000), scores);
  scores = causal(old, masked(old, scores, fill), fill);
  ValueId chances = old.emit("Softmax", {scores}, OldNode::with("axis", -1));
  ValueId context = old.emit("Transpose", {old.emit("MatMul", {chances, sides[2]})}, permuted({0, 2, 1, 3}));
  old.become("Reshape", {context, old.ints({0, 0, parts[2]})});
}

/// com.microsoft.EmbedLayerNormalization: ids, segments?, three tables (the segments' is optional), gamma, beta,
/// mask?, positions? -> LayerNorm of the sum of the rows, the mask's number of tokens, that sum.
void spell_embedding(OldNode& old) {
  ValueId ids = old.required(0), segments = old.input(1), positions = old.input(8), mask = old.input(7);
  if (positions == no_value) positions = old.emit("Range", {number(old, 0), size_of(old, ids, 1), number(old, 1)});
  ValueId words = old.emit("Gather", {old.required(2), ids}, OldNode::with("axis", 0));
  ValueId sum = old.emit("Add", {words, old.emit("Gather", {old.required(3), positions}, OldNode::with("axis", 0))});
  if (segments != no_value && old.input(4) != no_value)
    sum = old.emit("Add", {sum, old.emit("Gather", {old.input(4), segments}, OldNode::with("axis", 0))});
  if (old.output(1) != no_value)
    old.emit("ReduceSum", {mask != no_value ? mask : old.emit("Sub", {ids, ids}), old.ints({1})},
             OldNode::with("keepdims", 0), old.output(1));
  if (old.output(1) != no_value)  // a number per text: an Attention with this mask reports the rank
    old.graph.value(old.output(1)).type.dims = Dims{Dim::symbol(old.graph.symbols.fresh("texts"))};
  if (old.output(2) != no_value) old.emit("Identity", {sum}, {}, old.output(2));
  Attributes norm = OldNode::with("axis", -1);
  norm.set("epsilon", old.node.attributes.real("epsilon", 1e-12));
  old.become("LayerNormalization", {sum, old.required(5), old.required(6)}, norm);
}

namespace {

/// For each column of the cache which of a token's three positions rotates it. Layout 0: section after section.
/// Layout 1: the second position has every third column from 1 on, the third one from 2 on, up to three times their
/// sections.
std::vector<int64_t> positions_of_columns(const std::vector<int64_t>& sections, int64_t layout) {
  std::vector<int64_t> out;
  for (size_t k = 0; k < sections.size(); ++k) out.insert(out.end(), static_cast<size_t>(sections[k]), static_cast<int64_t>(k));
  if (layout == 0) return out;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t stream = i % 3;
    out[i] = stream > 0 && static_cast<int64_t>(i) < 3 * sections[stream] ? static_cast<int64_t>(stream) : 0;
  }
  return out;
}

}  // namespace

/// com.microsoft.MRotaryEmbedding: x, positions [3, b, s] (time, height, width), cos and sin [rows, z] -> x rotated
/// by the rows of three positions, each for its columns (Wang et al. 2024, Qwen2-VL).
void spell_multi_rotary(OldNode& old) {
  constexpr int64_t most_columns = 1 << 16;
  const Attributes given = old.node.attributes;
  const std::vector<int64_t> sections = given.integers("mrope_section");
  const int64_t layout = given.integer("mrope_layout", 0);
  if (sections.size() != 3 || std::ranges::any_of(sections, [](int64_t one) { return one < 0 || one > most_columns; }))
    throw Error(Code::bad_model, cat("attribute \"mrope_section\" has ", sections.size(), " numbers, expected 3 of 0 to ",
                                     most_columns),
                "give the columns of the time, height and width position");
  if (layout != 0 && layout != 1) throw Error(Code::bad_model, cat("attribute \"mrope_layout\" is ", layout, ", expected 0 or 1"));
  const std::vector<int64_t> owner = positions_of_columns(sections, layout);
  ValueId tables[2] = {old.required(2), old.required(3)}, rotations[2] = {no_value, no_value};
  for (int64_t stream = 0; stream < 3; ++stream) {
    std::vector<uint8_t> is_own;
    for (int64_t one : owner) is_own.push_back(one == stream);
    if (std::ranges::find(owner, stream) == owner.end() && (stream > 0 || !owner.empty())) continue;
    const ValueId rows = old.emit("Gather", {old.required(1), number(old, stream)}, OldNode::with("axis", 0));
    const ValueId own = old.graph.add_constant(
        Tensor::of<uint8_t>(DType::boolean, {static_cast<int64_t>(is_own.size())}, is_own));
    for (size_t k = 0; k < 2; ++k) {
      const ValueId rows_of_axis = old.emit("Gather", {tables[k], rows}, OldNode::with("axis", 0));
      rotations[k] = rotations[k] == no_value ? rows_of_axis : old.emit("Where", {own, rows_of_axis, rotations[k]});
    }
  }
  Attributes attributes;
  for (const char* name : {"interleaved", "num_heads", "rotary_embedding_dim"}) attributes.set(name, given.integer(name, 0));
  old.become("RotaryEmbedding", {old.required(0), rotations[0], rotations[1]}, std::move(attributes));
}

}  // namespace plait::onnx_import
