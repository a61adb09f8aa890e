// Gradients of convolution and pooling.
#include <numeric>

#include "core/base/text.h"
#include "core/graph/gradient.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

/// The window's attributes, with the padding of auto_pad in numbers. `in` are the sizes that windows read, `out` their number.
Attributes padded(GradientContext& context, const Dims& in, const Dims& out, const Dims& kernel) {
  Attributes attributes = context.kept({"dilations", "group", "pads", "strides"});
  const std::string automatic = context.attributes().string("auto_pad", "NOTSET");
  if (automatic == "NOTSET") return attributes;
  attributes.erase("pads");
  if (automatic == "VALID") return attributes;
  const std::vector<int64_t> strides = attributes.integers("strides"), dilations = attributes.integers("dilations");
  std::vector<int64_t> before, after;
  for (size_t i = 0; i + 2 < in.size(); ++i) {
    if (!in[i + 2].is_constant() || !out[i + 2].is_constant() || !kernel[i].is_constant())
      GradientContext::fail("padding to the same size is known only when it runs", "export the model with pads");
    const int64_t stride = i < strides.size() ? strides[i] : 1, dilation = i < dilations.size() ? dilations[i] : 1;
    const int64_t reach = (kernel[i].constant() - 1) * dilation + 1;
    const int64_t total = std::max<int64_t>(0, (out[i + 2].constant() - 1) * stride + reach - in[i + 2].constant());
    before.push_back(automatic == "SAME_UPPER" ? total / 2 : total - total / 2);
    after.push_back(total - before.back());
  }
  before.insert(before.end(), after.begin(), after.end());
  attributes.set("pads", std::move(before));
  return attributes;
}

/// The bias of each channel: the sum over batch and space.
void give_bias(GradientContext& context, ValueId dy) {
  if (!context.wants(2)) return;
  std::vector<int64_t> axes(context.dims(dy).size());
  std::iota(axes.begin(), axes.end(), 0);
  axes.erase(axes.begin() + 1);
  context.give(2, context.reshaped(context.sum(dy, axes), context.input(2)));
}

/// dx is the transposed convolution of dy, as large as x; dw is a sum over windows.
void of_conv(GradientContext& context) {
  const ValueId x = context.input(0), w = context.input(1), dy = context.gradient();
  const Dims in = context.dims(x), out = context.dims(dy), weight = context.dims(w),
             kernel(weight.begin() + 2, weight.end());
  const Attributes window = padded(context, in, out, kernel);
  if (context.wants(0)) {
    Attributes attributes = window;
    const std::vector<int64_t> strides = window.integers("strides"), dilations = window.integers("dilations"),
                               pads = window.integers("pads");
    std::vector<int64_t> rest;  // elements that no window reaches
    for (size_t i = 0; i < kernel.size(); ++i) {
      auto entry = [](const std::vector<int64_t>& list, size_t k, int64_t fallback) {
        return k < list.size() ? list[k] : fallback;
      };
      const int64_t stride = entry(strides, i, 1), pad = entry(pads, i, 0) + entry(pads, i + kernel.size(), 0);
      const Dim reach = Dim(entry(dilations, i, 1)) * (kernel[i] - Dim(1)) + Dim(1);
      const Dim left = in[i + 2] + Dim(pad) - reach - Dim(stride) * (out[i + 2] - Dim(1));
      if (!left.is_constant()) GradientContext::fail("the elements between two windows are known only when it runs");
      rest.push_back(left.constant());
    }
    attributes.set("output_padding", std::move(rest));
    context.give(0, context.add("ConvTranspose", {dy, w}, std::move(attributes)));
  }
  if (context.wants(1)) context.give(1, context.add("plait.ConvWeight", {dy, x, context.sizes(w)}, window));
  give_bias(context, dy);
}

/// The window of the Conv that a ConvTranspose transposes, with pads that follow from a size in numbers.
Attributes untransposed(GradientContext& context, const Dims& in, const Dims& out, const Dims& kernel) {
  Attributes attributes = context.kept({"dilations", "group", "pads", "strides"});
  const std::string automatic = context.attributes().string("auto_pad", "NOTSET");
  const bool sized = !context.attributes().integers("output_shape").empty();
  if (automatic == "NOTSET" && !sized) return attributes;
  attributes.erase("pads");
  if (!sized && automatic == "VALID") return attributes;
  auto entry = [&](const char* name, size_t i, int64_t fallback) {
    const std::vector<int64_t> list = context.attributes().integers(name);
    return i < list.size() ? list[i] : fallback;
  };
  std::vector<int64_t> before, after;
  for (size_t i = 0; i < kernel.size(); ++i) {
    if (!in[i + 2].is_constant() || !out[i + 2].is_constant() || !kernel[i].is_constant())
      GradientContext::fail("pads that follow from a size are known only when it runs", "export the model with pads");
    const int64_t full = (in[i + 2].constant() - 1) * entry("strides", i, 1) +
                         (kernel[i].constant() - 1) * entry("dilations", i, 1) + 1 + entry("output_padding", i, 0);
    const int64_t total = std::max<int64_t>(0, full - out[i + 2].constant());
    before.push_back(automatic == "SAME_UPPER" ? total / 2 : total - total / 2);
    after.push_back(total - before.back());
  }
  before.insert(before.end(), after.begin(), after.end());
  attributes.set("pads", std::move(before));
  return attributes;
}

/// dx is the convolution of dy; dw that of a Conv from y to x.
void of_conv_transpose(GradientContext& context) {
  const ValueId x = context.input(0), w = context.input(1), dy = context.gradient();
  const Dims weight = context.dims(w);
  const Attributes window =
      untransposed(context, context.dims(x), context.dims(dy), {weight.begin() + 2, weight.end()});
  if (context.wants(0)) {
    const ValueId dx = context.add("Conv", {dy, w}, window);  // rounds down what output_padding added
    if (context.dims(dx) != context.dims(x))
      GradientContext::fail("the number of windows is known only when it runs");
    context.give(0, dx);
  }
  if (context.wants(1)) context.give(1, context.add("plait.ConvWeight", {x, dy, context.sizes(w)}, window));
  give_bias(context, dy);
}

/// By the positions of the windows; MaxPool reads x again to find its greatest.
void of_pool(GradientContext& context) {
  if (context.gradient(0) == no_value) GradientContext::fail("only results have a gradient");
  const std::string op = context.node().op;
  context.give(0, context.add(op == "MaxPool" ? "plait.MaxPoolBack" : "plait.AveragePoolBack",
                              {context.gradient(), context.input(0)},
                              context.kept({"auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape",
                                            "pads", "strides"})));
}

/// The mean's share of each element.
void of_global_average(GradientContext& context) {
  const ValueId x = context.input(0);
  Dims space = context.dims(x);
  space.erase(space.begin(), space.begin() + 2);
  const ValueId all = context.add("Expand", {context.gradient(), context.sizes(x)});
  const ValueId count = context.count(product(space), x);
  context.give(0, context.add("Div", {all, count}));
}

}  // namespace

void register_image_gradients(OpSet& ops) {
  ops.differentiate("Conv", of_conv);
  ops.differentiate("ConvTranspose", of_conv_transpose);
  ops.differentiate("MaxPool", of_pool);
  ops.differentiate("AveragePool", of_pool);
  ops.differentiate("GlobalAveragePool", of_global_average);
}

}  // namespace plait
