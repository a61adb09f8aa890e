// plait.PackedAttention: attention in training, over rows that several documents share.
#include "core/graph/gradient.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

const std::vector<AttributeRow> attributes{
    {"scale", "float", "required"}, {"window", "int", "0"}, {"softcap", "float", "0"}, {"round_x", "int", "0"}};

/// y [b, t, h, e], statistics [b, t, h] in f64 if q is, otherwise in f32.
void infer_packed_attention(InferContext& context) {
  context.set_type(0, context.dtype(0));
  context.set_type(1, context.dtype(0) == DType::f64 ? DType::f64 : DType::f32);
}

/// The operand whose gradient each result is: q, k, v, sinks.
constexpr int operand_of_gradient[] = {1, 2, 3, 7};

void infer_packed_attention_back(InferContext& context) {
  for (int k = 0; k < context.outputs(); ++k) {
    if (!context.wants(k)) continue;
    context.set_type(k, context.dtype(operand_of_gradient[k]));
    if (const Dims* dims = context.dims(operand_of_gradient[k])) context.set_dims(k, *dims);
  }
}

void of_packed_attention(GradientContext& context) {
  if (context.gradient(1) != no_value) GradientContext::fail("the statistics have none");
  if (context.output(1) == no_value) GradientContext::fail("it needs the statistics, its second result");
  std::vector<ValueId> inputs{context.gradient(), context.input(0),  context.input(1),
                              context.input(2),   context.output(0), context.output(1)};
  inputs.insert(inputs.end(), context.node().inputs.begin() + 3, context.node().inputs.end());
  const std::vector<ValueId> back =
      context.add_all("plait.PackedAttentionBack", std::move(inputs),
                      {context.wants(0), context.wants(1), context.wants(2), context.wants(4)}, context.attributes());
  for (size_t k = 0; k < 3; ++k) context.give(k, back[k]);
  context.give(4, back[3]);
}

}  // namespace

// Tokens of one segment (-1: none) are contiguous in their row, so differences of indices are differences of
// positions. q [b, t, h, d], k [b, t, g, d], v [b, t, g, e], where h = g r query heads share g key heads; segments
// i32 [b, t]; sinks and slopes [h]. A token sees its segment's tokens up to itself, or the last `window` of them.
void register_packed_attention(OpSet& ops) {
  ops.add({.name = "plait.PackedAttention",
           .inputs = "q k v segments sinks? slopes!?",
           .outputs = "y statistics?",
           .attributes = attributes,
           .dims = "b [t] (g r) [d], b [t] g [d], b [t] g [e], b [t], (g r), (g r) -> b [t] (g r) [e], b [t] (g r)",
           .infer = infer_packed_attention,
           .gradient = of_packed_attention,
           .doc = "causal attention inside each segment of a row, and the logarithm of each sum of e^score"});
  // The gradients of keys and values are sums over the r query heads that share them.
  ops.add({.name = "plait.PackedAttentionBack",
           .inputs = "dy q k v y statistics segments sinks? slopes?",
           .outputs = "dq? dk? dv? dsinks?",
           .attributes = attributes,
           .dims =
               "*b [t] (g r) [e], b [t] (g r) [d], b [t] g [d], b [t] g [e], b [t] (g r) [e], b [t] (g r), b [t], "
               "(g r), (g r) -> b [t] (g r) [d], b [t] g [d] {all}, b [t] g [e] {all}, (g r) {all}",
           .infer = infer_packed_attention_back,
           .doc = "the gradients of plait.PackedAttention, its scores computed again (Dao 2023)"});
}

}  // namespace plait
