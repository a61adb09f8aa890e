// Pooling over any number of space dims, its inverse, and normalization over neighbouring channels.
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/image/register.h"
#include "core/ops/image/windows.h"

namespace plait {

namespace {

/// The kernel's sizes, one per space dim of x.
std::vector<int64_t> kernel_of(const InferContext& context, const Dims& x) {
  if (x.size() < 3) InferContext::fail(cat("x has rank ", x.size(), ", expected at least 3"));
  check_list(context, "kernel_shape", x.size() - 2, 1);
  std::vector<int64_t> kernel = context.attributes().integers("kernel_shape");
  if (kernel.empty()) InferContext::fail("attribute \"kernel_shape\" is empty");
  return kernel;
}

void infer_pool(InferContext& context) {
  context.set_type(0, context.dtype(0));
  if (context.wants(1)) context.set_type(1, DType::i64);
  const Dims* x = context.dims(0);
  if (!x) return;
  const std::vector<int64_t> kernel = kernel_of(context, *x);
  Dims out{(*x)[0], (*x)[1]};
  for (size_t i = 0; i < kernel.size(); ++i) {
    std::optional<Dim> count = window_count(context, (*x)[i + 2], Dim(kernel[i]), i, kernel.size());
    out.push_back(count ? *count : context.unknown("pool"));
  }
  if (context.wants(1)) context.set_dims(1, out);
  context.set_dims(0, std::move(out));
}

/// Space is whole, batch and channels are free; positions are counted over the whole array, so they are not.
std::string pool_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t space = rank_of(in[0]) - 2;
  const bool numbered = node.outputs.size() > 1 && node.outputs[1] != no_value;
  const std::string own = numbered ? "[b] [c]" : "b c", to = own + space_dims(space, space);
  return rule_text({own + space_dims(0, space)}, numbered ? std::vector{to, to} : std::vector{to});
}

void infer_global_pool(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* x = context.dims(0);
  if (!x) return;
  Dims out(x->size(), Dim(1));
  out[0] = (*x)[0];
  out[1] = (*x)[1];
  context.set_dims(0, std::move(out));
}

std::string global_pool_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t space = rank_of(in[0]) - 2;
  std::string out = "b c";
  for (size_t i = 0; i < space; ++i) out += " 1";
  return rule_text({cat("b c", space_dims(0, space))}, {out});
}

void infer_max_unpool(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *wanted = context.contents(2);
  if (!x) return;
  const std::vector<int64_t> kernel = kernel_of(context, *x);
  if (context.has(2)) {
    if (wanted && wanted->size() != x->size())
      InferContext::fail(cat("output_shape has ", wanted->size(), " entries, expected ", x->size()));
    return context.set_dims(0, wanted ? *wanted : unknown_dims(context, x->size(), "unpool"));
  }
  Dims out{(*x)[0], (*x)[1]};
  for (size_t i = 0; i < kernel.size(); ++i)
    out.push_back(unpooled_size(context, (*x)[i + 2], Dim(kernel[i]), i, kernel.size()));
  context.set_dims(0, std::move(out));
}

/// Neighbouring channels are read.
std::string lrn_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames names = dim_names(rank_of(in[0]));
  names[1] = whole(names[1]);
  return rule_text({spaced(names)}, {spaced(names)});
}

}  // namespace

void register_pooling(OpSet& ops) {
  const std::vector<AttributeRow> sliding{
      {"auto_pad", "string", "NOTSET"},     {"ceil_mode", "int", "0"}, {"dilations", "ints", "1"},
      {"kernel_shape", "ints", "required"}, {"pads", "ints", "0"},     {"strides", "ints", "1"}};
  auto with = [&](AttributeRow row) {
    std::vector<AttributeRow> out = sliding;
    out.push_back(std::move(row));
    return out;
  };
  constexpr const char* dims = "b c [x] -> b c [y]";
  ops.add({.name = "MaxPool",
           .inputs = "x",
           .outputs = "y indices?",
           .attributes = with({"storage_order", "int", "0"}),
           .dims = dims,
           .dims_of = pool_dims,
           .ranks = "3-",
           .infer = infer_pool,
           .doc = "the greatest of each window, and where it is",
           .since = 22});
  ops.add({.name = "AveragePool",
           .inputs = "x",
           .outputs = "y",
           .attributes = with({"count_include_pad", "int", "0"}),
           .dims = dims,
           .dims_of = pool_dims,
           .ranks = "3-",
           .infer = infer_pool,
           .doc = "the mean of each window",
           .since = 22});
  ops.add({.name = "LpPool",
           .inputs = "x",
           .outputs = "y",
           .attributes = with({"p", "int", "2"}),
           .dims = dims,
           .dims_of = pool_dims,
           .ranks = "3-",
           .infer = infer_pool,
           .doc = "the p norm of each window",
           .since = 22});
  constexpr const char* global = "b c [x] -> b c 1";
  ops.add({.name = "GlobalMaxPool",
           .inputs = "x",
           .outputs = "y",
           .dims = global,
           .dims_of = global_pool_dims,
           .ranks = "2-",
           .infer = infer_global_pool,
           .doc = "the greatest of each channel",
           .since = 22});
  ops.add({.name = "GlobalAveragePool",
           .inputs = "x",
           .outputs = "y",
           .dims = global,
           .dims_of = global_pool_dims,
           .ranks = "2-",
           .infer = infer_global_pool,
           .doc = "the mean of each channel",
           .since = 22});
  ops.add({.name = "GlobalLpPool",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"p", "int", "2"}},
           .dims = global,
           .dims_of = global_pool_dims,
           .ranks = "2-",
           .infer = infer_global_pool,
           .doc = "the p norm of each channel",
           .since = 22});
  ops.add({.name = "MaxUnpool",
           .inputs = "x indices output_shape?",
           .outputs = "output",
           .attributes = {{"kernel_shape", "ints", "required"}, {"pads", "ints", "0"}, {"strides", "ints", "1"}},
           .ranks = "3-, 3-, 1",
           .infer = infer_max_unpool,
           .doc = "the results of MaxPool where they came from, zeros elsewhere",
           .since = 22});
  ops.add({.name = "LRN",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"alpha", "float", "0.0001"},
                          {"beta", "float", "0.75"},
                          {"bias", "float", "1"},
                          {"size", "int", "required"}},
           .dims = "b [c] x -> b [c] x",
           .dims_of = lrn_dims,
           .ranks = "2-",
           .doc = "x over a power of the squares of neighbouring channels (Krizhevsky et al. 2012)",
           .since = 13});
}

}  // namespace plait
