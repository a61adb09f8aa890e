// Quantise and dequantise: one scale for all, per channel, or per block of a channel.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// Attribute output_dtype; 0 if unset.
DType output_dtype(InferContext& context, DType fallback) {
  if (context.attributes().integer("output_dtype", 0) == 0) return fallback;
  return dtype_attribute(context.attributes(), "output_dtype", fallback);
}

/// Attribute output_dtype, otherwise the zero point's dtype, otherwise u8.
void infer_quantize(InferContext& context) {
  context.set_type(0, output_dtype(context, context.has(2) ? context.dtype(2) : DType::u8));
  if (const Dims* dims = context.dims(0)) context.set_dims(0, *dims);
}

void infer_dequantize(InferContext& context) {
  context.set_type(0, output_dtype(context, context.dtype(1)));
  if (const Dims* dims = context.dims(0)) context.set_dims(0, *dims);
}

void infer_dynamic_quantize(InferContext& context) {
  context.set_type(0, DType::u8);
  if (const Dims* dims = context.dims(0)) context.set_dims(0, *dims);
  context.set(1, DType::f32, {});
  context.set(2, DType::u8, {});
}

std::string quantize_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames names = dim_names(rank_of(in[0]));
  const Dims& scale = *in[1].dims;
  std::string point;
  if (scale.size() == 1 && is_one(scale[0])) point = "1";
  if (scale.empty() || point == "1") {
    return rule_text({spaced(names), point, in.size() > 2 && in[2].dims && in[2].dims->empty() ? "" : point},
                     {spaced(names)});
  }
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", 1), names.size());
  if (!axis) return "";
  int64_t block = node.attributes.integer("block_size", 0);
  if (block > 1) {
    if (scale.size() != names.size()) return "";
    DimNames scales = names;
    std::optional<Dim> exact = (*in[0].dims)[*axis].divided(Dim(block));
    if (exact && *exact == scale[*axis]) {
      names[*axis] = cat("(", names[*axis], " ", block, ")");
    } else {  // the last block is not full
      scales[*axis] = whole(factor_name(names.size()));
      names[*axis] = whole(names[*axis]);
    }
    return rule_text({spaced(names), spaced(scales), spaced(scales)}, {spaced(names)});
  }
  if (scale.size() != 1) return "";
  const bool one_zero = in.size() > 2 && in[2].dims && in[2].dims->size() == 1 && is_one((*in[2].dims)[0]);
  if (one_zero && !scale[0].is_constant())  // the scale will be one number, as the zero point is
    return rule_text({spaced(names), whole(factor_name(names.size())), "1"}, {spaced(names)});
  return rule_text({spaced(names), names[*axis], names[*axis]}, {spaced(names)});
}

}  // namespace

void register_quantization(OpSet& ops) {
  ops.add({.name = "QuantizeLinear", .inputs = "x y_scale y_zero_point?", .outputs = "y",
           .attributes = {{"axis", "int", "1"}, {"block_size", "int", "0"}, {"output_dtype", "int", "0"},
                          {"precision", "int", "0"}, {"saturate", "int", "1"}},
           .dims = "n (k 32), n k, n k -> n (k 32)", .dims_of = quantize_dims, .infer = infer_quantize,
           .doc = "x / scale + zero point, rounded to even and saturated", .since = 24});
  ops.add({.name = "DequantizeLinear", .inputs = "x x_scale x_zero_point?", .outputs = "y",
           .attributes = {{"axis", "int", "1"}, {"block_size", "int", "0"}, {"output_dtype", "int", "0"}},
           .dims = "n (k 32), n k, n k -> n (k 32)", .dims_of = quantize_dims, .infer = infer_dequantize,
           .doc = "(x - zero point) scale", .since = 24});
  // No rule: scale and zero point depend on the extremes of all elements.
  ops.add({.name = "DynamicQuantizeLinear", .inputs = "x", .outputs = "y y_scale y_zero_point",
           .infer = infer_dynamic_quantize, .doc = "x in u8, by the range of its elements", .since = 11});
}

}  // namespace plait
