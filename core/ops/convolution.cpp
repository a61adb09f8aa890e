// Convolutions over any number of space dims.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"
#include "core/ops/shape_arithmetic.h"

namespace plait {

namespace {

/// Entry `i` of a list attribute with one entry per space dim.
int64_t listed(const std::vector<int64_t>& list, size_t i, int64_t fallback) {
  return i < list.size() ? list[i] : fallback;
}

/// One output size: (n + pads - reach) / stride + 1, rounded down; SAME_* pads to ceil(n / stride).
std::optional<Dim> window_count(InferContext& context, const Dim& size, const Dim& kernel, size_t i, size_t space) {
  const Attributes& attributes = context.attributes();
  Dim stride(listed(attributes.integers("strides"), i, 1)), dilation(listed(attributes.integers("dilations"), i, 1));
  if (stride.constant() < 1 || dilation.constant() < 1) InferContext::fail("strides and dilations are at least 1");
  std::string automatic = attributes.string("auto_pad", "NOTSET");
  if (automatic.starts_with("SAME")) return known_ceiling(size, stride);
  Dim pads;
  std::vector<int64_t> given = attributes.integers("pads");
  if (!given.empty() && given.size() != 2 * space)
    InferContext::fail(cat("attribute \"pads\" has ", given.size(), " entries, expected ", 2 * space));
  if (automatic == "NOTSET") pads = Dim(listed(given, i, 0)) + Dim(listed(given, i + space, 0));
  std::optional<Dim> steps = known_floor(size + pads - dilation * (kernel - Dim(1)) - Dim(1), stride);
  if (!steps) return std::nullopt;
  return *steps + Dim(1);
}

void infer_conv(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *w = context.dims(1);
  if (!x || !w) return;
  if (x->size() < 3 || w->size() != x->size())
    InferContext::fail(cat("x has rank ", x->size(), " and w rank ", w->size(), ", expected the same, at least 3"));
  size_t space = x->size() - 2;
  Dims out{(*x)[0], (*w)[0]};
  for (size_t i = 0; i < space; ++i) {
    std::optional<Dim> count = window_count(context, (*x)[i + 2], (*w)[i + 2], i, space);
    out.push_back(count ? *count : context.unknown("conv"));
  }
  context.set_dims(0, std::move(out));
}

std::string conv_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  size_t space = rank_of(in[0]) - 2;
  bool bias = in.size() > 2 && in[2].dims, grouped = node.attributes.integer("group", 1) != 1;
  std::string c = bias ? "[c]" : "c", star = bias ? "" : "*", m = grouped ? "(g m)" : "m";
  auto spaces = [&](size_t first) {
    std::string out;
    for (size_t i = 0; i < space; ++i) out += cat(" [x", first + i, "]");
    return out;
  };
  std::string x = cat(star, "b ", grouped ? cat("(g ", c, ")") : c, spaces(0));
  std::string w = cat(star, m, " ", c, spaces(space)), y = cat("b ", m, spaces(2 * space));
  return rule_text({x, w, m}, {y});
}

}  // namespace

void register_convolution(OpSet& ops) {
  ops.add({.name = "Conv", .inputs = "x w b?", .outputs = "y",
           .attributes = {{"auto_pad", "string", "NOTSET"}, {"dilations", "ints", "1"}, {"group", "int", "1"},
                          {"kernel_shape", "ints", ""}, {"pads", "ints", "0"}, {"strides", "ints", "1"}},
           .dims = "b [c] [x], m [c] [k], m -> b m [y]", .dims_of = conv_dims, .infer = infer_conv,
           .doc = "a kernel slid over space, each group of channels by itself", .since = 22});
}

}  // namespace plait
