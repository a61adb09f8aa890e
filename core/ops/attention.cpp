// ONNX's Attention (opset 23 to 25) and RotaryEmbedding.
#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "core/ops/families.h"
#include "core/ops/heads.h"
#include "core/ops/base/rows.h"

namespace plait {

Heads split_heads(InferContext& context, const Dims& dims, int64_t heads, const char* what) {
  if (dims.size() == 4) return {dims[0], dims[1], dims[2], dims[3]};
  if (dims.size() != 3) InferContext::fail(cat(what, " has rank ", dims.size(), ", expected 3 or 4"));
  if (heads < 1) InferContext::fail(cat(what, " has rank 3, which needs the number of heads as an attribute"));
  std::optional<Dim> size = dims[2].divided(Dim(heads));
  if (!size && dims[2].is_constant())
    InferContext::fail(
        cat(what, "'s last dimension, ", dims[2].constant(), ", does not divide by ", heads, " heads"));
  return {dims[0], Dim(heads), dims[1], size ? *size : context.unknown("head")};
}

std::optional<int64_t> head_size(const Type& type, int64_t heads) {
  if (!type.dims || type.dims->empty()) return std::nullopt;
  const Dim& last = type.dims->back();
  if (type.dims->size() == 4 && last.is_constant()) return last.constant();
  if (type.dims->size() != 3 || heads < 1 || !last.is_constant() || last.constant() % heads) return std::nullopt;
  return last.constant() / heads;
}

namespace {

void infer_attention(InferContext& context) {
  context.set_type(0, context.dtype(0));
  context.set_type(1, context.dtype(1));
  context.set_type(2, context.dtype(2));
  context.set_type(3, context.dtype(0));
  const Dims *q_dims = context.dims(0), *k_dims = context.dims(1), *v_dims = context.dims(2);
  if (!q_dims || !k_dims || !v_dims) return;
  if (q_dims->size() != k_dims->size() || q_dims->size() != v_dims->size())
    InferContext::fail(cat("Q, K and V have ranks ", q_dims->size(), ", ", k_dims->size(), " and ", v_dims->size(),
                           ", expected one rank"),
                       "pack the heads of all three, or of none");
  for (const char* side : {"left_window_size", "right_window_size"})
    if (const int64_t size = context.attributes().integer(side, -1); size < -1)
      InferContext::fail(cat("attribute \"", side, "\" is ", size, ", expected -1 or more"));
  if (context.has(4) != context.has(5))
    InferContext::fail(cat("past_", context.has(4) ? "key" : "value", " is given without past_", context.has(4) ? "value" : "key"),
                       "give both, or none");
  int64_t q_heads = context.attributes().integer("q_num_heads", 0);
  int64_t kv_heads = context.attributes().integer("kv_num_heads", 0);
  Heads q = split_heads(context, *q_dims, q_heads, "Q"), k = split_heads(context, *k_dims, kv_heads, "K");
  Heads v = split_heads(context, *v_dims, kv_heads, "V");
  if (q.heads.is_constant() && k.heads.is_constant() && !q.heads.divided(k.heads))
    InferContext::fail(cat(q.heads.constant(), " query heads do not divide by ", k.heads.constant(), " key heads"));
  Dim total = k.length;
  if (context.has(4)) {
    const Dims* past = context.dims(4);
    if (past && past->size() != 4) InferContext::fail("past_key has not rank 4");
    total = past ? total + (*past)[2] : context.unknown("total");
  }
  if (q_dims->size() == 4) context.set_dims(0, {q.batch, q.heads, q.length, v.size});
  else context.set_dims(0, {q.batch, q.length, q.heads * v.size});
  context.set_dims(1, {q.batch, k.heads, total, k.size});
  context.set_dims(2, {q.batch, k.heads, total, v.size});
  context.set_dims(3, {q.batch, q.heads, q.length, total});
}

/// Heads are g groups of r; b, g and r are free, and q too unless the kernel needs the queries' positions.
std::string attention_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  const bool windowed = node.attributes.integer("left_window_size", -1) >= 0 ||
                        node.attributes.integer("right_window_size", -1) >= 0;
  bool causal = windowed || node.attributes.integer("is_causal", 0) != 0, flat = rank_of(in[0]) == 3;
  std::string q = causal ? "[q]" : "q", d = "[d]", e = "[e]";
  if (flat) {
    auto size = head_size(in[1], node.attributes.integer("kv_num_heads", 0));
    auto value_size = head_size(in[2], node.attributes.integer("kv_num_heads", 0));
    if (!size || !value_size || rank_of(in[1]) != 3 || rank_of(in[2]) != 3) return "";
    d = cat(*size), e = cat(*value_size);
  } else if (rank_of(in[1]) != 4 || rank_of(in[2]) != 4) {
    return "";
  }
  // The result is linear in V; cache outputs are not.
  std::string star = out.size() == 1 ? "*" : "";
  auto heads = [&](const std::string& length, const std::string& groups, const std::string& size) {
    return flat ? cat("b ", length, " (", groups, " ", size, ")")
                : cat("b ", groups.size() > 1 ? cat("(", groups, ")") : groups, " ", length, " ", size);
  };
  std::vector<std::string> operands{heads(q, "g r", d), heads("[k]", "g", d), star + heads("[k]", "g", e)};
  if (in.size() > 3) operands.push_back(in[3].dims ? aligned({"b", "(g r)", q, "[m]"}, *in[3].dims) : "");
  if (in.size() > 4) operands.push_back(cat("b g [p] ", d));
  if (in.size() > 5) operands.push_back(cat("b g [p] ", e));
  if (in.size() > 6) operands.push_back("b");
  return rule_text(operands,
                   {heads(q, "g r", e), cat("b g [t] ", d), cat("b g [t] ", e), cat("b (g r) ", q, " [t]")});
}

void infer_rotary(InferContext& context) {
  infer_same(context);
  if (const Dims* x = context.dims(0)) split_heads(context, *x, context.attributes().integer("num_heads", 0), "x");
}

std::string rotary_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  std::string x = "b g s [d]";
  if (rank_of(in[0]) == 3) {
    auto size = head_size(in[0], node.attributes.integer("num_heads", 0));
    if (!size) return "";
    x = cat("b s (g ", *size, ")");
  } else if (rank_of(in[0]) != 4) {
    return "";
  }
  bool by_position = in.size() > 3 && in[3].dims;
  std::string cache = by_position ? "[m] [z]" : "b s [z]";
  return rule_text({"*" + x, cache, cache, "b s"}, {x});
}

}  // namespace

void register_attention(OpSet& ops) {
  ops.add({.name = "Attention",
           .inputs = "q k v attn_mask? past_key? past_value? nonpad_kv_seqlen?",
           .outputs = "y present_key? present_value? qk_matmul_output?",
           .attributes = {{"is_causal", "int", "0"}, {"kv_num_heads", "int", "", "g"}, {"q_num_heads", "int", "", "g r"},
                          {"left_window_size", "int", "-1"}, {"qk_matmul_output_mode", "int", "0"},
                          {"right_window_size", "int", "-1"}, {"scale", "float", ""}, {"softcap", "float", "0"},
                          {"softmax_precision", "int", ""}},
           .dims = "b (g r) q [d], b g [k] [d], *b g [k] [e], b 1 q [k] -> b (g r) q [e]",
           .dims_of = attention_dims, .ranks = "3-4, 3-4, 3-4, 0-4, 4, 4, 1", .infer = infer_attention,
           .doc = "softmax(scale q k + mask) v, by heads, with or without a cache", .since = 25});
  ops.add(
      {.name = "RotaryEmbedding",
       .inputs = "x cos_cache! sin_cache! position_ids?",
       .outputs = "y",
       .attributes = {{"interleaved", "int", "0"}, {"num_heads", "int", "0", "g"}, {"rotary_embedding_dim", "int", "0"}},
       .dims = "*b g s [d], [m] [z], [m] [z], b s -> b g s [d]",
       .dims_of = rotary_dims,
       .ranks = "3-4, 2-3, 2-3, 2",
       .infer = infer_rotary,
       .doc = "pairs rotated by the angle of their position (Su et al. 2021)",
       .since = 23});
}

}  // namespace plait
