// plait.Experts: mixtures of experts, behind their routers.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/rows.h"

namespace plait {

namespace {

// Places of the operands.
enum : size_t { gate = 3, up, down, gate_bias, up_bias, down_bias, gate_scales, down_scales = 13 };

bool is_absent(const std::vector<Type>& in, size_t k) { return k >= in.size() || !in[k].dims; }
/// Whether the weight is [e, n, c, l], quantised in blocks, rather than [e, n, k].
bool is_blocked(const Type& weight) { return weight.dims->size() == 4; }
/// Whether its blocks are exactly the dimension that it sums over.
bool fills_blocks(const Type& weight, const Dim& size) { return (*weight.dims)[2] * (*weight.dims)[3] == size; }

/// The hidden dimension f may be cut, between the blocks of `down`, unless a bias is added once behind it. What `up` and
/// `down` are multiplied by is linear, in whole weights and in scales, as long as nothing is added or limited.
std::string experts_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const bool whole_f = !is_absent(in, down_bias), blocked_down = is_blocked(in[down]), blocked = is_blocked(in[gate]);
  const bool blocks_of_f = blocked_down && fills_blocks(in[down], (*in[gate].dims)[1]);
  const bool fills = blocked && !in[0].dims->empty() && fills_blocks(in[gate], in[0].dims->back());
  const bool cut = !whole_f && (!blocked_down || blocks_of_f);
  const std::string f = blocks_of_f ? (cut ? "(m n)" : "([m] [n])") : cut ? "f" : "[f]";
  const Attributes& attributes = node.attributes;
  const bool straight = is_absent(in, up_bias) && attributes.real("beta", 0) == 0 && attributes.real("limit", 0) == 0;
  std::vector<std::string> operands(in.size());
  operands[0] = blocked ? (fills ? "... ([c] [l])" : "... [h]") : "... [h]";
  operands[1] = "... k";
  operands[2] = "*... k";
  for (size_t which : {gate, up}) {
    if (is_absent(in, which)) continue;
    const bool linear = which == up && straight;
    operands[which] = cat(linear && !blocked ? "*" : "", "@e ", f, blocked ? " [c] [l]" : " [h]");
    const size_t scales = gate_scales + 2 * (which - gate);
    if (!is_absent(in, scales)) operands[scales] = cat(linear ? "*" : "", "@e ", f, " [c]");
    if (!is_absent(in, scales + 1)) operands[scales + 1] = cat("@e ", f, " [c]");
    if (!is_absent(in, which + 3)) operands[which + 3] = cat("@e ", f);
  }
  const std::string star = whole_f ? "" : "*", inner = blocks_of_f ? (cut ? "m n" : "[m] [n]") : "[p] [q]";
  operands[down] = blocked_down ? cat("@e o ", inner) : cat(star, "@e o ", f);
  const std::string of_block = cat("@e o ", inner.substr(0, inner.find(' ')));
  if (!is_absent(in, down_bias)) operands[down_bias] = "@e o";
  if (!is_absent(in, down_scales)) operands[down_scales] = star + of_block;
  if (!is_absent(in, down_scales + 1)) operands[down_scales + 1] = of_block;
  return rule_text(operands, {"... o"});
}

}  // namespace

// Whole weights are [e, n, k] in f32, bf16 or f16; quantised ones [e, n, c, l] with scales and perhaps zero points
// [e, n, c], as plait.Linear has them for one expert. A token's result is the sum over its choices of
//   share * (down hidden + down_bias),   hidden = a(min(g, limit)) * (clamp(u, -limit, limit) + beta),
// where g = gate x + gate_bias, u = up x + up_bias, and a(g) = activation(alpha g) / alpha; without `up` hidden = a(g).
// `limit` 0 means none. `zero` and `down_zero` are the zero points of gate and up, and of down, where there is no operand.
void register_experts(OpSet& ops) {
  ops.add(
      {.name = "plait.Experts",
       .inputs = "x experts shares gate up? down gate_bias? up_bias? down_bias? gate_scales? gate_zeros? up_scales? "
                 "up_zeros? down_scales? down_zeros?",
       .outputs = "y",
       .attributes = {{"activation", "string", "silu"},
                      {"alpha", "float", "1"},
                      {"beta", "float", "0"},
                      {"limit", "float", "0"},
                      {"round_x", "int", "0"},
                      {"zero", "int", "0"},
                      {"down_zero", "int", "0"},
                      {"offset", "int", "0"},
                      {"whole", "int", "0"}},
       .dims = "... [h], ... k, *... k, @e f [h], *@e f [h], *@e o f -> ... o",
       .dims_of = experts_dims,
       .doc =
           "each token through the experts that its router chose (Shazeer et al. 2017); weights stacked by expert"});
}

}  // namespace plait
