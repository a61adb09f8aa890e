// Gradients of ops that read an image at places between its elements, or put it together of parts.
#include "core/graph/gradient.h"
#include "core/ops/base/rows.h"
#include "core/ops/gradients/gradients.h"

namespace plait {

namespace {

/// A linear map of x, whose transpose needs x only for its sizes.
void of_resize(GradientContext& context) {
  std::vector<ValueId> inputs{context.gradient(), context.sizes(context.input(0))};
  for (size_t k = 1; k < context.node().inputs.size(); ++k) inputs.push_back(context.input(k));
  while (inputs.back() == no_value) inputs.pop_back();
  context.give(0, context.add("plait.ResizeBack", std::move(inputs), context.attributes()));
}

void of_grid_sample(GradientContext& context) {
  const std::vector<ValueId> back =
      context.add_all("plait.GridSampleBack", {context.gradient(), context.input(0), context.input(1)},
                      {context.wants(0), context.wants(1)}, context.attributes());
  context.give(0, back[0]);
  context.give(1, back[1]);
}

/// theta is multiplied by the places of the output, which the identity's grid has.
void of_affine_grid(GradientContext& context) {
  const ValueId theta = context.input(0), dy = context.gradient();
  const Dims grid = context.dims(dy);
  const Dim space(static_cast<int64_t>(grid.size()) - 2);
  Dims size{Dim(1), Dim(1)}, places{Dim(1)}, flat{grid[0], Dim(1), space};
  for (size_t i = 1; i + 1 < grid.size(); ++i) {
    size.push_back(grid[i]);
    places.push_back(grid[i]);
    flat[1] = flat[1] * grid[i];
  }
  places.push_back(Dim(1));
  const Dims map{space, space + Dim(1)};
  const ValueId identity =
      context.add("EyeLike", {context.add("Expand", {context.number(0, theta), context.sizes(map)})});
  const ValueId base =
      context.add("AffineGrid", {context.reshaped(identity, Dims{Dim(1), map[0], map[1]}), context.sizes(size)},
                  context.attributes());
  const ValueId ones = context.add("Expand", {context.number(1, theta), context.sizes(places)});
  const Attributes last = one_attribute("axis", static_cast<int64_t>(grid.size()) - 1),
                   swapped = one_attribute("perm", std::vector<int64_t>{0, 2, 1});
  const ValueId rows = context.reshaped(context.add("Concat", {base, ones}, last), Dims{flat[1], map[1]});
  const ValueId across = context.add("Transpose", {context.reshaped(dy, flat)}, swapped);
  context.give(0, context.reshaped(context.add("MatMul", {across, rows}), theta));
}

/// Boxes have none.
template <const char* op>
void of_boxes(GradientContext& context) {
  std::vector<ValueId> inputs = context.node().inputs;
  inputs.insert(inputs.begin(), context.gradient());
  context.give(0, context.add(op, std::move(inputs), context.attributes()));
}

void of_deform_conv(GradientContext& context) {
  constexpr size_t trained[] = {0, 1, 2, 4};
  std::vector<ValueId> inputs{context.gradient()};
  std::vector<bool> made;
  for (size_t k : trained) {
    inputs.push_back(context.input(k));
    made.push_back(context.wants(k));
  }
  if (inputs.back() == no_value) inputs.pop_back();
  const std::vector<ValueId> back =
      context.add_all("plait.DeformConvBack", std::move(inputs), made, context.attributes());
  for (size_t i = 0; i < made.size(); ++i) context.give(trained[i], back[i]);
  if (!context.wants(3)) return;
  std::vector<int64_t> axes{0};
  for (size_t i = 2; i < context.dims(context.gradient()).size(); ++i) axes.push_back(static_cast<int64_t>(i));
  context.give(3, context.reshaped(context.sum(context.gradient(), std::move(axes)), context.input(3)));
}

/// Columns are read from the image where they were added: a convolution by weights that each pick one element.
void of_columns(GradientContext& context) {
  const ValueId x = context.input(0), dy = context.gradient();
  const std::optional<std::vector<int64_t>> block = context.constants(context.input(2));
  if (!block) GradientContext::fail("the sizes of its blocks are known only when it runs");
  int64_t taps = 1;
  for (int64_t size : *block) taps *= size;
  const std::optional<Dim> channels = context.dims(x)[1].divided(Dim(taps));
  if (!channels) GradientContext::fail("its channels are known only when it runs");
  Dims image = context.dims(dy), kernel{Dim(taps), Dim(1)};
  image[0] = image[0] * *channels;
  image[1] = Dim(1);
  for (int64_t size : *block) kernel.push_back(Dim(size));
  const ValueId square = context.add("Expand", {context.number(0, dy), context.integers({taps, taps})});
  const ValueId picked =
      context.add("Conv", {context.reshaped(dy, image), context.reshaped(context.add("EyeLike", {square}), kernel)},
                  context.kept({"dilations", "pads", "strides"}));
  context.give(0, context.reshaped(picked, x));
}

/// What the indices of a MaxUnpool number: the results for sizes as they follow from the windows, at the begin of each dim.
ValueId numbered_part(GradientContext& context, ValueId dy) {
  const Dims x = context.dims(context.input(0)), all = context.dims(dy);
  const std::vector<int64_t> kernel = context.attributes().integers("kernel_shape"),
                             pads = context.attributes().integers("pads"),
                             strides = context.attributes().integers("strides");
  Dims part = x;
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t stride = i < strides.size() ? strides[i] : 1;
    const int64_t padding = i + kernel.size() < pads.size() ? pads[i] + pads[i + kernel.size()] : 0;
    part[i + 2] = x[i + 2] * Dim(stride) + Dim(kernel[i] - stride - padding);
    const Dim more = all[i + 2] - part[i + 2];
    if (!more.is_constant() || more.constant() < 0)
      GradientContext::fail("an output_shape that may be smaller than the windows' has none");
  }
  std::vector<int64_t> axes(x.size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  return context.add(
      "Slice", {dy, context.integers(std::vector<int64_t>(x.size())), context.sizes(part), context.integers(axes)});
}

/// Of the elements where x was put.
void of_unpool(GradientContext& context) {
  ValueId dy = context.gradient();
  if (context.input(2) != no_value) dy = numbered_part(context, dy);
  const ValueId flat = context.reshaped(dy, Dims{product(context.dims(dy))});
  context.give(0, context.add("Gather", {flat, context.input(1)}));
}

/// y = x d^-beta, d = bias + alpha times the mean of the squares of channels nearby, those beyond the ends being zeros.
void of_local_response(GradientContext& context) {
  const ValueId x = context.input(0), dy = context.gradient();
  const Attributes& given = context.attributes();
  const double alpha = given.real("alpha", 0.0001), beta = given.real("beta", 0.75);
  const int64_t size = given.integer("size"), before = (size - 1) / 2, after = size - 1 - before;
  const Dims dims = context.dims(x);
  Dims flat{dims[0], Dim(1), dims[1], Dim(1)};
  for (size_t i = 2; i < dims.size(); ++i) flat[3] = flat[3] * dims[i];
  auto mean_nearby = [&](ValueId value, int64_t first, int64_t last) {
    Attributes window;
    window.set("kernel_shape", std::vector<int64_t>{size, 1});
    window.set("pads", std::vector<int64_t>{first, 0, last, 0});
    window.set("count_include_pad", int64_t{1});
    return context.reshaped(context.add("AveragePool", {context.reshaped(value, flat)}, std::move(window)), dims);
  };
  auto number = [&](double value) { return context.number(value, x); };
  const ValueId nearby = context.times(mean_nearby(context.times(x, x), before, after), number(alpha));
  const ValueId divisor = context.plus(nearby, number(given.real("bias", 1)));
  const ValueId straight = context.times(dy, context.add("Pow", {divisor, number(-beta)}));
  const ValueId each = context.times(context.over(straight, divisor), x);
  const ValueId around = context.times(context.times(mean_nearby(each, after, before), x), number(2 * alpha * beta));
  context.give(0, context.minus(straight, around));
}

void of_power_pool(GradientContext& context) {
  context.give(0, context.add("plait.LpPoolBack", {context.gradient(), context.input(0)}, context.attributes()));
}

constexpr char roi_align_back[] = "plait.RoiAlignBack", max_roi_pool_back[] = "plait.MaxRoiPoolBack";

}  // namespace

void register_sampling_gradients(OpSet& ops) {
  ops.differentiate("Resize", of_resize);
  ops.differentiate("GridSample", of_grid_sample);
  ops.differentiate("AffineGrid", of_affine_grid);
  ops.differentiate("RoiAlign", of_boxes<roi_align_back>);
  ops.differentiate("MaxRoiPool", of_boxes<max_roi_pool_back>);
  ops.differentiate("DeformConv", of_deform_conv);
  ops.differentiate("Col2Im", of_columns);
  ops.differentiate("MaxUnpool", of_unpool);
  ops.differentiate("LRN", of_local_response);
  ops.differentiate("LpPool", of_power_pool);
  ops.differentiate("GlobalLpPool", of_power_pool);
}

}  // namespace plait
