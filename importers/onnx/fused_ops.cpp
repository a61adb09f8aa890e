// Attention and embeddings of com.microsoft as the steps that they are made of: so graphs have one form of attention, and these ops
// need no kernels.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "importers/onnx/compose.h"
#include "importers/onnx/conversions.h"

namespace plait::onnx_import {
namespace {

/// Column counts of queries, keys and values in the weight [in, q + k + v].
std::array<int64_t, 3> parts_of(OldNode& old) {
  std::vector<int64_t> given = old.node.attributes.integers("qkv_hidden_sizes");
  if (given.size() == 3) return {given[0], given[1], given[2]};
  if (!given.empty())
    throw Error(Code::bad_model, cat("attribute \"qkv_hidden_sizes\" has ", given.size(), " numbers, expected 3"));
  const auto& dims = old.graph.value(old.required(1)).type.dims;
  if (!dims || dims->size() != 2 || !(*dims)[1].is_constant() || (*dims)[1].constant() % 3)
    throw Error(Code::unsupported, "the weight is not [in, 3 * hidden]");
  int64_t third = (*dims)[1].constant() / 3;
  return {third, third, third};
}

/// Whether the mask hides a key, as bool [b or 1, 1, s or 1, total]. The mask is [b] ends of texts, or [2 b] ends and begins (of more
/// numbers the first b are read), or has a number above 0 for each key to see: [b, total], [b, s, total] or [b, 1, most, most].
ValueId hidden_keys(OldNode& old, ValueId scores, ValueId mask) {
  const auto& dims = old.graph.value(mask).type.dims;
  const size_t rank = dims ? dims->size() : 0;  // 0: not known, at least 2
  const ValueId zero = old.emit("CastLike", {scalar_int(old, 0), mask});
  if (rank == 1) {
    const ValueId batch = sizes_of(old, scores, 0, 1), one = old.ints({1, 1, 1});
    const ValueId twice = old.emit("Mul", {batch, old.ints({2})}), length = old.emit("Shape", {mask});
    const ValueId column = joined(old, {batch, one});
    const ValueId keys = old.emit("CastLike", {numbers_below(old, size_of(old, scores, 3)), mask});
    const ValueId ends = old.emit("Reshape", {old.emit("Slice", {mask, old.ints({0}), batch}), column});
    // Without begins they are zeros.
    const ValueId filled = joined(old, {mask, old.emit("Expand", {zero, batch})});
    const ValueId begins = old.emit("Reshape", {old.emit("Slice", {filled, batch, twice}), column});
    const ValueId early = old.emit("And", {old.emit("Less", {keys, begins}), old.emit("Equal", {length, twice})});
    return old.emit("Or", {old.emit("GreaterOrEqual", {keys, ends}), early});
  }
  if (rank > 4)
    throw Error(Code::unsupported, cat("a mask of rank ", rank, "; read are a number of keys for each text, and a number for each key, "
                                       "of rank 2 to 4"));
  ValueId wide = mask;
  if (rank == 4) {  // the last s rows, and the first keys, of a square that is as long as texts may be
    const ValueId total = sizes_of(old, scores, 3, 4), first = old.emit("Sub", {total, sizes_of(old, scores, 2, 3)});
    wide = old.emit("Slice", {mask, joined(old, {first, old.ints({0})}), joined(old, {total, total}), old.ints({2, 3})});
  } else if (rank) {
    wide = old.emit("Unsqueeze", {mask, rank == 2 ? old.ints({1, 2}) : old.ints({1})});
  } else {
    wide = old.emit("Reshape", {mask, joined(old, {sizes_of(old, mask, 0, 1), old.ints({1, -1}), sizes_of(old, mask, -1, INT64_MAX)})});
  }
  return old.emit("LessOrEqual", {wide, zero});
}

/// What is added to scores [b, h, s, total], or no_value: mask_filter_value for hidden keys, and the least number for keys after their
/// query, where queries are the last s places.
ValueId summand_of(OldNode& old, ValueId scores, ValueId mask) {
  const Attributes& attributes = old.node.attributes;
  const ValueId none = old.scalar_like(0, scores);
  ValueId out = no_value;
  if (mask != no_value)
    out = old.emit("Where", {hidden_keys(old, scores, mask),
                             old.scalar_like(attributes.real("mask_filter_value", -10000), scores), none});
  if (!attributes.integer("unidirectional", 0)) return out;
  const ValueId s = size_of(old, scores, 2), total = size_of(old, scores, 3), one = scalar_int(old, 1);
  const ValueId queries = old.emit("Range", {old.emit("Sub", {total, s}), total, one});
  const ValueId seen = old.emit("LessOrEqual", {numbers_below(old, total), old.emit("Unsqueeze", {queries, old.ints({1})})});
  const ValueId least = old.scalar_like(std::numeric_limits<float>::lowest(), scores);
  return old.emit("Where", {seen, out == no_value ? none : out, least});
}

/// What an op makes of its projections [b, s, q + k + v].
struct AttentionOperands {
  ValueId all;
  std::array<int64_t, 3> parts;
  ValueId mask = no_value, past = no_value;  ///< past: [2, b, h, p, d]
  ValueId bias = no_value;                   ///< [b or 1, h or 1, s, total], added to scores
};

/// The node becomes the attention, [b, s, v], and its second output [2, b, h, p + s, d].
void become_attention(OldNode& old, const AttentionOperands& given) {
  const Attributes attributes = old.node.attributes;
  const int64_t heads = attributes.integer("num_heads", 0);
  const std::array<int64_t, 3>& parts = given.parts;
  constexpr int64_t most = int64_t{1} << 40;
  if (heads < 1 || std::max(parts[0], parts[2]) > most ||
      parts[0] < 1 || parts[2] < 1 || parts[0] % heads || parts[1] != parts[0] || parts[2] % heads)
    throw Error(Code::bad_model, cat("queries, keys and values of ", parts[0], ", ", parts[1], " and ", parts[2],
                                     " columns do not divide into ", heads, " heads"));
  if (attributes.integer("do_rotary", 0))
    throw Error(Code::unsupported, "attribute do_rotary: a rotation inside this op is not supported",
                "export the model with RotaryEmbedding and MultiHeadAttention or GroupQueryAttention");
  if (attributes.integer("past_present_share_buffer", 0))
    throw Error(Code::unsupported, "attribute past_present_share_buffer: a past in a buffer of the host is not supported",
                "export the model without it: the past then has its own length");
  std::array<ValueId, 3> sides{};
  int64_t begin = 0;
  for (size_t k = 0; k < 3; ++k) {
    ValueId part = old.emit("Slice", {given.all, old.ints({begin}), old.ints({begin + parts[k]}), old.ints({2})});
    begin += parts[k];
    part = old.emit("Reshape", {part, old.ints({0, 0, heads, parts[k] / heads})});
    sides[k] = old.emit("Transpose", {part}, permuted({0, 2, 1, 3}));
  }
  for (int64_t k : {int64_t{0}, int64_t{1}}) {
    if (given.past == no_value) break;
    ValueId past = old.emit("Gather", {given.past, scalar_int(old, k)}, OldNode::with("axis", 0));
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
  if (given.bias != no_value) scores = old.emit("Add", {scores, given.bias});
  if (const ValueId summand = summand_of(old, scores, given.mask); summand != no_value) scores = old.emit("Add", {scores, summand});
  ValueId chances = old.emit("Softmax", {scores}, OldNode::with("axis", -1));
  ValueId context = old.emit("Transpose", {old.emit("MatMul", {chances, sides[2]})}, permuted({0, 2, 1, 3}));
  old.become("Reshape", {context, old.ints({0, 0, parts[2]})});
}

/// Attention: x [b, s, in], one weight and bias of queries, keys and values, mask?, past?, a bias of scores?.
void convert_attention(OldNode& old) {
  ValueId all = old.emit("MatMul", {old.required(0), old.required(1)});
  if (old.input(2) != no_value) all = old.emit("Add", {all, old.input(2)});
  become_attention(old, {all, parts_of(old), old.input(3), old.input(4), old.input(5)});
}

/// QAttention: x and the weight of 8-bit integers, the bias, their scales, mask?, zero points?, past?.
void convert_quantized_attention(OldNode& old) {
  const ValueId sums = old.emit("MatMulInteger", trimmed_operands({old.required(0), old.required(1), old.input(6), old.input(7)}));
  const ValueId scale = old.emit("Mul", {as_scalar(old, old.required(3)), old.required(4)});
  const ValueId scaled = old.emit("Mul", {as_type(old, sums, DType::f32), as_type(old, scale, DType::f32)});
  const ValueId all = old.emit("Add", {old.emit("CastLike", {scaled, old.required(2)}), old.required(2)});
  become_attention(old, {all, parts_of(old), old.input(5), old.input(8)});
}

/// GroupQueryAttention may norm its queries and keys: by ops before it, then it is the op without. Queries, keys and values that are
/// packed are taken apart for that.
void convert_grouped_attention(OldNode& old) {
  Attributes& attributes = old.node.attributes;
  const double epsilon = attributes.real("qk_norm_epsilon", 1e-6);
  attributes.erase("qk_norm_epsilon");
  const std::array<ValueId, 2> weights{old.input(14), old.input(15)};
  if (weights[0] == no_value && weights[1] == no_value) return;
  if (weights[0] == no_value || weights[1] == no_value)
    throw Error(Code::bad_model, "only one of q_norm_weight and k_norm_weight is there");
  const int64_t d = old.weight_dims(14).back();
  old.node.inputs = trimmed_operands({old.node.inputs.begin(), old.node.inputs.begin() + 14});
  const std::array<int64_t, 2> heads{attributes.integer("num_heads"), attributes.integer("kv_num_heads")};
  if (d < 1 || heads[0] < 1 || heads[1] < 1 || std::max(heads[0], heads[1]) > (int64_t{1} << 40) / d)
    throw Error(Code::bad_model, cat("attributes num_heads ", heads[0], " and kv_num_heads ", heads[1], " with norms of ", d, " elements"));
  if (old.input(1) == no_value) {
    int64_t begin = 0;
    const ValueId all = old.required(0);
    for (size_t k = 0; k < 3; ++k) {
      const int64_t end = begin + heads[k ? 1 : 0] * d;
      old.set_input(k, old.emit("Slice", {all, old.ints({begin}), old.ints({end}), old.ints({2})}));
      begin = end;
    }
  }
  for (size_t k = 0; k < 2; ++k) {
    const ValueId split = old.emit("Reshape", {old.required(k), old.ints({0, 0, heads[k], d})});
    Attributes norm = OldNode::with("axis", -1);
    norm.set("epsilon", epsilon);
    const ValueId normed = old.emit("RMSNormalization", {split, weights[k]}, std::move(norm));
    old.set_input(k, old.emit("Reshape", {normed, old.ints({0, 0, heads[k] * d})}));
  }
}

// ---- Embeddings ----

/// Rows of three tables (the segments' is optional) by ids, positions and segments, and the norm of their sum.
struct EmbeddingOperands {
  std::array<ValueId, 3> tables;              ///< words, positions, segments
  ValueId gamma, beta, mask, positions;       ///< positions: absent, they count from 0
  std::array<ValueId, 3> scales{no_value, no_value, no_value};  ///< of tables of 8-bit integers
  std::array<ValueId, 3> zeros{no_value, no_value, no_value};
};

void become_embedding(OldNode& old, const EmbeddingOperands& given) {
  const ValueId ids = old.required(0), segments = old.input(1);
  const auto rows = [&](size_t table, ValueId indices) {
    const ValueId found = old.emit("Gather", {given.tables[table], indices}, OldNode::with("axis", 0));
    return given.scales[table] == no_value ? found : dequantized(old, found, given.scales[table], given.zeros[table]);
  };
  const ValueId positions = given.positions != no_value ? given.positions : numbers_below(old, size_of(old, ids, 1));
  ValueId sum = rows(0, ids);
  sum = old.emit("Add", {sum, rows(1, positions)});
  if (segments != no_value && given.tables[2] != no_value) sum = old.emit("Add", {sum, rows(2, segments)});
  if (old.output(1) != no_value) {
    old.emit("ReduceSum", {given.mask != no_value ? given.mask : old.emit("Sub", {ids, ids}), old.ints({1})},
             OldNode::with("keepdims", 0), old.output(1));
    // A number per text: an Attention with this mask reports the rank.
    old.graph.value(old.output(1)).type.dims = Dims{Dim::symbol(old.graph.symbols.fresh("texts"))};
  }
  if (old.output(2) != no_value) old.emit("Identity", {sum}, {}, old.output(2));
  Attributes norm = OldNode::with("axis", -1);
  norm.set("epsilon", old.node.attributes.real("epsilon", 1e-12));
  old.become("LayerNormalization", {sum, given.gamma, given.beta}, norm);
}

/// EmbedLayerNormalization: ids, segments?, tables, gamma, beta, mask?, positions? -> the norm, the mask's number of tokens, the sum.
void convert_embedding(OldNode& old) {
  become_embedding(old, {.tables = {old.required(2), old.required(3), old.input(4)},
                         .gamma = old.required(5),
                         .beta = old.required(6),
                         .mask = old.input(7),
                         .positions = old.input(8)});
}

/// QEmbedLayerNormalization: the same with 8-bit integers; scales and zero points of tables, gamma and beta follow the mask.
void convert_quantized_embedding(OldNode& old) {
  become_embedding(old, {.tables = {old.required(2), old.required(3), old.input(4)},
                         .gamma = dequantized(old, old.required(5), old.required(11), old.required(16)),
                         .beta = dequantized(old, old.required(6), old.required(12), old.required(17)),
                         .mask = old.input(7),
                         .positions = no_value,
                         .scales = {old.required(8), old.required(9), old.input(10)},
                         .zeros = {old.required(13), old.required(14), old.input(15)}});
}

// ---- Positions ----

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

/// MRotaryEmbedding: x, positions [3, b, s] (time, height, width), cos and sin [rows, z] -> x rotated
/// by the rows of three positions, each for its columns (Wang et al. 2024, Qwen2-VL).
void convert_multi_rotary(OldNode& old) {
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
    const ValueId rows = old.emit("Gather", {old.required(1), scalar_int(old, stream)}, OldNode::with("axis", 0));
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

constexpr Conversion rows_of_attention[] = {
    {"com.microsoft.Attention", convert_attention},
    {"com.microsoft.EmbedLayerNormalization", convert_embedding},
    {"com.microsoft.GroupQueryAttention", convert_grouped_attention},
    {"com.microsoft.MRotaryEmbedding", convert_multi_rotary},
    {"com.microsoft.QAttention", convert_quantized_attention},
    {"com.microsoft.QEmbedLayerNormalization", convert_quantized_embedding},
};

}  // namespace

std::span<const Conversion> attention_conversions() { return rows_of_attention; }

}  // namespace plait::onnx_import
