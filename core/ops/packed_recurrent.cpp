// plait.PackedConv and plait.PackedLinearAttention: recurrences in training, over rows that several documents share.
// Each document begins with zero states, and its last state is dropped.
#include <algorithm>

#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/ops/families.h"
#include "core/ops/heads.h"
#include "core/ops/linear_heads.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

const std::vector<AttributeRow> conv_attributes{{"activation", "string", "none"}},
    attention_attributes{{"kv_num_heads", "int", "required", "g r"},
                         {"q_num_heads", "int", "required", "g r"},
                         {"scale", "float", "0"},
                         {"update_rule", "string", "gated_delta"}};

void of_packed_conv(GradientContext& context) {
  std::vector<ValueId> inputs{context.gradient()};
  inputs.insert(inputs.end(), context.node().inputs.begin(), context.node().inputs.end());
  const std::vector<ValueId> back =
      context.add_all("plait.PackedConvBack", std::move(inputs),
                      {context.wants(0), context.wants(1), context.wants(3)}, context.attributes());
  context.give(0, back[0]);
  context.give(1, back[1]);
  context.give(3, back[2]);
}

/// q [b, t, h d], v [b, t, g e] -> y [b, t, h e] (g e where these are more).
void infer_packed_linear_attention(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const LinearHeads heads = linear_heads(context.attributes());
  const Dims *q = context.dims(0), *v = context.dims(2);
  if (!q || !v) return;
  if (q->size() != 3 || v->size() != 3)
    InferContext::fail(cat("query has rank ", q->size(), " and value rank ", v->size(), ", expected 3"));
  const Heads value = split_heads(context, *v, heads.key, "value");
  context.set_dims(0, {(*q)[0], (*q)[1], Dim(std::max(heads.query, heads.key)) * value.size});
}

/// For q, k, v, segments, optional decay and beta, from operand `first` on.
std::vector<std::string> packed_operands(const LinearHeadDims& last, const std::vector<Type>& in, size_t first) {
  std::vector<std::string> out;
  for (const std::string& dims : {last.query, last.key, last.value}) out.push_back("b [t] " + dims);
  out.push_back("b [t]");
  for (const std::string& dims : {last.decay, last.beta})
    if (first + out.size() < in.size()) out.push_back(dims.empty() ? "" : "b [t] " + dims);
  return out;
}

std::string packed_attention_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const auto last = linear_head_dims(node.attributes, in, 0, 4);
  if (!last) return "";
  std::vector<std::string> operands = packed_operands(*last, in, 0);
  for (size_t k : {0, 2}) operands[k].insert(0, "*");
  return rule_text(operands, {"b [t] " + last->result});
}

std::string packed_attention_back_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  const auto last = linear_head_dims(node.attributes, in, 1, 5);
  if (!last) return "";
  std::vector<std::string> operands = packed_operands(*last, in, 1), results;
  for (const std::string& dims : {last->query, last->key, last->value, last->decay, last->beta}) {
    if (results.size() == out.size()) break;
    const bool is_shared = dims.find("g r") == std::string::npos;  // a sum over the heads that share it
    results.push_back(out[results.size()].dtype == DType::none ? "" : cat("b [t] ", dims, is_shared ? " {all}" : ""));
  }
  operands.insert(operands.begin(), "*b [t] " + last->result);
  return rule_text(operands, results);
}

void of_packed_linear_attention(GradientContext& context) {
  std::vector<ValueId> inputs{context.gradient()};
  inputs.insert(inputs.end(), context.node().inputs.begin(), context.node().inputs.end());
  constexpr size_t operands[] = {0, 1, 2, 4, 5};
  std::vector<bool> wanted;
  for (const size_t k : operands) wanted.push_back(context.wants(k));
  const std::vector<ValueId> back =
      context.add_all("plait.PackedLinearAttentionBack", std::move(inputs), std::move(wanted), context.attributes());
  for (size_t i = 0; i < back.size(); ++i) context.give(operands[i], back[i]);
}

}  // namespace

// Tokens of one segment (-1: none) are contiguous in their row; segments i32 [b, t]. x [b, t, c], w [k, c], bias [c];
// q, k, v, decay and beta as in plait.LinearAttention.
void register_packed_recurrent(OpSet& ops) {
  ops.add({.name = "plait.PackedConv",
           .inputs = "x w segments bias?",
           .outputs = "y",
           .attributes = conv_attributes,
           .dims = "b [t] c, [k] c, b [t], c -> b [t] c",
           .infer = infer_same,
           .gradient = of_packed_conv,
           .doc = "plait.CausalConv inside each segment of a row, behind zeros"});
  ops.add({.name = "plait.PackedConvBack",
           .inputs = "dy x w segments bias?",
           .outputs = "dx? dw? dbias?",
           .attributes = conv_attributes,
           .dims = "*b [t] c, b [t] c, [k] c, b [t], c -> b [t] c, [k] c {all}, c {all}",
           .infer = infer_gradients<1, 2, 4>,
           .doc = "the gradients of plait.PackedConv"});
  ops.add({.name = "plait.PackedLinearAttention",
           .inputs = "q k v segments decay? beta?",
           .outputs = "y",
           .attributes = attention_attributes,
           .dims = "*b [t] (g r [d]), b [t] (g [d]), *b [t] (g [e]), b [t] -> b [t] (g r [e])",
           .dims_of = packed_attention_dims,
           .infer = infer_packed_linear_attention,
           .gradient = of_packed_linear_attention,
           .doc = "plait.LinearAttention inside each segment of a row, starting with a state of zeros"});
  ops.add(
      {.name = "plait.PackedLinearAttentionBack",
       .inputs = "dy q k v segments decay? beta?",
       .outputs = "dq? dk? dv? ddecay? dbeta?",
       .attributes = attention_attributes,
       .dims = "*b [t] (g r [e]), b [t] (g r [d]), b [t] (g [d]), b [t] (g [e]), b [t] -> "
               "b [t] (g r [d]), b [t] (g [d]) {all}, b [t] (g [e]) {all}",
       .dims_of = packed_attention_back_dims,
       .infer = infer_gradients<1, 2, 3, 5, 6>,
       .doc = "the gradients of plait.PackedLinearAttention, its states computed again from some that were kept"});
}

}  // namespace plait
