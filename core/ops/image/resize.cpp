// Ops that sample an image at places between its elements: Resize, GridSample, AffineGrid, RoiAlign, MaxRoiPool.
#include <cmath>

#include "core/base/text.h"
#include "core/ops/base/rows.h"
#include "core/ops/base/shape_arithmetic.h"
#include "core/ops/image/register.h"
#include "core/ops/image/windows.h"

namespace plait {

namespace {

// ---- Resize ----

/// floor(size * scale), as f32; nullopt for a symbolic size that no whole number scales.
std::optional<Dim> scaled(const Dim& size, float scale) {
  if (!(scale > 0 && scale < 1e9f))
    InferContext::fail(cat("a scale is ", scale, ", expected more than 0 and less than 1e9"));
  if (size.is_constant()) {
    const float scaled = std::floor(static_cast<float>(size.constant()) * scale);
    if (!(scaled >= 0 && scaled < 1e15f)) InferContext::fail(cat("a size would be ", scaled));
    return Dim(static_cast<int64_t>(scaled));
  }
  if (scale == std::floor(scale) && scale < 1e6f) return size * Dim(static_cast<int64_t>(scale));
  const float inverse = std::round(1 / scale);
  if (inverse < 1e6f && 1 / inverse == scale) return known_floor(size, Dim(static_cast<int64_t>(inverse)));
  return std::nullopt;
}

/// The sizes of the listed axes scaled alike, so that all are at most, or at least, what is wanted; nullopt if one is symbolic.
std::optional<Dims> kept_ratio(const Dims& x, const std::vector<size_t>& axes, const Dims& wanted, bool larger) {
  std::optional<double> scale;
  for (size_t k = 0; k < axes.size(); ++k) {
    if (!x[axes[k]].is_constant() || !wanted[k].is_constant()) return std::nullopt;
    const double own = static_cast<double>(wanted[k].constant()) / static_cast<double>(x[axes[k]].constant());
    scale = !scale ? own : larger ? std::max(*scale, own) : std::min(*scale, own);
  }
  Dims out;
  for (size_t axis : axes) {
    const double size = std::floor(*scale * static_cast<double>(x[axis].constant()) + 0.5);
    constexpr double most = 1e15;
    if (!(size >= 0 && size < most)) InferContext::fail(cat("axis ", axis, " would have ", size, " elements"));
    out.push_back(Dim(static_cast<int64_t>(size)));
  }
  return out;
}

/// Whether the optional operand is there with elements: older files pass empty ones.
bool is_given(const InferContext& context, int input) {
  if (!context.has(input)) return false;
  const Dims* dims = context.dims(input);
  return !dims || dims->size() != 1 || (*dims)[0] != Dim(0);
}

std::vector<size_t> resized_axes(const Attributes& attributes, size_t rank) {
  std::vector<size_t> out;
  for (int64_t axis : attributes.integers("axes")) out.push_back(checked_axis(axis, rank));
  for (size_t i = 0; out.size() < rank && attributes.integers("axes").empty(); ++i) out.push_back(i);
  return out;
}

void infer_resize(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Attributes& attributes = context.attributes();
  if (context.dtype(0) == DType::string &&
      (attributes.string("mode", "nearest") != "nearest" ||
       attributes.string("coordinate_transformation_mode", "") == "tf_crop_and_resize"))
    InferContext::fail("strings are only copied: by mode \"nearest\", without places outside of x");
  const Dims* x = context.dims(0);
  if (!x) return;
  const std::vector<size_t> axes = resized_axes(context.attributes(), x->size());
  const bool by_scale = is_given(context, 2), by_size = is_given(context, 3);
  if (by_scale == by_size) InferContext::fail("one of scales and sizes is expected");
  const Tensor* scales = by_scale ? context.constant(2) : nullptr;
  const Dims* sizes = by_size ? context.contents(3) : nullptr;
  const size_t given = scales ? static_cast<size_t>(scales->elements()) : sizes ? sizes->size() : axes.size();
  if (given != axes.size()) InferContext::fail(cat(given, " sizes or scales for ", axes.size(), " axes"));
  Dims out = *x;
  std::optional<Dims> kept;
  const std::string policy = context.attributes().string("keep_aspect_ratio_policy", "stretch");
  if (sizes && policy == "stretch") kept = *sizes;
  else if (sizes) kept = kept_ratio(*x, axes, *sizes, policy == "not_smaller");
  for (size_t k = 0; k < axes.size(); ++k) {
    std::optional<Dim> size;
    if (kept) size = (*kept)[k];
    else if (scales) size = scaled((*x)[axes[k]], reinterpret_cast<const float*>(scales->data())[k]);
    out[axes[k]] = size ? *size : context.unknown("resize");
  }
  context.set_dims(0, std::move(out));
}

/// Dims that are not resized are free.
std::string resize_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t rank = rank_of(in[0]);
  DimNames from = all_whole(dim_names(rank)), to = all_whole(dim_names(rank, rank));
  const std::vector<int64_t> axes = node.attributes.integers("axes");
  if (axes.empty()) return "";
  std::vector<bool> resized(rank);
  for (int64_t axis : axes)
    if (std::optional<size_t> at = maybe_axis(axis, rank)) resized[*at] = true;
  for (size_t i = 0; i < rank; ++i)
    if (!resized[i]) from[i] = to[i] = factor_name(i);
  std::vector<std::string> operands{spaced(from)};
  for (size_t k = 1; k < in.size(); ++k) operands.push_back(is_absent(in, k) ? "" : whole(cat("n", k)));
  return rule_text(operands, {spaced(to)});
}

/// The sizes are operand 1.
void infer_resize_back(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *dy = context.dims(0), *sizes = context.contents(1);
  if (!dy) return;
  if (sizes && sizes->size() != dy->size())
    InferContext::fail(cat("dy has rank ", dy->size(), " for ", sizes->size(), " sizes of x"));
  const size_t axes = resized_axes(context.attributes(), dy->size()).size();
  if (const Tensor* scales = is_given(context, 3) ? context.constant(3) : nullptr) {
    if (static_cast<size_t>(scales->elements()) != axes)
      InferContext::fail(cat(scales->elements(), " scales for ", axes, " axes"));
    for (size_t k = 0; k < axes; ++k) scaled(Dim(1), reinterpret_cast<const float*>(scales->data())[k]);
  }
  context.set_dims(0, sizes ? *sizes : unknown_dims(context, dy->size(), "resize"));
}

/// Dims that are not resized are free.
std::string resize_back_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t rank = rank_of(in[0]);
  DimNames from = all_whole(dim_names(rank, rank)), to = all_whole(dim_names(rank));
  const std::vector<int64_t> axes = node.attributes.integers("axes");
  if (axes.empty()) return "";
  std::vector<bool> resized(rank);
  for (int64_t axis : axes)
    if (std::optional<size_t> at = maybe_axis(axis, rank)) resized[*at] = true;
  for (size_t i = 0; i < rank; ++i)
    if (!resized[i]) from[i] = to[i] = factor_name(i);
  std::vector<std::string> operands{cat("*", spaced(from))};
  for (size_t k = 1; k < in.size(); ++k) operands.push_back(is_absent(in, k) ? "" : whole(cat("n", k)));
  return rule_text(operands, {spaced(to)});
}

// ---- Sampling ----

/// x [b, c, in...], grid [b, out..., n] -> [b, c, out...]
void infer_grid_sample(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *grid = context.dims(1);
  if (!x || !grid) return;
  if (x->size() != grid->size() || grid->back() != Dim(static_cast<int64_t>(x->size()) - 2))
    if (x->size() != grid->size() || grid->back().is_constant())
      InferContext::fail(cat("grid has rank ", grid->size(), " for x of rank ", x->size(),
                             ", or another last dim than x has space dims"));
  Dims out{(*x)[0], (*x)[1]};
  out.insert(out.end(), grid->begin() + 1, grid->end() - 1);
  context.set_dims(0, std::move(out));
}

std::string grid_sample_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  const size_t space = rank_of(in[0]) - 2;
  std::string out;
  for (size_t i = 0; i < space; ++i) out += cat(" y", i);
  return rule_text({cat("b c", space_dims(0, space)), cat("b", out, " ", space)}, {cat("b c", out)});
}

/// Gradients of x are sums over places, those of the grid over channels.
std::string grid_sample_back_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>& out) {
  const size_t space = rank_of(in[1]) - 2;
  std::string places;
  for (size_t i = 0; i < space; ++i) places += cat(" y", i);
  const std::string x = cat("b c", space_dims(0, space)), grid = cat("b", places, " ", space);
  std::vector<std::string> results{cat(x, " {all}"), cat(grid, " {all}")};
  results.resize(std::min(results.size(), out.size()));
  for (size_t k = 0; k < results.size(); ++k)
    if (out[k].dtype == DType::none) results[k].clear();
  return rule_text({cat("*b c", places), x, grid}, results);
}

/// theta [b, n, n + 1], size i64 [n + 2] -> [b, size[2:]..., n]
void infer_affine_grid(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *theta = context.dims(0), *size = context.contents(1);
  std::optional<size_t> rank = known_length(context.dims(1));
  if (!theta || !rank) return;
  if (*rank != 4 && *rank != 5) InferContext::fail(cat("size has ", *rank, " entries, expected 4 or 5"));
  Dims out{(*theta)[0]};
  for (size_t i = 2; i < *rank; ++i) out.push_back(size ? (*size)[i] : context.unknown("grid"));
  out.push_back(Dim(static_cast<int64_t>(*rank) - 2));
  context.set_dims(0, std::move(out));
}

/// x [b, c, h, w], rois [n, 4], batch_indices [n] -> [n, c, output_height, output_width]
void infer_roi_align(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *rois = context.dims(1);
  if (!x || !rois) return;
  const Attributes& attributes = context.attributes();
  context.set_dims(0, {(*rois)[0], (*x)[1], Dim(attributes.integer("output_height", 1)),
                       Dim(attributes.integer("output_width", 1))});
}

/// rois [n, 5]: the image's number and a box.
void infer_max_roi_pool(InferContext& context) {
  context.set_type(0, context.dtype(0));
  const Dims *x = context.dims(0), *rois = context.dims(1);
  if (!x || !rois) return;
  check_list(context, "pooled_shape", 2, 1);
  const std::vector<int64_t> pooled = context.attributes().integers("pooled_shape");
  context.set_dims(0, {(*rois)[0], (*x)[1], Dim(listed(pooled, 0, 1)), Dim(listed(pooled, 1, 1))});
}

}  // namespace

namespace {

std::vector<AttributeRow> resize_attributes() {
  return {{"antialias", "int", "0"},
          {"axes", "ints", ""},
          {"coordinate_transformation_mode", "string", "half_pixel"},
          {"cubic_coeff_a", "float", "-0.75"},
          {"exclude_outside", "int", "0"},
          {"extrapolation_value", "float", "0"},
          {"keep_aspect_ratio_policy", "string", "stretch"},
          {"mode", "string", "nearest"},
          {"nearest_mode", "string", "round_prefer_floor"}};
}

const std::vector<AttributeRow> grid_attributes{
    {"align_corners", "int", "0"}, {"mode", "string", "linear"}, {"padding_mode", "string", "zeros"}};

const std::vector<AttributeRow> roi_attributes{{"coordinate_transformation_mode", "string", "half_pixel"},
                                               {"mode", "string", "avg"},
                                               {"output_height", "int", "1"},
                                               {"output_width", "int", "1"},
                                               {"sampling_ratio", "int", "0"},
                                               {"spatial_scale", "float", "1"}};

const std::vector<AttributeRow> max_roi_attributes{{"pooled_shape", "ints", "required"},
                                                   {"spatial_scale", "float", "1"}};

void register_sampling_back(OpSet& ops) {
  ops.add({.name = "plait.ResizeBack",
           .inputs = "dy shape roi? scales? sizes?",
           .outputs = "dx",
           .attributes = resize_attributes(),
           .dims = "*b c [y], [n] -> b c [x]",
           .dims_of = resize_back_dims,
           .target = 1,
           .ranks = ", 1, 1, 1, 1",
           .infer = infer_resize_back,
           .doc = "the gradient of Resize: dy added to what it was sampled from"});
  ops.add({.name = "plait.GridSampleBack",
           .inputs = "dy x grid",
           .outputs = "dx? dgrid?",
           .attributes = grid_attributes,
           .dims = "*b c y z, b c [h] [w], b y z 2 -> b c [h] [w] {all}, b y z 2 {all}",
           .dims_of = grid_sample_back_dims,
           .ranks = "3-, 3-, 3-",
           .infer = infer_gradients<1, 2>,
           .doc = "the gradients of GridSample"});
  ops.add({.name = "plait.RoiAlignBack",
           .inputs = "dy x rois batch_indices",
           .outputs = "dx",
           .attributes = roi_attributes,
           .dims = "*n c [y] [z], [b] c [h] [w], n 4, n -> [b] c [h] [w]",
           .ranks = "4, 4, 2, 1",
           .infer = infer_gradients<1>,
           .doc = "the gradient of RoiAlign"});
  ops.add({.name = "plait.MaxRoiPoolBack",
           .inputs = "dy x rois",
           .outputs = "dx",
           .attributes = max_roi_attributes,
           .dims = "*n c [y] [z], [b] c [h] [w], n 5 -> [b] c [h] [w]",
           .ranks = "4, 4, 2",
           .infer = infer_gradients<1>,
           .doc = "the gradient of MaxRoiPool: to the greatest of each part"});
}

}  // namespace

void register_resize(OpSet& ops) {
  register_sampling_back(ops);
  ops.add({.name = "Resize",
           .inputs = "x roi!? scales!? sizes?",
           .outputs = "y",
           .attributes = resize_attributes(),
           .dims = "b c [x] -> b c [y]",
           .dims_of = resize_dims,
           .ranks = ", 1, 1, 1",
           .infer = infer_resize,
           .doc = "x sampled at more or fewer places",
           .since = 19});
  ops.add({.name = "GridSample",
           .inputs = "x grid",
           .outputs = "y",
           .attributes = grid_attributes,
           .dims = "b c [h] [w], b y z 2 -> b c y z",
           .dims_of = grid_sample_dims,
           .ranks = "3-, 3-",
           .infer = infer_grid_sample,
           .doc = "x at the places of a grid (Jaderberg et al. 2015)",
           .since = 22});
  ops.add({.name = "AffineGrid",
           .inputs = "theta size",
           .outputs = "grid",
           .attributes = {{"align_corners", "int", "0"}},
           .ranks = "3, 1",
           .infer = infer_affine_grid,
           .doc = "the places of an image under an affine map",
           .since = 20});
  ops.add({.name = "RoiAlign",
           .inputs = "x rois! batch_indices",
           .outputs = "y",
           .attributes = roi_attributes,
           .dims = "[b] c [h] [w], n 4, n -> n c [y] [z]",
           .ranks = "4, 2, 1",
           .infer = infer_roi_align,
           .doc = "boxes of x sampled into one size (He et al. 2017)",
           .since = 22});
  ops.add({.name = "MaxRoiPool",
           .inputs = "x rois!",
           .outputs = "y",
           .attributes = max_roi_attributes,
           .dims = "[b] c [h] [w], n 5 -> n c [y] [z]",
           .ranks = "4, 2",
           .infer = infer_max_roi_pool,
           .doc = "the greatest of each part of a box (Girshick 2015)",
           .since = 22});
}

}  // namespace plait
