// Ops of hybrid language models with a state from one run to the next: CausalConvWithState and LinearAttention, and
// their raised forms over ragged rows, whose segments have states in slots of the Store.
#include <algorithm>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/heads.h"
#include "core/ops/linear_heads.h"
#include "core/ops/base/rows.h"

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

std::string slot_attention_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const auto last = linear_head_dims(node.attributes, in, 1, 6);
  if (!last) return "";
  std::vector<std::string> operands{"[u] " + last->state};
  for (const std::string& dims : {last->query, last->key, last->value}) operands.push_back("[b] [t] " + dims);
  operands.insert(operands.end(), {"[b] [t]", "[n] 2"});
  for (const std::string& dims : {last->decay, last->beta})
    if (operands.size() < in.size()) operands.push_back(dims.empty() ? "" : "[b] [t] " + dims);
  return rule_text(operands, {operands[0], "[b] [t] " + last->result});
}

/// Rows of tokens of several segments: `segments` is each token's segment (-1: none), and a segment's tokens are
/// contiguous and in order. Segment i starts with the state in slot slots[i][0] (-1: zeros) and writes its state to
/// slot slots[i][1] (-1: nowhere). A segment's results do not depend on other segments, nor on how its tokens are
/// split into runs.
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
           .doc = "LinearAttention of each segment's tokens after its state (Yang et al. 2024)"});
}

}  // namespace

LinearHeads linear_heads(const Attributes& attributes) {
  LinearHeads out{attributes.integer("q_num_heads"), attributes.integer("kv_num_heads")};
  if (out.query < 1 || out.key < 1 || (out.query % out.key && out.key % out.query))
    InferContext::fail(cat(out.query, " query heads for ", out.key, " states"));
  return out;
}

std::optional<LinearHeadDims> linear_head_dims(const Attributes& attributes, const std::vector<Type>& in,
                                               size_t first, size_t fades) {
  const LinearHeads heads = linear_heads(attributes);
  for (size_t k = first; k < first + 3; ++k)
    if (rank_of(in[k]) != 3) return std::nullopt;
  const auto d = head_size(in[first], heads.query), e = head_size(in[first + 2], heads.key);
  if (!d || !e) return std::nullopt;
  auto is_there = [&](size_t k) { return k < in.size() && in[k].dims && !in[k].dims->empty(); };
  auto last_is = [&](size_t k, int64_t size) { return is_there(k) && in[k].dims->back() == Dim(size); };
  const bool more_queries = heads.query >= heads.key;
  const std::string_view states = more_queries ? "g" : "g r", queries = more_queries ? "g r" : "g";
  const bool own_keys = last_is(first + 1, heads.key * *d);
  if (!own_keys && (more_queries || !last_is(first + 1, heads.query * *d))) return std::nullopt;
  const std::string of_state = more_queries ? "g" : "(g r)";
  auto sized = [](std::string_view count, int64_t size) { return cat("(", count, " ", size, ")"); };
  LinearHeadDims out{cat(of_state, " ", *d, " ", *e),
                     sized(queries, *d),
                     sized(own_keys ? states : "g", *d),
                     sized(states, *e),
                     {},
                     {},
                     sized("g r", *e)};
  if (is_there(fades)) out.decay = last_is(fades, heads.key) ? of_state : sized(states, *d);
  if (is_there(fades + 1)) out.beta = last_is(fades + 1, 1) ? "1" : of_state;
  return out;
}

void register_recurrent(OpSet& ops) {
  register_slots(ops);
  ops.add({.name = "CausalConvWithState",
           .inputs = "input weight bias? past_state?",
           .outputs = "output present_state?",
           .attributes = {{"activation", "string", "none"}},
           .dims = "b c [n], c 1 [k], c, b c [p] -> b c [n], b c [p]",
           .ranks = "3, 3, 1, 3",
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
           .ranks = "3, 3, 3, 4, 3, 3",
           .infer = infer_linear_attention,
           .doc = "a state of keys and values that each token adds to, fading or corrected (Yang et al. 2024)",
           .since = 27});
}

}  // namespace plait
