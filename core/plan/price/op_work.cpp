#include "core/plan/price/op_work.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/graph/dims_rule.h"

namespace plait {
namespace {

/// Ops of x [..., h] and a head [v, h], or its chunks [c, w, h]: how many products of these sizes they make, one more if the
/// head's gradient is among their results.
struct ProductsRow {
  std::string_view op;
  double products;
  size_t head_gradient;  ///< its place; no_gradient: there is none
};
constexpr size_t no_gradient = SIZE_MAX;
constexpr ProductsRow heads[] = {{"plait.HeadLoss", 2, 2},  // logits, and the gradient of x
                                 {"plait.HeadStatistics", 1, no_gradient},
                                 {"plait.HeadBack", 2, 1}};

/// Whether the instruction makes this one of the op's results.
bool makes(const OpCall& call, size_t output) { return output < call.outputs.size() && call.outputs[output].dims; }

int64_t size_of(const Dim& dim) { return std::max<int64_t>(dim.evaluate({}), 1); }

double elements_of(const Type& type) {
  double out = 1;
  for (const Dim& dim : type.dims.value_or(Dims{})) out *= static_cast<double>(size_of(dim));
  return out;
}

/// The least of a product's rows, columns and depth: the sizes of a matrix that takes part, and all other factors together.
double least_dim(const DimsRule& rule, const FactorSizes& sizes) {
  const auto size_of_factor = [&](const Factor& factor) {
    const auto found = sizes.find(factor.name);
    return factor.fixed           ? static_cast<double>(factor.fixed)
           : found == sizes.end() ? 1
                                  : static_cast<double>(size_of(found->second));
  };
  std::vector<const RuleTensor*> tensors;
  for (const RuleTensor& one : rule.operands) tensors.push_back(&one);
  for (const RuleTensor& one : rule.results) tensors.push_back(&one);
  const auto matrix =
      std::find_if(tensors.begin(), tensors.end(), [](const RuleTensor* one) { return one->dims.size() == 2; });
  double rest = 1, least = std::numeric_limits<double>::infinity();
  for (const FactorUse& use : factors(rule)) rest *= size_of_factor(use.factor);
  if (matrix == tensors.end()) return rest;
  for (const RuleDim& dim : (*matrix)->dims) {
    double size = 1;
    for (const Factor& factor : dim.factors) size *= size_of_factor(factor);
    rest /= size;
    least = std::min(least, size);
  }
  return std::min(least, rest);
}

/// Tiles that cover the results of a product with a matrix, or one that makes it: dims that are not summed over are rows and columns.
double tiles_of(const DimsRule& rule, const FactorSizes& sizes) {
  std::vector<const RuleTensor*> tensors;
  for (const RuleTensor& one : rule.operands) tensors.push_back(&one);
  for (const RuleTensor& one : rule.results) tensors.push_back(&one);
  const auto matrix =
      std::find_if(tensors.begin(), tensors.end(), [](const RuleTensor* one) { return one->dims.size() == 2; });
  if (matrix == tensors.end()) return 0;
  const auto is_of = [](const RuleDim& dim, const std::string& name) {
    return std::any_of(dim.factors.begin(), dim.factors.end(), [&](const Factor& one) { return one.name == name; });
  };
  double sides[] = {1, 1, 1};  // the matrix' two, and all others
  for (const FactorUse& use : factors(rule)) {
    const auto found = sizes.find(use.factor.name);
    if (use.contracted() || found == sizes.end()) continue;
    const auto& dims = (*matrix)->dims;
    sides[is_of(dims[0], use.factor.name)   ? 0
          : is_of(dims[1], use.factor.name) ? 1
                                            : 2] *= static_cast<double>(size_of(found->second));
  }
  std::sort(std::begin(sides), std::end(sides));
  const double rows = sides[0] * sides[1], columns = sides[2];
  return std::min(std::ceil(rows / 128) * std::ceil(columns / 256), std::ceil(rows / 256) * std::ceil(columns / 128));
}

/// q [b, t, h, d], k [b, t, g, d], v [b, t, g, e].
OpWork attention(const OpCall& call, bool back) {
  const Type &q = call.inputs[back ? 1 : 0], &v = call.inputs[back ? 3 : 2];
  const auto heads = static_cast<double>(size_of((*q.dims)[2])), d = static_cast<double>(size_of((*q.dims)[3])),
             e = static_cast<double>(size_of((*v.dims)[3]));
  const double tokens = elements_of(q) / (heads * d);
  const double sample = call.sequence ? std::min(static_cast<double>(call.sequence), tokens) : tokens;
  const double pairs = tokens * sample * heads;
  OpWork out;
  // Forward: q k^T and p v. Gradient: of p, v, q and k; scores that are not kept are computed again.
  const double depth = !back ? d + e : (call.scores_kept ? 2 * d + 2 * e : 3 * d + 2 * e);
  out.flops = 2 * pairs * depth * (call.all_pairs ? 1 : 0.5);
  out.least_dim = std::min(heads * d, tokens);
  out.scores = pairs * (!back ? 1 : call.scores_kept ? 2 : 3);
  return out;
}

/// gate [e, f, h], up the same or absent, down [e, o, f]; each token passes through k of all experts, of which these e may be a rank's.
OpWork experts(const OpCall& call, bool back) {
  const size_t first = back ? 1 : 0;
  const Type &x = call.inputs[first], &chosen = call.inputs[first + 1], &gate = call.inputs[first + 3],
             &up = call.inputs[first + 4], &down = call.inputs[first + 5];
  const auto h = static_cast<double>(size_of(x.dims->back())), k = static_cast<double>(size_of(chosen.dims->back()));
  const double tokens = elements_of(x) / h, f = static_cast<double>(size_of((*gate.dims)[1])),
               o = static_cast<double>(size_of((*down.dims)[1]));
  const double in = h * f * (up.dims ? 2 : 1), out_of = f * o;
  const int64_t own = size_of((*gate.dims)[0]);
  const double rows = tokens * k / static_cast<double>(call.attributes.integer("whole", own));  // of an expert
  const double computed = rows * static_cast<double>(own);
  OpWork out;
  // The gradient computes the hidden layer again, then gradients of x and of those weights that are trained.
  out.flops = 2 * computed * (in + out_of);
  if (back) out.flops += 2 * computed * (in * (makes(call, 2) ? 2 : 1) + out_of * (makes(call, 4) ? 1 : 0));
  out.least_dim = std::min({h, f, o, std::max(rows, 1.0)});
  return out;
}

/// q [b, t, h, d], pages of keys [p, g, d, c]: those of the sequences at hand. Of a prompt a token sees half of its own on average.
OpWork paged_attention(const OpCall& call) {
  const Type &q = call.inputs[0], &keys = call.inputs[1], &values = call.inputs[2], &table = call.inputs[5];
  const auto heads = static_cast<double>(size_of((*q.dims)[2])), d = static_cast<double>(size_of((*q.dims)[3])),
             e = static_cast<double>(size_of(values.dims->back()));
  const auto sequences = static_cast<double>(size_of(table.dims->front()));
  const double tokens = elements_of(q) / (heads * d);
  const double context = static_cast<double>(size_of(keys.dims->front()) * size_of(keys.dims->back())) / sequences;
  return {.flops = 2 * tokens * context * heads * (d + e) * (tokens > sequences ? 0.5 : 1),
          .least_dim = std::max(tokens / sequences, 16.0)};
}

/// x [..., k] times each of the weights [n, k].
OpWork linears(const OpCall& call) {
  const auto k = static_cast<double>(size_of(call.inputs[0].dims->back()));
  const double rows = elements_of(call.inputs[0]) / k;
  OpWork out{.least_dim = std::min(rows, k)};
  for (const Type& result : call.outputs) out.flops += 2 * elements_of(result) * k;
  return out;
}

OpWork head(const OpCall& call, double products) {
  const auto h = static_cast<double>(size_of(call.inputs[0].dims->back()));
  const double rows = elements_of(call.inputs[0]) / h, vocabulary = elements_of(call.inputs[1]) / h;
  return {.flops = 2 * products * rows * vocabulary * h, .least_dim = std::min({rows, vocabulary, h})};
}

}  // namespace

OpWork work_of(const OpCall& call, const OpSet& ops) {
  if (call.op == "plait.PackedAttention") return attention(call, false);
  if (call.op == "plait.PackedAttentionBack") return attention(call, true);
  if (call.op == "plait.Experts" || call.op == "plait.ExpertsBack")
    return experts(call, call.op == "plait.ExpertsBack");
  if (call.op == "plait.PagedAttention") return paged_attention(call);
  if (call.op == "plait.Linears") return linears(call);
  if (call.op == "plait.KvWrite") return {.in_place = true};
  for (const ProductsRow& row : heads)
    if (row.op == call.op) return head(call, row.products + (makes(call, row.head_gradient) ? 1 : 0));
  OpWork out;
  if (call.op == "plait.Embedding" || call.op == "plait.EmbeddingBack") out.rows_only = true;
  const OpSchema* schema = ops.find(call.op);
  // A sum of one operand multiplies nothing.
  const auto matrices = std::count_if(call.inputs.begin(), call.inputs.end(),
                                      [](const Type& type) { return type.dims && type.dims->size() > 1; });
  if (!schema || out.rows_only || matrices < 2) return out;
  Node node;
  node.op = call.op;
  node.attributes = call.attributes;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    node.inputs.push_back(call.inputs[i].dims ? static_cast<ValueId>(i) : no_value);
  for (size_t i = 0; i < call.outputs.size(); ++i)
    node.outputs.push_back(call.outputs[i].dims ? static_cast<ValueId>(call.inputs.size() + i) : no_value);
  const auto rule = rule_of(*schema, node, call.inputs, call.outputs);
  if (!rule) return out;
  const FactorSizes sizes = factor_sizes(*rule, dims_list(call.inputs), dims_list(call.outputs), schema);
  const auto uses = factors(*rule);
  const bool contracts = std::any_of(uses.begin(), uses.end(), [](const FactorUse& use) { return use.contracted(); });
  if (!contracts) return out;
  out.flops = static_cast<double>(flops(*rule, sizes).evaluate({}));
  out.least_dim = least_dim(*rule, sizes);
  out.tiles = tiles_of(*rule, sizes);
  return out;
}

}  // namespace plait
