// Collectives that pass `shard` inserts: steps from one sharding to another (core/mesh/sharding.h), by all ranks of
// the groups along `axes`. They have no dims rule: they cannot be sharded further. And plait.Cross, which pass `stage`
// inserts between pipeline stages.
#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

int64_t parts_of(const InferContext& context) { return context.attributes().integer("parts"); }

/// Multiplies or divides the size of dim `name` (an attribute) by the number of parts.
void scale(InferContext& context, Dims& dims, std::string_view name, bool divide) {
  Dim& size = dims[checked_axis(context.attributes().integer(name), dims.size())];
  if (!divide) {
    size = size * Dim(parts_of(context));
    return;
  }
  std::optional<Dim> part = size.divided(Dim(parts_of(context)));
  if (!part) InferContext::fail(cat("a dimension does not divide into ", parts_of(context), " parts"));
  size = *part;
}

void infer_part(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (!context.dims(0)) return;
  Dims dims = *context.dims(0);
  scale(context, dims, "dim", true);
  context.set_dims(0, std::move(dims));
}

void infer_all_gather(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (!context.dims(0)) return;
  Dims dims = *context.dims(0);
  scale(context, dims, "dim", false);
  context.set_dims(0, std::move(dims));
}

void infer_exchange(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (!context.dims(0)) return;
  Dims dims = *context.dims(0);
  scale(context, dims, "dim", false);
  scale(context, dims, "to_dim", true);
  context.set_dims(0, std::move(dims));
}

/// The gradient crosses the other way.
void of_cross(GradientContext& context) {
  Attributes back;
  back.set("from", context.attributes().integer("to"));
  back.set("to", context.attributes().integer("from"));
  context.give(0, context.add("plait.Cross", {context.gradient()}, std::move(back)));
}

}  // namespace

void register_collectives(OpSet& ops) {
  const AttributeRow axes{"axes", "string", "required"}, parts{"parts", "int", "required"},
      reduction{"reduction", "string", "sum"}, dim{"dim", "int", "required"}, to_dim{"to_dim", "int", "required"},
      async{"async", "int", "0"};  // whether it may run while later nodes do
  ops.add({.name = "plait.AllReduce",
           .inputs = "x",
           .outputs = "y",
           .attributes = {axes, parts, reduction, async},
           .infer = infer_same,
           .doc = "the sum, max or min of all ranks' x, on each"});
  ops.add({.name = "plait.ReduceScatter",
           .inputs = "x",
           .outputs = "y",
           .attributes = {axes, parts, reduction, dim, async},
           .infer = infer_part,
           .doc = "this rank's block of that along a dim"});
  ops.add({.name = "plait.AllGather",
           .inputs = "x",
           .outputs = "y",
           .attributes = {axes, parts, dim, async},
           .infer = infer_all_gather,
           .doc = "all ranks' x along a dim"});
  ops.add({.name = "plait.AllToAll",
           .inputs = "x",
           .outputs = "y",
           .attributes = {axes, parts, dim, to_dim, async},
           .infer = infer_exchange,
           .doc = "all ranks' x along `dim`, of which each has its block of `to_dim`"});
  ops.add({.name = "plait.Shard",
           .inputs = "x",
           .outputs = "y",
           .attributes = {axes, parts, dim},
           .infer = infer_part,
           .doc = "the rank's block of a dim that all ranks have whole"});
  ops.add({.name = "plait.Cross",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"from", "int", "required"}, {"to", "int", "required"}},
           .dims = "*... -> ...",
           .gradient = of_cross,
           .view = true,
           .doc = "x of pipeline stage `from` on stage `to`"});
}

}  // namespace plait
