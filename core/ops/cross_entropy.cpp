// A decoder's head and the loss after it, for training.
#include <algorithm>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// The last operands: a bias, and scales and zero points of a quantised weight.
void add_of_weight(std::vector<std::string>& operands, const std::vector<Type>& in, const std::string& v) {
  for (const std::string& dims : {v, cat(v, " [j]"), cat(v, " [j]")})
    if (operands.size() < in.size()) operands.push_back(is_absent(in, operands.size()) ? "" : dims);
}

/// The last results: the gradients of the weight and the bias.
void add_gradients_of_weight(std::vector<std::string>& results, const std::vector<Type>& out, const std::string& w,
                             const std::string& bias) {
  for (const std::string& dims : {w, bias})
    if (results.size() < out.size()) results.push_back(out[results.size()].dtype == DType::none ? "" : dims);
}

/// The head of a quantised weight is [v, j, l], whose last block may be larger than what x uses. The vocabulary is
/// sharded between chunks of a fixed size.
std::string head_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  const bool back = node.op == "plait.HeadBack", blocked = in[1].dims->size() == 3;
  const int64_t chunks = node.attributes.integer("chunks", 1);
  const std::optional<Dim> rows = in[1].dims->front().divided(Dim(std::max<int64_t>(chunks, 1)));
  if (!rows || !rows->is_constant()) return "";
  const std::string v = cat("(@c ", rows->constant(), ")");
  std::vector<std::string> operands{"... [h]", cat(v, blocked ? " [j] [l]" : " [h]"), "..."};
  if (back) operands.insert(operands.end(), {"...", "*..."});
  add_of_weight(operands, in, v);
  if (!back) return rule_text(operands, {"... c", "... c", "... {all}"});
  std::vector<std::string> results{"... [h] {all}"};
  add_gradients_of_weight(results, out, cat(v, " [h] {all}"), cat(v, " {all}"));
  return rule_text(operands, results);
}

/// The vocabulary is whole: a row's loss and gradients are computed together.
std::string head_loss_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  const bool blocked = in[1].dims->size() == 3;
  const std::string w = blocked ? "[v] [j] [l]" : "[v] [h]";
  std::vector<std::string> operands{"... [h]", w, "...", "..."};
  add_of_weight(operands, in, "[v]");
  std::vector<std::string> results{"...", "... [h]"};
  add_gradients_of_weight(results, out, w + " {all}", "[v] {all}");
  return rule_text(operands, results);
}

/// Results have the dims of these operands, and x's dtype.
template <int... operands>
void infer_as(InferContext& context) {
  int result = 0;
  for (const int operand : {operands...}) {
    context.set_type(result, context.dtype(0));
    if (const Dims* dims = context.dims(operand)) context.set_dims(result, *dims);
    ++result;
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

}  // namespace

// A head and its softmax cross-entropy without the logits of all rows at once: logits are cap tanh(scale (x w^T +
// bias) / cap), or scale (x w^T + bias). A chunk of the vocabulary gives a row's largest logit and the sum of
// exponentials relative to it; these combine to the row's log-sum-exp, with which the gradient is computed chunk by
// chunk (online softmax, Milakov and Gimelshein 2018; Wijmans et al., "Cut your losses", 2024).
void register_cross_entropy(OpSet& ops) {
  const std::vector<AttributeRow> attributes = {
      {"chunks", "int", "1", "c"}, {"scale", "float", "1"}, {"softcap", "float", "0"}, {"round_x", "int", "0"},
      {"zero", "int", "0"},        {"offset", "int", "0"},  {"whole", "int", "0"}};
  ops.add({.name = "plait.HeadStatistics",
           .inputs = "x w labels bias? scales? zeros?",
           .outputs = "maxima sums picked",
           .attributes = attributes,
           .dims = "... [h], (@c w) [h], ... -> ... c, ... c, ... {all}",
           .dims_of = head_dims,
           .ranks = "1-, 2-3",
           .infer = infer_head,
           .doc = "of the logits of x: each chunk's largest, its sum of e^(logit - largest), and the label's logit"});
  ops.add({.name = "plait.HeadBack",
           .inputs = "x w labels logsumexp dloss bias? scales? zeros?",
           .outputs = "dx dw? dbias?",
           .attributes = attributes,
           .dims = "... [h], (@c w) [h], ..., ..., *... -> ... [h] {all}, (@c w) [h] {all}",
           .dims_of = head_dims,
           .ranks = "1-, 2-3",
           .infer = infer_as<0, 1, 5>,
           .doc = "gradients of x, w and bias of dloss (logsumexp - the label's logit)"});
  ops.add(
      {.name = "plait.HeadLoss",
       .inputs = "x w labels dloss bias? scales? zeros?",
       .outputs = "losses dx dw? dbias?",
       .attributes =
           {{"scale", "float", "1"}, {"softcap", "float", "0"}, {"round_x", "int", "0"}, {"zero", "int", "0"}},
       .dims = "... [h], [v] [h], ..., ... -> ..., ... [h], [v] [h] {all}",
       .dims_of = head_loss_dims,
       .ranks = "1-, 2-3",
       .infer = infer_as<2, 0, 1, 4>,
       .doc = "each row's loss, and gradients of x, w and bias of dloss times these, where the vocabulary is whole"});
}

}  // namespace plait
