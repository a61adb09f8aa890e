// A decoder's head and the loss behind it, as training has them.
#include <algorithm>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/rows.h"

namespace plait {

namespace {

/// A head of a quantised weight is [v, j, l], of which the last block may hold more than x has. The vocabulary is cut between
/// chunks of a fixed size.
std::string head_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  const bool back = node.op == "plait.HeadBack", blocked = in[1].dims->size() == 3;
  const int64_t chunks = node.attributes.integer("chunks", 1);
  const std::optional<Dim> rows = in[1].dims->front().divided(Dim(std::max<int64_t>(chunks, 1)));
  if (!rows || !rows->is_constant()) return "";
  const std::string v = cat("(@c ", rows->constant(), ")");
  std::vector<std::string> operands{"... [h]", cat(v, blocked ? " [j] [l]" : " [h]"), "..."};
  if (back) operands.insert(operands.end(), {"...", "*..."});
  while (operands.size() < in.size()) operands.push_back(is_absent(in, operands.size()) ? "" : cat(v, " [j]"));
  if (!back) return rule_text(operands, {"... c", "... c", "... {all}"});
  std::vector<std::string> results{"... [h] {all}"};
  if (out.size() > 1) results.push_back(out[1].dtype == DType::none ? "" : cat(v, " [h] {all}"));
  return rule_text(operands, results);
}

/// The vocabulary is whole: a row's loss and its gradients are made in one go.
std::string head_loss_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  const bool blocked = in[1].dims->size() == 3;
  const std::string w = blocked ? "[v] [j] [l]" : "[v] [h]";
  std::vector<std::string> operands{"... [h]", w, "...", "..."};
  while (operands.size() < in.size()) operands.push_back(is_absent(in, operands.size()) ? "" : "[v] [j]");
  std::vector<std::string> results{"...", "... [h]"};
  if (out.size() > 2) results.push_back(out[2].dtype == DType::none ? "" : w + " {all}");
  return rule_text(operands, results);
}

void infer_head_loss(InferContext& context) {
  for (int k = 0; k < 3; ++k) {
    context.set_type(k, context.dtype(0));
    if (const Dims* dims = context.dims(k == 0 ? 2 : k - 1)) context.set_dims(k, *dims);
  }
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

}  // namespace

// A head and the softmax cross-entropy behind it, without the logits of all rows at once: logits are
// cap tanh(scale x w^T / cap), or scale x w^T. What a chunk of the vocabulary knows of a row is its largest logit and the sum
// of exponentials below that; from all chunks' comes the row's log-sum-exp, with which the gradient is made chunk by chunk
// (online softmax, Milakov and Gimelshein 2018; Wijmans et al., "Cut your losses", 2024).
void register_cross_entropy(OpSet& ops) {
  const std::vector<AttributeRow> attributes = {
      {"chunks", "int", "1", "c"}, {"scale", "float", "1"}, {"softcap", "float", "0"}, {"round_x", "int", "0"},
      {"zero", "int", "0"},        {"offset", "int", "0"},  {"whole", "int", "0"}};
  ops.add({.name = "plait.HeadStatistics",
           .inputs = "x w labels scales? zeros?",
           .outputs = "maxima sums picked",
           .attributes = attributes,
           .dims = "... [h], (@c w) [h], ... -> ... c, ... c, ... {all}",
           .dims_of = head_dims,
           .infer = infer_head,
           .doc = "of the logits of x: each chunk's largest, its sum of e^(logit - largest), and the label's logit"});
  ops.add({.name = "plait.HeadBack",
           .inputs = "x w labels logsumexp dloss scales? zeros?",
           .outputs = "dx dw?",
           .attributes = attributes,
           .dims = "... [h], (@c w) [h], ..., ..., *... -> ... [h] {all}, (@c w) [h] {all}",
           .dims_of = head_dims,
           .infer = infer_head_back,
           .doc = "gradients of x and w of dloss (logsumexp - the label's logit)"});
  ops.add({.name = "plait.HeadLoss",
           .inputs = "x w labels dloss scales? zeros?",
           .outputs = "losses dx dw?",
           .attributes =
               {{"scale", "float", "1"}, {"softcap", "float", "0"}, {"round_x", "int", "0"}, {"zero", "int", "0"}},
           .dims = "... [h], [v] [h], ..., ... -> ..., ... [h], [v] [h] {all}",
           .dims_of = head_loss_dims,
           .infer = infer_head_loss,
           .doc = "each row's loss, and gradients of x and w of dloss times these, where the vocabulary is whole"});
}

}  // namespace plait
