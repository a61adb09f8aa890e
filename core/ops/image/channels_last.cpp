// Convolution and pooling of images whose channels are the last dim, as pass channels_last makes them.
#include "core/base/elementwise_steps.h"
#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/image/register.h"
#include "core/ops/image/windows.h"

namespace plait {

namespace {

/// x [b, in..., c] -> [b, out..., channels].
void infer_last(InferContext& context, const Dims& x, const Dim& channels, const std::vector<Dim>& kernel) {
  const size_t space = x.size() - 2;
  Dims out{x[0]};
  for (size_t i = 0; i < space; ++i) {
    std::optional<Dim> count = window_count(context, x[i + 1], kernel[i], i, space);
    out.push_back(count ? *count : context.unknown("window"));
  }
  out.push_back(channels);
  context.set_dims(0, std::move(out));
}

void infer_channels_last_conv(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *w = context.dims(1);
  if (!x || !w) return;
  if (w->size() != x->size()) InferContext::fail(cat("x has rank ", x->size(), " and w rank ", w->size()));
  infer_last(context, *x, (*w)[0], {w->begin() + 2, w->end()});
  for (int k = 2; k < context.inputs(); ++k) {
    const Dims* dims = context.dims(k);
    if (!dims) continue;
    const bool deep = dims->size() > x->size();
    if (deep || (!dims->empty() && !is_one(dims->back()) && dims->back().is_constant() && (*w)[0].is_constant() &&
                 dims->back() != (*w)[0]))
      InferContext::fail(cat("operand ", k, " does not broadcast to the result"));
  }
}

void infer_channels_last_pool(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims* x = context.dims(0);
  if (!x) return;
  if (x->size() < 3) InferContext::fail(cat("x has rank ", x->size(), ", expected at least 3"));
  check_list(context, "kernel_shape", x->size() - 2, 1);
  std::vector<Dim> kernel;
  for (int64_t size : context.attributes().integers("kernel_shape")) kernel.emplace_back(size);
  if (kernel.empty()) InferContext::fail("attribute \"kernel_shape\" is empty");
  infer_last(context, *x, x->back(), kernel);
}

/// The type of attribute "to", or of an operand of floats, f32 if there is none.
DType elementwise_type(const InferContext& context) {
  DType out = DType::none;
  for (int k = 0; k < context.inputs(); ++k) {
    const DType dtype = context.dtype(k);
    if (is_float(dtype) && out == DType::none) out = dtype;
    else if (dtype != out && dtype != DType::none && !is_step_integer(dtype))
      InferContext::fail(
          cat("operand ", k, " is of ", dtype_name(dtype), ", and chains are of floats of one type, u8, i8 and i32"));
  }
  if (!context.attributes().has("to")) return out == DType::none ? DType::f32 : out;
  const auto to = static_cast<DType>(context.attributes().integer("to", 0));
  if (to != DType::u8 && to != DType::i8) InferContext::fail("attribute \"to\" is not of 8-bit integers");
  const int64_t zero = context.attributes().integer("zero", 0), low = to == DType::u8 ? 0 : -128;
  if (zero < low || zero > low + 255)
    InferContext::fail(cat("attribute \"zero\" is ", zero, ", no ", dtype_name(to)));
  return to;
}

/// The dims to which all operands broadcast.
void infer_elementwise(InferContext& context) {
  context.set_type(0, elementwise_type(context));
  Dims out;
  for (int k = 0; k < context.inputs(); ++k) {
    const Dims* dims = context.dims(k);
    if (!dims) return;
    if (dims->size() > out.size()) out.insert(out.begin(), dims->size() - out.size(), Dim(1));
    for (size_t i = 0; i < dims->size(); ++i) {
      Dim& to = out[out.size() - dims->size() + i];
      const Dim& from = (*dims)[i];
      if (is_one(to)) to = from;
      else if (!is_one(from) && from.is_constant() && to.is_constant() && from != to)
        InferContext::fail(cat("operand ", k, " has ", from.constant(), " elements along a dim of ", to.constant()));
    }
  }
  context.set_dims(0, std::move(out));
}

}  // namespace

void register_channels_last(OpSet& ops) {
  const std::vector<AttributeRow> sliding{{"auto_pad", "string", "NOTSET"},
                                          {"dilations", "ints", "1"},
                                          {"kernel_shape", "ints", ""},
                                          {"pads", "ints", "0"},
                                          {"strides", "ints", "1"}};
  std::vector<AttributeRow> conv = sliding, pool = sliding;
  conv.push_back({"group", "int", "1"});
  conv.push_back({"steps", "strings", ""});
  for (AttributeRow row : {AttributeRow{"ceil_mode", "int", "0"}, AttributeRow{"count_include_pad", "int", "0"},
                           AttributeRow{"kind", "string", "required"}})
    pool.push_back(std::move(row));
  ops.add({.name = "plait.ChannelsLastConv",
           .inputs = "x w operands...",
           .outputs = "y",
           .attributes = conv,
           .ranks = "3-, 3-",
           .infer = infer_channels_last_conv,
           .doc = "Conv of x [b, in, c] to [b, out, m] with its w [m, c / group, kernel], and element-wise steps on "
                  "the result "
                  "(register 0)"});
  ops.add({.name = "plait.ChannelsLastPool",
           .inputs = "x",
           .outputs = "y",
           .attributes = pool,
           .ranks = "3-",
           .infer = infer_channels_last_pool,
           .doc = "MaxPool or AveragePool (kind max, mean) of x [b, in, c]"});
  ops.add(
      {.name = "plait.Elementwise",
       .inputs = "operands...",
       .outputs = "y",
       .attributes = {{"steps", "strings", "required"}, {"to", "int", ""}, {"zero", "int", "0"}},
       .infer = infer_elementwise,
       .doc =
           "a chain of element-wise ops on operands that broadcast, in one pass; with `to` (u8, i8) its results are "
           "rounded to even, and codes are saturate(result + zero)"});
}

}  // namespace plait
