// Sums of gradients, and the steps of optimizers, in place.
#include "core/ops/families.h"
#include "core/ops/rows.h"

namespace plait {

namespace {

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
           .dims = "..., ... -> ...",
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
}

}  // namespace plait
