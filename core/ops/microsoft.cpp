// Ops of com.microsoft that exporters and ONNX Runtime's optimizer write, except attention.
#include <algorithm>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/normalized.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

// ---- Normalisations with a skip connection ----

/// Output 0 like the input, statistics f32, output 3 the sum before the normalisation.
void infer_skip_normalization(InferContext& context) {
  infer_same(context);
  context.set_type(1, DType::f32);
  context.set_type(2, DType::f32);
  context.set_type(3, context.dtype(0));
  if (const Dims* dims = context.dims(0)) {
    context.set_dims(1, statistics_dims(*dims, -1));
    context.set_dims(2, statistics_dims(*dims, -1));
    context.set_dims(3, *dims);
  }
}

/// The skip may lack the batch; gamma, beta and bias are [h].
std::string skip_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames names = dim_names(rank_of(in[0])), ones = names;
  if (names.empty()) return "";
  names.back() = whole(names.back());
  ones.back() = "1";
  std::vector<std::string> operands{spaced(names), aligned(names, *in[1].dims)};
  for (size_t k = 2; k < in.size(); ++k) operands.push_back(names.back());
  return rule_text(operands, {spaced(names), spaced(ones), spaced(ones), spaced(names)});
}

/// y has the scale's type, as RMSNormalization's.
void infer_simplified(InferContext& context) {
  infer_same(context);
  context.set_type(0, context.dtype(1));
  context.set_type(1, dtype_attribute(context.attributes(), "stash_type", DType::f32));
  if (const Dims* dims = context.dims(0))
    context.set_dims(1, statistics_dims(*dims, context.attributes().integer("axis", -1)));
}

void register_normalizations(OpSet& ops) {
  // ONNX Runtime writes this one into the default domain.
  for (const char* name : {"SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization"})
    ops.add({.name = name, .inputs = "x scale", .outputs = "y inv_std_var?",
             .attributes = {{"axis", "int", "-1"}, {"epsilon", "float", "1e-05"}, {"stash_type", "int", "1"}},
             .dims = "t [h], *[h] -> t [h], t 1",
             .dims_of = [](const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
               return normalized_dims(in, node.attributes.integer("axis", -1), 1, out.size() > 1 ? "" : "*",
                                      out.size());
             },
             .infer = infer_simplified, .doc = "RMSNormalization", .since = 1});
  ops.add({.name = "com.microsoft.SkipSimplifiedLayerNormalization", .inputs = "input skip gamma bias?",
           .outputs = "output mean? inv_std_var? input_skip_bias_sum?", .attributes = {{"epsilon", "float", "1e-12"}},
           .dims = "t [h], t [h], [h] -> t [h], t 1, t 1, t [h]", .dims_of = skip_dims,
           .infer = infer_skip_normalization, .doc = "RMSNormalization of input + skip + bias", .since = 1});
  ops.add({.name = "com.microsoft.SkipLayerNormalization", .inputs = "input skip gamma beta? bias?",
           .outputs = "output mean? inv_std_var? input_skip_bias_sum?", .attributes = {{"epsilon", "float", "1e-12"}},
           .dims = "t [h], t [h], [h], [h], [h] -> t [h], t 1, t 1, t [h]", .dims_of = skip_dims,
           .infer = infer_skip_normalization, .doc = "LayerNormalization of input + skip + bias", .since = 1});
}

// ---- FusedMatMul ----

/// The dims of one side in the file's order, from MatMul's order [batch..., first, last]. A vector has only the
/// summed dim.
DimNames fused_side(const Node& node, const char* side, size_t rank, const DimNames& batch, DimNames matrix) {
  if (rank == 1) return {"k"};
  if (node.attributes.integer(cat("trans", side), 0)) std::swap(matrix[0], matrix[1]);
  // With transBatch the file has the first matrix dim before the batch.
  bool inside = node.attributes.integer(cat("transBatch", side), 0) != 0;
  DimNames names;
  if (inside) names.push_back(matrix[0]);
  for (size_t i = batch.size() - (rank - 2); i < batch.size(); ++i) names.push_back(batch[i]);
  if (!inside) names.push_back(matrix[0]);
  names.push_back(matrix[1]);
  return names;
}

/// Any ranks; the batch dims broadcast.
std::string fused_matmul_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  size_t a = rank_of(in[0]), b = rank_of(in[1]);
  if (a == 0 || b == 0) return "";
  DimNames batch = dim_names(std::max<size_t>({a, b, 2}) - 2);
  for (std::string& name : batch) name += "0";  // apart from q, k and n
  DimNames result = batch;
  std::vector<std::string> operands{aligned(fused_side(node, "A", a, batch, {"q", "k"}), *in[0].dims),
                                    aligned(fused_side(node, "B", b, batch, {"k", "n"}), *in[1].dims)};
  if (a > 1) result.push_back("q");
  if (b > 1) result.push_back("n");
  // A size of 1 on both sides has no factor.
  std::string all = cat(" ", operands[0], " ", operands[1], " ");
  for (std::string& name : result)
    if (all.find(cat(" ", name, " ")) == std::string::npos) name = "1";
  for (std::string& operand : operands) operand = "*" + operand;
  return rule_text(operands, {spaced(result)});
}

// ---- Block-quantised weights ----

void infer_matmul_bits(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* a = context.dims(0);
  if (!a) return;
  if (a->empty()) InferContext::fail("a is a scalar");
  int64_t k = context.attributes().integer("K");
  if (a->back().is_constant() && a->back().constant() != k)
    InferContext::fail(cat("a's last dimension is ", a->back().constant(), ", attribute \"K\" ", k));
  Dims out = *a;
  out.back() = Dim(context.attributes().integer("N"));
  context.set_dims(0, std::move(out));
}

/// Sharded only by columns n: splitting a block of k with its packed zero points does not pay off (`raise` makes it
/// Linear).
std::string matmul_bits_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  bool bias = in.size() > 5 && in[5].dims;
  auto per_block = [&](size_t index, const char* blocks) -> std::string {
    if (index >= in.size() || !in[index].dims) return "";
    return in[index].dims->size() == 1 ? cat("(n [", blocks, "])") : cat("n [", blocks, "]");
  };
  return rule_text({bias ? "... [k]" : "*... [k]", "n [p] [w]", per_block(2, "p"), per_block(3, "z"), "[k2]", "n"},
                   {"... n"});
}

/// Sharded only by indices: the table's packing is opaque.
std::string gather_blocks_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  std::vector<std::string> operands;
  size_t names = 0;
  for (size_t k = 0; k < in.size(); ++k) {
    const size_t rank = in[k].dims ? in[k].dims->size() : 0;
    DimNames own = dim_names(rank, names);
    operands.push_back(spaced(k == 1 ? own : all_whole(own)));
    names += rank;
  }
  const size_t rows = in[0].dims->size(), indices = in[1].dims->size();
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("gather_axis", 0), rows);
  if (!axis) return "";
  DimNames out = all_whole(dim_names(rows, names)), found = dim_names(indices, rows);
  out.erase(out.begin() + static_cast<std::ptrdiff_t>(*axis));
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(*axis), found.begin(), found.end());
  return rule_text(operands, {spaced(out)});
}

void infer_gather_blocks(InferContext& context) {
  context.set_type(0, context.dtype(2));
  const Dims *data = context.dims(0), *indices = context.dims(1);
  if (!data || !indices) return;
  size_t gather = checked_axis(context.attributes().integer("gather_axis", 0), data->size());
  Dims rows = *data;
  // u8 holds several elements per byte, along the last dim; the 4-bit types count elements.
  int64_t bits = context.attributes().integer("bits", 4);
  if (bits != 2 && bits != 4 && bits != 8)
    InferContext::fail(cat("attribute \"bits\" is ", bits, ", expected 2, 4 or 8"));
  if (context.dtype(0) == DType::u8) rows.back() = rows.back() * Dim(8 / bits);
  auto at = rows.begin() + static_cast<std::ptrdiff_t>(gather);
  Dims out(rows.begin(), at);
  out.insert(out.end(), indices->begin(), indices->end());
  out.insert(out.end(), at + 1, rows.end());
  context.set_dims(0, std::move(out));
}

void register_quantized(OpSet& ops) {
  ops.add({.name = "com.microsoft.MatMulNBits", .inputs = "a b scales zero_points? g_idx? bias?", .outputs = "y",
           .attributes = {{"K", "int", "required"}, {"N", "int", "required", "n"}, {"bits", "int", "4"},
                          {"block_size", "int", "required"}, {"accuracy_level", "int", "0"},
                          {"weight_prepacked", "int", "0"}},
           .dims = "*... [k], n [p] [w], (n [p]), (n [z]) -> ... n", .dims_of = matmul_bits_dims,
           .infer = infer_matmul_bits, .doc = "a b^T, b [n, k] in blocks of 2 to 8 bits", .since = 1});
  ops.add({.name = "com.microsoft.GatherBlockQuantized", .inputs = "data indices scales zero_points?",
           .outputs = "output",
           .attributes = {{"bits", "int", "4"}, {"block_size", "int", "128"}, {"gather_axis", "int", "0"},
                          {"quantize_axis", "int", "1"}},
           .dims = "[v] [h], b s, [v] [p], [v] [z] -> b s [h]", .dims_of = gather_blocks_dims,
           .infer = infer_gather_blocks, .doc = "rows of a table in blocks of 2 to 8 bits", .since = 1});
}

}  // namespace

void register_microsoft(OpSet& ops) {
  register_normalizations(ops);
  register_quantized(ops);
  ops.add({.name = "com.microsoft.Gelu", .inputs = "x", .outputs = "y", .dims = "... -> ...", .doc = "x Phi(x)",
           .since = 1});
  ops.add({.name = "com.microsoft.QuickGelu",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"alpha", "float", "1.702"}},
           .dims = "... -> ...",
           .doc = "x sigmoid(alpha x)",
           .since = 1});
  ops.add({.name = "com.microsoft.FastGelu", .inputs = "x bias?", .outputs = "y", .dims = "... h, h -> ... h",
           .doc = "Gelu of x + bias by tanh", .since = 1});
  ops.add({.name = "com.microsoft.BiasGelu", .inputs = "a b", .outputs = "c", .dims = "... h, h -> ... h",
           .doc = "Gelu of a + b", .since = 1});
  ops.add({.name = "com.microsoft.FusedMatMul", .inputs = "a b", .outputs = "y",
           .attributes = {{"alpha", "float", "1"}, {"transA", "int", "0"}, {"transB", "int", "0"},
                          {"transBatchA", "int", "0"}, {"transBatchB", "int", "0"}},
           .dims = "*... q k, *... k n -> ... q n", .dims_of = fused_matmul_dims,
           .doc = "alpha a b, each transposed or not", .since = 1});
}

}  // namespace plait
