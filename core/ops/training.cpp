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

/// A head of a quantised weight is [v, b, l]; its rows are what chunks are made of.
std::string head_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  const bool back = out.size() == 2;
  const bool blocked = in[1].dims && in[1].dims->size() == 3;
  const char* of_row = blocked ? "[j] [l]" : "[h]";
  const char* x = blocked ? "... ([j] [l])" : "... [h]";
  std::vector<std::string> operands{x, cat("(@c [w]) ", of_row), "..."};
  if (back) operands.insert(operands.end(), {"...", "*..."});
  while (operands.size() < in.size()) operands.push_back(is_absent(in, operands.size()) ? "" : "(c [w]) [j]");
  if (back) return rule_text(operands, {x, blocked ? "" : "(@c [w]) [h]"});
  return rule_text(operands, {"... c", "... c", "..."});
}

void infer_head(InferContext& context) {
  const Dims* labels = context.dims(2);
  for (int k = 0; k < 3; ++k) {
    context.set_type(k, context.dtype(0));
    if (!labels) continue;
    Dims dims = *labels;
    if (k < 2) dims.push_back(Dim(context.attributes().integer("chunks", 1)));
    context.set_dims(k, std::move(dims));
  }
}

void infer_head_back(InferContext& context) {
  for (int k = 0; k < 2; ++k) {
    context.set_type(k, context.dtype(0));
    if (const Dims* dims = context.dims(k)) context.set_dims(k, *dims);
  }
}

// A head and the softmax cross-entropy behind it, without the logits of all rows at once: logits are
// cap tanh(scale x w^T / cap), or scale x w^T. What a chunk of the vocabulary knows of a row is its largest logit and the sum
// of exponentials below that; from all chunks' comes the row's log-sum-exp, with which the gradient is made chunk by chunk
// (online softmax, Milakov and Gimelshein 2018; Wijmans et al., "Cut your losses", 2024).
void register_heads(OpSet& ops) {
  const std::vector<AttributeRow> attributes = {
      {"chunks", "int", "1", "c"}, {"scale", "float", "1"}, {"softcap", "float", "0"}, {"round_x", "int", "0"},
      {"zero", "int", "0"},        {"offset", "int", "0"},  {"whole", "int", "0"}};
  ops.add({.name = "plait.HeadStatistics",
           .inputs = "x w labels scales? zeros?",
           .outputs = "maxima sums picked",
           .attributes = attributes,
           .dims = "... [h], (@c [w]) [h], ... -> ... c, ... c, ...",
           .dims_of = head_dims,
           .infer = infer_head,
           .doc = "of the logits of x: each chunk's largest, its sum of e^(logit - largest), and the label's logit"});
  ops.add({.name = "plait.HeadBack",
           .inputs = "x w labels logsumexp dloss scales? zeros?",
           .outputs = "dx dw?",
           .attributes = attributes,
           .dims = "... [h], (@c [w]) [h], ..., ..., *... -> ... [h], (@c [w]) [h]",
           .dims_of = head_dims,
           .infer = infer_head_back,
           .doc = "gradients of x and w of dloss (logsumexp - the label's logit)"});
}

/// All operands but the scalars behind them have the parameter's dims.
std::string step_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  const std::string dims = spaced(dim_names(rank_of(in[0])));
  std::vector<std::string> operands(in.size());
  for (size_t k = 0; k < out.size(); ++k) operands[k] = dims;
  return rule_text(operands, std::vector<std::string>(out.size(), dims));
}

void infer_updates(InferContext& context) {
  for (int k = 0; k < context.outputs(); ++k) {
    context.set_type(k, context.dtype(k));
    if (const Dims* dims = context.dims(k)) context.set_dims(k, *dims);
  }
}

void register_optimizers(OpSet& ops) {
  ops.add({.name = "plait.Accumulate",
           .inputs = "sum gradient",
           .outputs = "sum",
           .dims = "+..., +... -> ...",
           .infer = infer_updates,
           .updates = 1,
           .doc = "sum + gradient, in place"});
  ops.add({.name = "plait.AdamW",
           .inputs = "w first second gradient scale rate correction1 correction2",
           .outputs = "w first second gradient",
           .attributes = {{"beta1", "float", "0.9"},
                          {"beta2", "float", "0.999"},
                          {"epsilon", "float", "1e-8"},
                          {"decay", "float", "0"}},
           .dims = "n, n, n, n, , , , -> n, n, n, n",
           .dims_of = step_dims,
           .infer = infer_updates,
           .updates = 4,
           .doc = "a step along scale * gradient, which becomes 0 (Loshchilov and Hutter 2019)"});
  ops.add({.name = "plait.SGD",
           .inputs = "w velocity gradient scale rate",
           .outputs = "w velocity gradient",
           .attributes = {{"momentum", "float", "0"}, {"decay", "float", "0"}},
           .dims = "n, n, n, , -> n, n, n",
           .dims_of = step_dims,
           .infer = infer_updates,
           .updates = 3,
           .doc = "a step along momentum * velocity + scale * gradient, which becomes 0 (Sutskever et al. 2013)"});
}

}  // namespace

void register_training(OpSet& ops) {
  register_heads(ops);
  register_optimizers(ops);
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
