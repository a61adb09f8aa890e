// plait.Experts: mixtures of experts, after their routers.
#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

// Indices of the operands.
enum : size_t { gate = 3, up, down, gate_bias, up_bias, down_bias, gate_scales, down_scales = 13 };

/// Whether the weight is [e, n, c, l], quantised in blocks, rather than [e, n, k].
bool is_blocked(const Type& weight) { return weight.dims->size() == 4; }
/// Whether its blocks exactly cover the dimension that it sums over.
bool fills_blocks(const Type& weight, const Dim& size) { return (*weight.dims)[2] * (*weight.dims)[3] == size; }

/// The rules of all operands. The hidden dimension f may be sharded, between the blocks of `down`, unless a bias is
/// added once after it. What `up` and `down` are multiplied by is linear, in unquantised weights and in scales, as
/// long as nothing is added or limited; a gradient is linear in none of these operands.
std::vector<std::string> operand_texts(const Attributes& attributes, const std::vector<Type>& in, bool of_gradient) {
  const bool whole_f = !is_absent(in, down_bias), blocked_down = is_blocked(in[down]), blocked = is_blocked(in[gate]);
  const bool blocks_of_f = blocked_down && fills_blocks(in[down], (*in[gate].dims)[1]);
  const bool fills = blocked && !in[0].dims->empty() && fills_blocks(in[gate], in[0].dims->back());
  const bool cut = !whole_f && (!blocked_down || blocks_of_f);
  const std::string f = blocks_of_f ? (cut ? "(m n)" : "([m] [n])") : cut ? "f" : "[f]";
  const bool straight = !of_gradient && is_absent(in, up_bias) && attributes.real("beta", 0) == 0 &&
                        attributes.real("limit", 0) == 0;
  std::vector<std::string> operands(in.size());
  operands[0] = blocked ? (fills ? "... ([c] [l])" : "... [h]") : "... [h]";
  operands[1] = "... k";
  operands[2] = of_gradient ? "... k" : "*... k";
  for (size_t which : {gate, up}) {
    if (is_absent(in, which)) continue;
    const bool linear = which == up && straight;
    operands[which] = cat(linear && !blocked ? "*" : "", "@e ", f, blocked ? " [c] [l]" : " [h]");
    const size_t scales = gate_scales + 2 * (which - gate);
    if (!is_absent(in, scales)) operands[scales] = cat(linear ? "*" : "", "@e ", f, " [c]");
    if (!is_absent(in, scales + 1)) operands[scales + 1] = cat("@e ", f, " [c]");
    if (!is_absent(in, which + 3)) operands[which + 3] = cat("@e ", f);
  }
  const std::string star = whole_f || of_gradient ? "" : "*",
                    inner = blocks_of_f ? (cut ? "m n" : "[m] [n]") : "[p] [q]";
  operands[down] = blocked_down ? cat("@e o ", inner) : cat(star, "@e o ", f);
  const std::string of_block = cat("@e o ", inner.substr(0, inner.find(' ')));
  if (!is_absent(in, down_bias)) operands[down_bias] = "@e o";
  if (!is_absent(in, down_scales)) operands[down_scales] = star + of_block;
  if (!is_absent(in, down_scales + 1)) operands[down_scales + 1] = of_block;
  return operands;
}

std::string experts_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  return rule_text(operand_texts(node.attributes, in, false), {"... o"});
}

// ---- Gradient ----

/// The operand whose gradient is result k.
constexpr size_t gradient_of[] = {0, 2, gate, up, down, gate_bias, up_bias, down_bias};

/// dy before the operands. All results are linear in it, so o may be sharded too.
std::string experts_back_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  std::vector<std::string> texts = operand_texts(node.attributes, {in.begin() + 1, in.end()}, true), results;
  for (size_t k = 0; k < out.size(); ++k)
    results.push_back(out[k].dtype == DType::none ? "" : cat(texts[gradient_of[k]], " {all}"));
  texts.insert(texts.begin(), "*... o");
  return rule_text(texts, results);
}

void infer_experts_back(InferContext& context) {
  for (int k = 0; k < context.outputs(); ++k) {
    const int operand = 1 + static_cast<int>(gradient_of[k]);
    if (!context.wants(k)) continue;
    if (!context.has(operand)) InferContext::fail(cat("output ", k, " is the gradient of input ", operand, ", which is absent"));
    context.set_type(k, context.dtype(operand));
    if (const Dims* dims = context.dims(operand)) context.set_dims(k, *dims);
  }
}

void of_experts(GradientContext& context) {
  std::vector<ValueId> inputs = context.node().inputs;
  inputs.insert(inputs.begin(), context.gradient());
  std::vector<bool> made;
  for (size_t operand : gradient_of) made.push_back(context.wants(operand));
  const std::vector<ValueId> back =
      context.add_all("plait.ExpertsBack", std::move(inputs), made, context.attributes());
  for (size_t k = 0; k < back.size(); ++k) context.give(gradient_of[k], back[k]);
}

}  // namespace

// Unquantised weights are [e, n, k] in f32, bf16 or f16; quantised ones [e, n, c, l] with scales and optional zero
// points [e, n, c], as in plait.Linear for one expert. A token's result is the sum over its choices of
//   share * (down hidden + down_bias),   hidden = a(min(g, limit)) * (clamp(u, -limit, limit) + beta),
// where g = gate x + gate_bias, u = up x + up_bias, and a(g) = activation(alpha g) / alpha; without `up` hidden =
// a(g). `limit` 0: no limit. `zero` and `down_zero` are the zero points of gate and up, and of down, without an
// operand.
void register_experts(OpSet& ops) {
  const std::vector<AttributeRow> experts_attributes = {
      {"activation", "string", "silu"}, {"alpha", "float", "1"},  {"beta", "float", "0"},
      {"limit", "float", "0"},          {"round_x", "int", "0"},  {"zero", "int", "0"},
      {"down_zero", "int", "0"},        {"offset", "int", "0"},   {"whole", "int", "0"}};
  ops.add(
      {.name = "plait.Experts",
       .inputs = "x experts shares gate up? down gate_bias? up_bias? down_bias? gate_scales!? gate_zeros!? up_scales!? "
                 "up_zeros!? down_scales!? down_zeros!?",
       .outputs = "y",
       .attributes = experts_attributes,
       .dims = "... [h], ... k, *... k, @e f [h], *@e f [h], *@e o f -> ... o",
       .dims_of = experts_dims,
       .ranks = "1-, 1-, 1-, 3-4, 3-4, 3-4, 2, 2, 2, 3, 3, 3, 3, 3, 3",
       .gradient = of_experts,
       .doc =
           "each token through the experts that its router chose (Shazeer et al. 2017); weights stacked by expert"});
  ops.add(
      {.name = "plait.ExpertsBack",
       .inputs = "dy x experts shares gate up? down gate_bias? up_bias? down_bias? gate_scales? gate_zeros? up_scales? "
                 "up_zeros? down_scales? down_zeros?",
       .outputs = "dx dshares dgate? dup? ddown? dgate_bias? dup_bias? ddown_bias?",
       .attributes = experts_attributes,
       .dims = "*... o, ... [h], ... k, ... k, @e f [h], @e f [h], @e o f -> ... [h] {all}, ... k {all}, "
               "@e f [h] {all}, @e f [h] {all}, @e o f {all}",
       .dims_of = experts_back_dims,
       .ranks = "1-, 1-, 1-, 1-, 3-4, 3-4, 3-4, 2, 2, 2, 3, 3, 3, 3, 3, 3",
       .infer = infer_experts_back,
       .doc = "the gradients of plait.Experts; of quantised weights there are none"});
}

}  // namespace plait
