// Ops that only training has: what gradients of Plait's own ops are made of, and the optimizers' steps. Nothing is trained
// through them, so they have no gradients of their own.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/rows.h"

namespace plait {

namespace {

bool is_absent(const std::vector<Type>& in, size_t k) { return k >= in.size() || !in[k].dims; }

/// A weight that is quantised in blocks is [n, c, l], and k is all of its blocks' elements.
std::string linear_back_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  if (!in[1].dims || in[1].dims->size() != 3) return "*... n, *n k -> ... k";
  std::vector<std::string> operands{"*... n", "n c l", "*n c", is_absent(in, 3) ? "" : "n c"};
  operands.resize(in.size());
  return rule_text(operands, {"... (c l)"});
}

/// The operand that holds the result's sizes.
void infer_sized(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (const Dims* sizes = context.contents(2)) context.set_dims(0, *sizes);
}

}  // namespace

void register_training(OpSet& ops) {
  ops.add({.name = "plait.LinearBack",
           .inputs = "dy w scales? zeros?",
           .outputs = "dx",
           .attributes = {{"round_x", "int", "0"}, {"zero", "int", "0"}},
           .dims = "*... n, *n k -> ... k",
           .dims_of = linear_back_dims,
           .doc = "dy w: the gradient of a Linear's x; w as Linear has it"});
  ops.add({.name = "plait.LinearWeight",
           .inputs = "dy x",
           .outputs = "dw",
           .attributes = {{"round_x", "int", "0"}},
           .dims = "*... n, *... k -> n k",
           .doc = "dy^T x over all rows: the gradient of a Linear's w"});
  ops.add({.name = "plait.EmbeddingBack",
           .inputs = "dy ids sizes",
           .outputs = "dtable",
           .attributes = {{"offset", "int", "0"}, {"whole", "int", "0"}},
           .dims = "*... h, ..., [n] -> @v h",
           .target = 2,
           .infer = infer_sized,
           .doc = "rows of dy added up by id, in a table of these sizes"});
  ops.add({.name = "plait.RowsBack",
           .inputs = "dy rows sizes",
           .outputs = "dx",
           .dims = "*b n ..., b n, [d] -> b [s] ...",
           .target = 2,
           .infer = infer_sized,
           .doc = "rows of dy added up where GatherRows took them from"});
}

}  // namespace plait
