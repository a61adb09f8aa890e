// Ops only for training: parts of the gradients of Plait's own ops, and optimizer steps. They have no gradients of
// their own.
#include <tuple>

#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// A weight that is quantised in blocks is [n, c, l], and k is all elements of its blocks.
std::string linear_back_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  if (!in[1].dims || in[1].dims->size() != 3) return "*... n, *n k -> ... k";
  std::vector<std::string> operands{"*... n", "n c l", "*n c", is_absent(in, 3) ? "" : "n c"};
  operands.resize(in.size());
  return rule_text(operands, {"... (c l)"});
}

std::string add_linear_dims(const Node& node, const std::vector<Type>&, const std::vector<Type>&) {
  return node.attributes.integer("back", 0) ? "+... n, +... [k], [k] n -> ... n" : "+... n, +... [k], n [k] -> ... n";
}

/// The operand with the result's sizes.
template <int target>
void infer_sized(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (const Dims* sizes = context.contents(target)) context.set_dims(0, *sizes);
}

/// dy like Gather's result, with the gathered axis in place of the indices.
std::string gather_back_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t indices = rank_of(in[1]), rank = rank_of(in[0]) + 1 - indices;
  const std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", 0), rank);
  if (!axis) return "";
  DimNames table = dim_names(rank), picked = dim_names(indices, rank), dy = table;
  const auto at = dy.erase(dy.begin() + static_cast<std::ptrdiff_t>(*axis));
  dy.insert(at, picked.begin(), picked.end());
  table[*axis] = cat("@", table[*axis]);
  return rule_text({"*" + spaced(dy), spaced(picked), "[sizes]"}, {spaced(table)});
}

/// As Slice's: a dim that keeps its size is not sliced, unless a step might reverse it.
std::string slice_back_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  if (!out[0].dims || rank_of(in[0]) != rank_of(out[0])) return "";
  const bool stepped = !is_absent(in, 5);
  DimNames before = dim_names(rank_of(in[0])), after = before;
  for (size_t i = 0; i < before.size(); ++i) {
    if (!stepped && (*in[0].dims)[i] == (*out[0].dims)[i]) continue;
    before[i] = whole(before[i]);
    after[i] = whole(factor_name(before.size() + i));
  }
  std::vector<std::string> operands{"*" + spaced(before), "[sizes]"};
  for (size_t k = 2; k < in.size(); ++k) operands.push_back(in[k].dims ? "[axes]" : "");
  return rule_text(operands, {spaced(after)});
}

/// One axis is whole, as in Softmax.
std::string softmax_back_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames names = dim_names(rank_of(in[0]));
  if (!names.empty()) {
    const std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", -1), names.size());
    if (!axis) return "";
    names[*axis] = whole(names[*axis]);
  }
  return rule_text({spaced(names), "*" + spaced(names)}, {spaced(names)});
}

void infer_norm_back(InferContext& context) {
  for (int k = 0; k < context.outputs(); ++k) {
    const int like = k == 0 ? 0 : 1;
    if (!context.wants(k)) continue;
    context.set_type(k, context.dtype(like));
    if (const Dims* dims = context.dims(like)) context.set_dims(k, *dims);
  }
}

/// The dims from the axis on are whole. The gradient of scale and shift is a sum over the others.
std::string norm_back_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
  DimNames names = dim_names(rank_of(in[0]));
  const std::optional<size_t> first = maybe_axis(node.attributes.integer("axis", -1), names.size());
  if (!first) return "";
  for (size_t i = *first; i < names.size(); ++i) names[i] = whole(names[i]);
  const std::string scale = aligned(names, *in[1].dims);
  std::vector<std::string> results{spaced(names)};
  for (size_t k = 1; k < out.size(); ++k) results.push_back(out[k].dtype == DType::none ? "" : cat(scale, " {all}"));
  return rule_text({spaced(names), scale, "*" + spaced(names)}, results);
}

void register_norm_back(OpSet& ops) {
  for (auto [name, outputs, doc] :
       {std::tuple{"plait.RMSNormBack", "dx dscale", "the gradients of an RMSNormalization"},
        {"plait.LayerNormBack", "dx dscale dbias?", "the gradients of a LayerNormalization; a bias is as the scale"}})
    ops.add({.name = name,
             .inputs = "x scale dy",
             .outputs = outputs,
             .attributes = {{"axis", "int", "-1"}, {"epsilon", "float", "1e-05"}},
             .dims = "t [h], [h], *t [h] -> t [h], [h] {all}",
             .dims_of = norm_back_dims,
             .ranks = "1-",
             .infer = infer_norm_back,
             .doc = doc});
}

}  // namespace

void register_training(OpSet& ops) {
  register_norm_back(ops);
  ops.add({.name = "plait.Dropout",
           .inputs = "x keys",
           .outputs = "y",
           .attributes =
               {{"rate", "float", "required"}, {"module", "int", "0"}, {"offset", "int", "0"}, {"whole", "int", "0"}},
           .dims = "*... @k, ... -> ... k",
           .doc = "features of each token dropped by its key and the module, the rest scaled up; none for key -1"});
  ops.add({.name = "plait.UnaryBack",
           .inputs = "x dy",
           .outputs = "dx",
           .attributes = {{"function", "string", "required"},
                          {"alpha", "float", ""},
                          {"approximate", "string", "none"},
                          {"beta", "float", ""},
                          {"bias", "float", ""},
                          {"gamma", "float", ""},
                          {"lambd", "float", ""}},
           .dims = "..., *... -> ...",
           .infer = infer_same,
           .doc = "dy f'(x), where f is the ONNX op `function` of one operand, with its attributes"});
  ops.add({.name = "plait.SoftmaxBack",
           .inputs = "y dy",
           .outputs = "dx",
           .attributes = {{"axis", "int", "-1"}},
           .dims = "b g q [k], *b g q [k] -> b g q [k]",
           .dims_of = softmax_back_dims,
           .infer = infer_same,
           .doc = "y (dy - sum of y dy along the axis), where y is what Softmax gave"});
  ops.add({.name = "plait.CumProdBack",
           .inputs = "x dy",
           .outputs = "dx",
           .attributes = {{"axis", "int", "-1"}, {"exclusive", "int", "0"}, {"reverse", "int", "0"}},
           .dims = "b g q [k], *b g q [k] -> b g q [k]",
           .dims_of = softmax_back_dims,
           .infer = infer_same,
           .doc = "the gradient of CumProd, without a division by elements that may be zero"});
  ops.add({.name = "plait.DetBack",
           .inputs = "x dy",
           .outputs = "dx",
           .dims = "... [n] [n], *... -> ... [n] [n]",
           .ranks = "2-",
           .infer = infer_same,
           .doc = "dy times the cofactors of the matrices of the last two dims: the gradient of Det"});
  ops.add({.name = "plait.GatherBack",
           .inputs = "dy indices sizes",
           .outputs = "dx",
           .attributes = {{"axis", "int", "0"}, {"offset", "int", "0"}, {"whole", "int", "0"}},
           .dims = "*b n h, n, [d] -> b @s h",
           .dims_of = gather_back_dims,
           .target = 2,
           .infer = infer_sized<2>,
           .doc = "parts of dy added up along the axis where Gather took them from"});
  ops.add({.name = "plait.SliceBack",
           .inputs = "dy sizes starts ends axes? steps?",
           .outputs = "dx",
           .dims = "*b [t] h, [d], [n], [n], [n] -> b [s] h",
           .dims_of = slice_back_dims,
           .target = 1,
           .infer = infer_sized<1>,
           .doc = "dy where Slice took it from, zeros elsewhere"});
  ops.add({.name = "plait.LinearBack",
           .inputs = "dy w scales? zeros?",
           .outputs = "dx",
           .attributes = {{"round_x", "int", "0"}, {"zero", "int", "0"}},
           .dims = "*... n, *n k -> ... k",
           .dims_of = linear_back_dims,
           .doc = "dy w: the gradient of a Linear's x; w as Linear has it"});
  ops.add({.name = "plait.AddLinear",
           .inputs = "sum x w",
           .outputs = "y",
           .attributes = {{"round_x", "int", "0"}, {"back", "int", "0"}},
           .dims = "+... n, +... [k], n [k] -> ... n",
           .dims_of = add_linear_dims,
           .doc = "sum + x w^T, a Linear of many rows; back 1: sum + x w, its gradient"});
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
           .infer = infer_sized<2>,
           .doc = "rows of dy added up by id, in a table of these sizes"});
  ops.add({.name = "plait.RowsBack",
           .inputs = "dy rows sizes",
           .outputs = "dx",
           .dims = "*b n ..., b n, [d] -> b [s] ...",
           .target = 2,
           .infer = infer_sized<2>,
           .doc = "rows of dy added up where GatherRows took them from"});
}

}  // namespace plait
