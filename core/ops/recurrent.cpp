// Ops of hybrid language models that carry a state from one run to the next: CausalConvWithState and LinearAttention, and
// what raise makes of them: the same over ragged rows, whose segments have their states in slots of the store.
#include <algorithm>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/heads.h"
#include "core/ops/rows.h"

namespace plait {

namespace {

/// x [b, c, n], w [c, 1, k] -> y [b, c, n], state [b, c, k - 1]
void infer_causal_conv(InferContext& context) {
  context.set_type(0, context.dtype(0));
  context.set_type(1, context.dtype(0));
  const Dims *x = context.dims(0), *w = context.dims(1);
  if (!x || !w) return;
  if (x->size() != 3 || w->size() != 3)
    InferContext::fail(cat("input has rank ", x->size(), " and weight rank ", w->size(), ", expected 3"));
  Dims state{(*x)[0], (*x)[1], (*w)[2] - Dim(1)};
  const Dims* past = context.dims(3);
  if (past && past->size() == 3 && (*past)[2].is_constant() && state[2].is_constant() && (*past)[2] != state[2])
    InferContext::fail(cat("past_state holds ", (*past)[2].constant(), " positions, expected ", state[2].constant()));
  context.set_dims(0, *x);
  context.set_dims(1, std::move(state));
}

/// `key` counts states, and so values. As com.microsoft has it, there may be fewer queries or keys than states, which then
/// share them.
struct LinearHeads {
  int64_t query = 0, key = 0;
};

LinearHeads linear_heads(const Attributes& attributes) {
  LinearHeads out{attributes.integer("q_num_heads"), attributes.integer("kv_num_heads")};
  if (out.query < 1 || out.key < 1 || (out.query % out.key && out.key % out.query))
    InferContext::fail(cat(out.query, " query heads for ", out.key, " states"));
  return out;
}

/// q [b, t, h d], k [b, t, g d], v [b, t, g e] -> y [b, t, h e] (g e where these are more), state [b, g, d, e]
void infer_linear_attention(InferContext& context) {
  context.set_type(0, context.dtype(0));
  context.set_type(1, context.has(3) ? context.dtype(3) : context.dtype(0));
  LinearHeads heads = linear_heads(context.attributes());
  const Dims *q = context.dims(0), *v = context.dims(2);
  if (!q || !v) return;
  if (q->size() != 3 || v->size() != 3)
    InferContext::fail(cat("query has rank ", q->size(), " and value rank ", v->size(), ", expected 3"));
  Heads query = split_heads(context, *q, heads.query, "query"), value = split_heads(context, *v, heads.key, "value");
  context.set_dims(0, {query.batch, query.length, Dim(std::max(heads.query, heads.key)) * value.size});
  context.set_dims(1, {query.batch, Dim(heads.key), query.size, value.size});
}

/// Batch and key heads are free; a state runs along the tokens.
std::string linear_attention_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  LinearHeads heads = linear_heads(node.attributes);
  auto d = head_size(in[0], heads.query), e = head_size(in[2], heads.key);
  if (!d || !e || rank_of(in[0]) != 3 || rank_of(in[2]) != 3) return "";
  if (heads.query % heads.key || in[1].dims->back() != Dim(heads.key * *d)) return "";
  std::vector<std::string> operands{cat("b [t] (g r ", *d, ")"), cat("b [t] (g ", *d, ")"),
                                    cat("b [t] (g ", *e, ")")};
  if (in.size() > 3) operands.push_back(cat("b g ", *d, " ", *e));
  auto last_is = [&](size_t k, int64_t size) {
    return in.size() > k && in[k].dims && !in[k].dims->empty() && in[k].dims->back() == Dim(size);
  };
  if (in.size() > 4) operands.push_back(last_is(4, heads.key) ? "b [t] g" : cat("b [t] (g ", *d, ")"));
  if (in.size() > 5) operands.push_back(last_is(5, 1) ? "b [t] 1" : "b [t] g");
  return rule_text(operands, {cat("b [t] (g r ", *e, ")"), cat("b g ", *d, " ", *e)});
}

/// Operands of the ragged forms that are not there leave the text out of the rule.
std::string if_there(const std::vector<Type>& in, size_t k, std::string text) {
  return k < in.size() && in[k].dims ? std::move(text) : std::string();
}

/// state [u, m, c], x [b, t, c] -> the same state, y like x.
void infer_slot_conv(InferContext& context) {
  for (int k = 0; k < 2; ++k) {
    context.set_type(k, context.dtype(k));
    if (const Dims* dims = context.dims(k)) context.set_dims(k, *dims);
  }
}

/// state [u, g, d, e], q [b, t, h d] -> the same state, y [b, t, h e] (g e where these are more).
void infer_slot_attention(InferContext& context) {
  context.set_type(0, context.dtype(0));
  context.set_type(1, context.dtype(1));
  const LinearHeads heads = linear_heads(context.attributes());
  const Dims *state = context.dims(0), *q = context.dims(1);
  if (state) context.set_dims(0, *state);
  if (!state || !q) return;
  if (state->size() != 4 || q->size() != 3)
    InferContext::fail(cat("state has rank ", state->size(), " and query rank ", q->size(), ", expected 4 and 3"));
  context.set_dims(1, {(*q)[0], (*q)[1], Dim(std::max(heads.query, heads.key)) * (*state)[3]});
}

/// Heads are free, and the state goes with them: where r queries share a state, r belongs to the queries; where r states
/// share a query, to the states.
std::string slot_attention_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const LinearHeads heads = linear_heads(node.attributes);
  auto d = head_size(in[1], heads.query), e = head_size(in[3], heads.key);
  if (!d || !e || rank_of(in[1]) != 3 || rank_of(in[2]) != 3 || rank_of(in[3]) != 3) return "";
  auto last_is = [&](size_t k, int64_t size) {
    return k < in.size() && in[k].dims && !in[k].dims->empty() && in[k].dims->back() == Dim(size);
  };
  const bool more_queries = heads.query >= heads.key;
  const std::string_view states = more_queries ? "g" : "g r", queries = more_queries ? "g r" : "g";
  if (!last_is(2, heads.key * *d) && (more_queries || !last_is(2, heads.query * *d))) return "";
  const std::string_view keys = last_is(2, heads.key * *d) ? states : "g";
  const std::string of_state = more_queries ? "g" : "(g r)";
  std::vector<std::string> operands{cat("[u] ", of_state, " ", *d, " ", *e),
                                    cat("[b] [t] (", queries, " ", *d, ")"),
                                    cat("[b] [t] (", keys, " ", *d, ")"),
                                    cat("[b] [t] (", states, " ", *e, ")"),
                                    "[b] [t]",
                                    "[n] 2"};
  const std::string decay =
      last_is(6, heads.key) ? cat("[b] [t] ", of_state) : cat("[b] [t] (", states, " ", *d, ")");
  if (in.size() > 6) operands.push_back(if_there(in, 6, decay));
  if (in.size() > 7) operands.push_back(if_there(in, 7, last_is(7, 1) ? "[b] [t] 1" : cat("[b] [t] ", of_state)));
  return rule_text(operands, {operands[0], cat("[b] [t] (g r ", *e, ")")});
}

/// Rows of tokens of several segments: `segments` says whose a token is (-1: nobody's), and a segment's tokens stand
/// together, in order. Segment i begins with the state in slot slots[i][0] (-1: zeros) and leaves its own in slot
/// slots[i][1] (-1: nowhere). What a segment gives is what its tokens alone give, however they are cut into runs.
void register_slots(OpSet& ops) {
  ops.add(
      {.name = "plait.CausalConv",
       .inputs = "state x w segments slots bias?",
       .outputs = "state y",
       .attributes = {{"activation", "string", "none"}},
       .dims = "[u] [m] c, [b] [t] c, [k] c, [b] [t], [n] 2, c -> [u] [m] c, [b] [t] c",
       .infer = infer_slot_conv,
       .updates = 1,
       .doc = "a kernel over this and the last positions of a segment's channels, the last of which are its state"});
  ops.add({.name = "plait.LinearAttention",
           .inputs = "state q k v segments slots decay? beta?",
           .outputs = "state y",
           .attributes = {{"kv_num_heads", "int", "required", "g r"},
                          {"q_num_heads", "int", "required", "g r"},
                          {"scale", "float", "0"},
                          {"update_rule", "string", "gated_delta"}},
           .dims = "[u] g [d] [e], [b] [t] (g r [d]), [b] [t] (g [d]), [b] [t] (g [e]), [b] [t], [n] 2 -> "
                   "[u] g [d] [e], [b] [t] (g r [e])",
           .dims_of = slot_attention_dims,
           .infer = infer_slot_attention,
           .updates = 1,
           .doc = "LinearAttention of each segment's tokens behind the state of its own (Yang et al. 2024)"});
}

}  // namespace

void register_recurrent(OpSet& ops) {
  register_slots(ops);
  ops.add({.name = "CausalConvWithState",
           .inputs = "input weight bias? past_state?",
           .outputs = "output present_state?",
           .attributes = {{"activation", "string", "none"}},
           .dims = "b c [n], c 1 [k], c, b c [p] -> b c [n], b c [p]",
           .infer = infer_causal_conv,
           .doc = "a kernel over this and the last positions of each channel, which are handed on",
           .since = 27});
  ops.add({.name = "LinearAttention",
           .inputs = "query key value past_state? decay? beta?",
           .outputs = "output present_state?",
           .attributes = {{"chunk_size", "int", "64"},
                          {"kv_num_heads", "int", "required", "g r"},
                          {"q_num_heads", "int", "required", "g r"},
                          {"scale", "float", "0"},
                          {"update_rule", "string", "gated_delta"}},
           .dims = "b [t] (g r [d]), b [t] (g [d]), b [t] (g [e]) -> b [t] (g r [e]), b g [d] [e]",
           .dims_of = linear_attention_dims,
           .infer = infer_linear_attention,
           .doc = "a state of keys and values that each token adds to, fading or corrected (Yang et al. 2024)",
           .since = 27});
}

}  // namespace plait
