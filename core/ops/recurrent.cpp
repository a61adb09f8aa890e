// Ops with a state that is carried from token to token.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/rows.h"
#include "core/ops/shape_arithmetic.h"

namespace plait {

namespace {

/// Heads of queries and of states. Fewer query heads than states share a query, fewer keys share a key.
struct LinearHeads {
  int64_t q, kv;
};

LinearHeads linear_heads(const Attributes& attributes) {
  return {attributes.integer("q_num_heads", 0), attributes.integer("kv_num_heads", 0)};
}

void infer_linear_attention(InferContext& context) {
  const auto [q, kv] = linear_heads(context.attributes());
  if (q < 1 || kv < 1 || (q % kv && kv % q))
    InferContext::fail(cat(q, " query heads do not divide by ", kv, " heads"));
  const std::string rule = context.attributes().string("update_rule", "gated_delta");
  if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta")
    InferContext::fail(cat("attribute update_rule is ", quote(rule)),
                       "linear, gated, delta or gated_delta is expected");
  if (rule.starts_with("gated") && !context.has(4)) InferContext::fail(cat("rule ", rule, " needs input decay"));
  if (rule.ends_with("delta") && !context.has(5)) InferContext::fail(cat("rule ", rule, " needs input beta"));
  context.set_type(0, context.dtype(0));
  context.set_type(1, context.has(3) ? context.dtype(3) : context.dtype(0));
  const Dims *query = context.dims(0), *key = context.dims(1), *value = context.dims(2);
  if (!query || !key || !value) return;
  for (const Dims* dims : {query, key, value})
    if (dims->size() != 3) InferContext::fail(cat("query, key and value have rank 3, not ", dims->size()));
  auto part = [&](const Dim& whole, int64_t heads) {
    if (whole.is_constant() && whole.constant() % heads)
      InferContext::fail(cat("a size of ", whole.constant(), " does not divide by ", heads, " heads"));
    std::optional<Dim> size = known_floor(whole, Dim(heads));
    return size ? *size : context.unknown("head");
  };
  Dim d = part((*query)[2], q), e = part((*value)[2], kv);
  if (d.is_constant() && (*key)[2].is_constant() &&
      (d.constant() < 1 || (*key)[2].constant() % d.constant() ||
       kv % std::max<int64_t>((*key)[2].constant() / d.constant(), 1)))
    InferContext::fail(cat("keys of size ", (*key)[2].constant(), " are no heads of ", d.constant()));
  context.set_dims(0, {(*query)[0], (*query)[1], Dim(std::max(q, kv)) * e});
  context.set_dims(1, {(*query)[0], Dim(kv), d, e});
}

/// Heads and values are free: each head has a state of its own, and each column of it obeys the same recurrence.
std::string linear_attention_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const auto [q, kv] = linear_heads(node.attributes);
  if (q < 1 || kv < 1 || q % kv || !in[0].dims->back().is_constant() || !in[1].dims->back().is_constant()) return "";
  const int64_t d = in[0].dims->back().constant() / q;
  if (in[1].dims->back() != Dim(kv * d)) return "";
  std::string query = cat("b [s] (g ", q / kv, " ", d, ")"), key = cat("b [s] (g ", d, ")");
  std::vector<std::string> operands{query, key, "+b [s] (g e)"};
  auto gate = [&](size_t index, bool may_be_one) {
    if (operands.size() < index) operands.resize(index);
    if (in.size() <= index || !in[index].dims || in[index].dims->size() != 3) return operands.push_back("");
    const Dim& last = in[index].dims->back();
    operands.push_back(last == Dim(kv) ? "b [s] g" : may_be_one && is_one(last) ? "b [s] 1" : key);
  };
  if (in.size() > 3) operands.push_back(in[3].dims ? cat("+b g ", d, " e") : "");
  if (in.size() > 4) gate(4, false);
  if (in.size() > 5) gate(5, true);
  return rule_text(operands, {cat("b [s] (g ", q / kv, " e)"), cat("b g ", d, " e")});
}

}  // namespace

void register_recurrent(OpSet& ops) {
  ops.add({.name = "LinearAttention",
           .inputs = "query key value past_state? decay? beta?",
           .outputs = "output present_state",
           .attributes = {{"chunk_size", "int", "64"},
                          {"kv_num_heads", "int", "required"},
                          {"q_num_heads", "int", "required"},
                          {"scale", "float", "0"},
                          {"update_rule", "string", "gated_delta"}},
           .dims = "b [s] (g r d), b [s] (g d), +b [s] (g e), +b g d e, b [s] g, b [s] g -> b [s] (g r e), b g d e",
           .dims_of = linear_attention_dims,
           .infer = infer_linear_attention,
           .doc = "attention without a softmax: a state d x e a head that decays and takes up each key and value",
           .since = 27});
}

}  // namespace plait
