// Attention of com.microsoft: RotaryEmbedding, GroupQueryAttention, MultiHeadAttention.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/heads.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"

namespace plait {

namespace {

/// Positions are [b, s], or one offset [1] for all, which the kernel adds to a token's index: s is whole then.
std::string microsoft_rotary_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  bool offset = rank_of(in[1]) < 2;
  std::string s = offset ? "[s]" : "s", positions = offset ? (in[1].dims->empty() ? "" : "1") : "b s";
  std::string x = cat("b g ", s, " [d]");
  if (rank_of(in[0]) == 3) {
    // The head size is twice the cache's width, unless only a part of the head is rotated, which needs num_heads.
    int64_t heads = node.attributes.integer("num_heads", 0);
    std::optional<int64_t> size = head_size(in[0], heads);
    if (!size && in[2].dims->back().is_constant()) size = 2 * in[2].dims->back().constant();
    if (!size || *size < 1) return "";
    x = cat("b ", s, " (g ", *size, ")");
  } else if (rank_of(in[0]) != 4) {
    return "";
  }
  return rule_text({"*" + x, positions, "[m] [z]", "[m] [z]"}, {x});
}

/// `num_heads` packed heads; without it heads of twice the cache's width.
void infer_microsoft_rotary(InferContext& context) {
  infer_same(context);
  const Dims *x = context.dims(0), *cos = context.dims(2);
  if (!x || x->size() == 4) return;
  if (const int64_t heads = context.attributes().integer("num_heads", 0); heads > 0) {
    split_heads(context, *x, heads, "input");
  } else if (cos && cos->back().is_constant() && x->back().is_constant()) {
    const int64_t size = 2 * cos->back().constant();
    if (size < 2 || x->back().constant() % size)
      InferContext::fail(cat("input's last dimension, ", x->back().constant(), ", does not divide by ", size,
                             ", twice the width of cos_cache"),
                         "set num_heads where only a part of each head turns");
  }
}

// ---- GroupQueryAttention ----

/// Query heads, key heads and the head's size; packed QKV holds (q + 2 kv) heads.
struct GroupedHeads {
  int64_t q, kv;
  Dim size;
};

GroupedHeads grouped_heads(InferContext& context, const Dims& query) {
  int64_t q = context.attributes().integer("num_heads"), kv = context.attributes().integer("kv_num_heads");
  if (q < 1 || kv < 1 || q % kv) InferContext::fail(cat(q, " query heads do not divide by ", kv, " key heads"));
  bool packed = !context.has(1);
  Heads heads = split_heads(context, query, packed ? q + 2 * kv : q, "query");
  return {q, kv, heads.size};
}

/// The caches' length: the past's for a window or a shared buffer, otherwise the total length.
Dim present_length(InferContext& context, const Dims& query) {
  const Dims* past = context.dims(3);
  const Dim* total = single(context.contents(6));
  if (!past) return total ? *total : query[1];
  if (past->size() != 4) InferContext::fail("past_key has not rank 4");
  if (context.attributes().integer("sliding_window_cache", 0)) return (*past)[2];
  if ((*past)[2] == Dim(0)) return total ? *total : query[1];
  std::optional<Dim> longest = total ? known_max((*past)[2], *total) : std::nullopt;
  return longest ? *longest : context.unknown("total");
}

void infer_grouped(InferContext& context) {
  context.set_type(0, context.dtype(0));
  context.set_type(1, context.has(3) ? context.dtype(3) : context.dtype(0));
  context.set_type(2, context.has(4) ? context.dtype(4) : context.dtype(0));
  context.set_type(3, context.dtype(0));
  const Dims* query = context.dims(0);
  if (!query) return;
  if (query->size() != 3) InferContext::fail(cat("query has rank ", query->size(), ", expected 3"));
  GroupedHeads heads = grouped_heads(context, *query);
  context.set_dims(0, {(*query)[0], (*query)[1], Dim(heads.q) * heads.size});
  Dims present{(*query)[0], Dim(heads.kv), present_length(context, *query), heads.size};
  context.set_dims(3, {(*query)[0], Dim(heads.q), (*query)[1], present[2]});
  context.set_dims(1, present);
  context.set_dims(2, std::move(present));
}

/// b, g and r are free. Packed QKV is sharded only by b: its heads are not one dim. Scales of the cache are whole.
std::string grouped_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  bool packed = node.inputs[1] == no_value;
  std::optional<int64_t> size = head_size(in[0], node.attributes.integer("num_heads", 0));
  if (!packed && !size) return "";
  std::string g = packed ? "[g]" : "g", all = packed ? "[g] [r]" : "g r", d = packed ? "[d]" : cat(*size);
  auto heads = [&](const std::string& groups) { return cat("b [s] (", groups, " ", d, ")"); };
  std::string query = packed ? "b [s] [h]" : heads(all), key = packed ? "" : heads(g);
  std::string past = cat("b ", g, " [p] ", d), present = cat("b ", g, " [t] ", d);
  bool biased = in.size() > 10 && in[10].dims;
  std::string bias = biased ? aligned({"b", cat("(", all, ")"), "[s]", "[w]"}, *in[10].dims) : "";
  std::vector<std::string> operands{query,     key,       key,     past, past, rank_of(in[5]) == 2 ? "b 1" : "b", "",
                                    "[m] [z]", "[m] [z]", "b [s]", bias, cat("(", all, ")")};
  for (size_t k = operands.size(); k < in.size(); ++k)
    operands.push_back(is_absent(in, k) ? "" : spaced(all_whole(dim_names(rank_of(in[k]), 26 * k))));
  return rule_text(operands, {heads(all), present, present, cat("b (", all, ") [s] [t]")});
}

// ---- MultiHeadAttention ----

/// One operand of any of the op's layouts: [b, s, heads * size], [b, heads, s, size], or `parts` of them together in
/// [b, s, heads, parts, size].
Heads any_heads(InferContext& context, const Dims& dims, int64_t heads, int64_t parts, const char* what) {
  if (dims.size() != 5) return split_heads(context, dims, heads, what);
  if ((dims[2].is_constant() && dims[2].constant() != heads) || dims[3] != Dim(parts))
    InferContext::fail(cat(what, " has rank 5, expected [b, s, ", heads, ", ", parts, ", size]"));
  return {dims[0], Dim(heads), dims[1], dims[4]};
}

void infer_multi_head(InferContext& context) {
  for (int k = 0; k < context.outputs(); ++k) context.set_type(k, context.dtype(0));
  const Dims *query = context.dims(0), *key = context.dims(1), *value = context.dims(2);
  if (!query || (context.has(1) && !key) || (context.has(2) && !value)) return;
  int64_t heads = context.attributes().integer("num_heads");
  if (query->size() != (key ? 3u : 5u))
    InferContext::fail(cat("query has rank ", query->size(), ", expected 3, or 5 where key and value are in it"));
  if (key && (key->size() == 5) == (value != nullptr))
    InferContext::fail("value is expected unless it is part of a key of rank 5");
  Heads q = any_heads(context, *query, heads, 3, "query");
  Heads k = key ? any_heads(context, *key, heads, 2, "key") : q;
  Heads v = value ? any_heads(context, *value, heads, 0, "value") : k;
  Dim total = k.length;
  if (context.has(6)) {
    const Dims* past = context.dims(6);
    total = past && past->size() == 4 ? total + (*past)[2] : context.unknown("total");
  }
  context.set_dims(0, {q.batch, q.length, Dim(heads) * v.size});
  context.set_dims(1, {q.batch, Dim(heads), total, k.size});
  context.set_dims(2, {q.batch, Dim(heads), total, v.size});
  context.set_dims(3, {q.batch, Dim(heads), q.length, total});
}

}  // namespace

void register_microsoft_attention(OpSet& ops) {
  ops.add({.name = "com.microsoft.RotaryEmbedding", .inputs = "input position_ids cos_cache sin_cache",
           .outputs = "output",
           .attributes = {{"interleaved", "int", "0"}, {"is_packed_batching", "int", "0"}, {"num_heads", "int", "0", "g"},
                          {"rotary_embedding_dim", "int", "0"}, {"scale", "float", "1"}},
           .dims = "*b g s [d], b s, [m] [z], [m] [z] -> b g s [d]", .dims_of = microsoft_rotary_dims, .ranks = "3-4, 0-2, 2, 2",
           .infer = infer_microsoft_rotary,
           .doc = "pairs rotated by the angle of their position", .since = 1});
  ops.add({.name = "com.microsoft.GroupQueryAttention",
           .inputs = "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? "
                     "position_ids? attention_bias? head_sink? k_scale? v_scale?",
           .outputs = "output present_key? present_value? output_qk?",
           .attributes = {{"causal", "int", "1"},
                          {"do_rotary", "int", "0"},
                          {"k_quant_type", "string", "NONE"},
                          {"kv_cache_bit_width", "int", ""},
                          {"kv_num_heads", "int", "required", "g"},
                          {"local_window_size", "int", "-1"},
                          {"num_heads", "int", "required", "g r"},
                          {"qk_output", "int", "0"},
                          {"rotary_interleaved", "int", "0"},
                          {"scale", "float", ""},
                          {"sliding_window_cache", "int", "0"},
                          {"smooth_softmax", "int", "0"},
                          {"softcap", "float", "0"},
                          {"v_quant_type", "string", "NONE"}},
           .dims =
               "b [s] (g r 64), b [s] (g 64), b [s] (g 64), b g [p] 64, b g [p] 64, b, -> b [s] (g r 64), b g [t] "
               "64, b g [t] 64",
           .dims_of = grouped_dims,
           .ranks = "3, 3, 3, 4, 4, 0-2, 0-2, 2, 2, 1-2, 4, 1",
           .infer = infer_grouped,
           .doc = "causal attention with grouped heads and a cache, rotating on request",
           .since = 1});
  // No rule: current exporters write Attention or GroupQueryAttention.
  ops.add({.name = "com.microsoft.MultiHeadAttention",
           .inputs = "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? "
                     "past_sequence_length? cache_indirection?",
           .outputs = "output present_key? present_value? qk?",
           .attributes = {{"mask_filter_value", "float", "-10000"}, {"num_heads", "int", "required"},
                          {"scale", "float", ""}, {"unidirectional", "int", "0"}},
           .ranks = "3-5, 3-5, 3-5, 1, 1-3, 1-4, 4, 4", .infer = infer_multi_head, .doc = "attention of packed heads", .since = 1});
}

}  // namespace plait
