// In-place gradient accumulation and optimizer steps.
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// All operands but the trailing scalars have the parameter's dims.
std::string step_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  const std::string dims = spaced(dim_names(rank_of(in[0])));
  std::vector<std::string> operands(in.size());
  for (size_t k = 0; k < out.size(); ++k) operands[k] = dims;
  return rule_text(operands, std::vector<std::string>(out.size(), dims));
}

/// gradient [batch... n k] with row [batch... n] and column [batch... k]; a vector has a row of one element.
std::string factored_dims(const Type& gradient, size_t arrays, size_t operands,
                          const std::vector<std::string>& results) {
  const DimNames names = dim_names(rank_of(gradient));
  if (names.empty()) return "";
  DimNames row(names.begin(), names.end() - 1), column = names;
  if (column.size() > 1) column.erase(column.end() - 2);
  std::vector<std::string> of(arrays, spaced(names));
  of.insert(of.end(), {spaced(row), spaced(column)});
  of.resize(operands);
  std::vector<std::string> out;
  for (const std::string& result : results) out.push_back(result.empty() ? spaced(names) : result);
  return rule_text(of, out);
}

std::string factored_squares_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  return factored_dims(in[0], 1, in.size(), {"{all}"});
}

std::string factored_step_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  return factored_dims(in[0], 2, in.size(), {"", ""});
}

void infer_squares(InferContext& context) {
  context.set_type(0, context.dtype(0));
  context.set_dims(0, {});
}

void infer_updates(InferContext& context) {
  for (int k = 0; k < context.outputs(); ++k) {
    context.set_type(k, context.dtype(k));
    if (const Dims* dims = context.dims(k)) context.set_dims(k, *dims);
  }
}

}  // namespace

void register_optimizers(OpSet& ops) {
  ops.add({.name = "plait.Accumulate",
           .inputs = "sum gradient",
           .outputs = "sum",
           .dims = "+..., +... -> ...",
           .infer = infer_updates,
           .updates = 1,
           .doc = "sum + gradient, in place"});
  ops.add({.name = "plait.Assign",
           .inputs = "to from",
           .outputs = "to",
           .dims = "..., *... -> ...",
           .infer = infer_updates,
           .updates = 1,
           .doc = "from, in the memory of to"});
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
  ops.add(
      {.name = "plait.FactoredSquares",
       .inputs = "gradient row column scale",
       .outputs = "sum",
       .attributes = {{"floor", "float", "0"}},
       .dims = "n k, n, k, -> {all}",
       .dims_of = factored_squares_dims,
       .ranks = "1-",
       .infer = infer_squares,
       .doc =
           "the sum of squares of u = scale * gradient / sqrt(max(row * column, floor)), where row has all dims of "
           "the gradient but the last, and column all but the one before (Shazeer and Stern 2018)"});
  ops.add({.name = "plait.FactoredStep",
           .inputs = "w gradient row column scale shrink step",
           .outputs = "w gradient",
           .attributes = {{"floor", "float", "0"}},
           .dims = "n k, n k, n, k, , , -> n k, n k",
           .dims_of = factored_step_dims,
           .ranks = "1-, 1-",
           .infer = infer_updates,
           .updates = 2,
           .doc = "w - (shrink * w + step * u) with the u of plait.FactoredSquares; the gradient becomes 0"});
}

}  // namespace plait
