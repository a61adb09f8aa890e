// Softmax and similar ops, and normalisations.
#include "core/base/text.h"
#include "core/ops/families.h"
#include "core/ops/normalized.h"
#include "core/ops/base/rows.h"

namespace plait {

namespace {

/// The axis of an attribute is whole, -1 if absent.
std::string whole_axis_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames names = dim_names(rank_of(in[0]));
  if (names.empty()) return rule_text({""}, {""});
  std::optional<size_t> axis = maybe_axis(node.attributes.integer("axis", -1), names.size());
  if (!axis) return "";
  names[*axis] = whole(names[*axis]);
  return rule_text({spaced(names)}, {spaced(names)});
}

void infer_layer_normalization(InferContext& context) {
  infer_along<-1>(context);
  DType stash = dtype_attribute(context.attributes(), "stash_type", DType::f32);
  const Dims* dims = context.dims(0);
  for (int k = 1; k < context.outputs(); ++k) {
    context.set_type(k, stash);
    if (dims) context.set_dims(k, statistics_dims(*dims, context.attributes().integer("axis", -1)));
  }
}

/// y has the scale's type, which may be another than x's.
void infer_rms_normalization(InferContext& context) {
  infer_along<-1>(context);
  context.set_type(0, context.dtype(1));
}

/// Everything but the batch is whole.
std::string group_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames names = all_whole(dim_names(rank_of(in[0])));
  if (names.size() < 2) return "";
  names[0] = factor_name(0);
  return rule_text({spaced(names), names[1], names[1]}, {spaced(names)});
}

/// Batch and channels are free, space is whole.
std::string instance_dims(const Node&, const std::vector<Type>& in, const std::vector<Type>&) {
  DimNames names = all_whole(dim_names(rank_of(in[0])));
  if (names.size() < 2) return "";
  names[0] = factor_name(0);
  names[1] = factor_name(1);
  return rule_text({spaced(names), names[1], names[1]}, {spaced(names)});
}

void infer_batch_normalization(InferContext& context) {
  infer_same(context);
  for (int k = 1; k < context.outputs(); ++k) {
    context.set_type(k, context.dtype(3));
    if (const Dims* dims = context.dims(3)) context.set_dims(k, *dims);
  }
}

/// In training mode the moments are over the batch, which must be whole.
std::string batch_dims(const Node& node, const std::vector<Type>& in, const std::vector<Type>&) {
  if (node.attributes.integer("training_mode", 0) == 0) return "b c ..., c, c, c, c -> b c ..., c, c";
  if (!in[0].dims) return "";
  DimNames x = all_whole(dim_names(in[0].dims->size()));
  const std::string channel = x.size() > 1 ? dim_names(2)[1] : "1";
  if (x.size() > 1) x[1] = channel;
  return rule_text({spaced(x), channel, channel, channel, channel}, {spaced(x), channel, channel});
}

}  // namespace

Dims statistics_dims(const Dims& dims, int64_t axis) {
  Dims out = dims;
  for (size_t i = checked_axis(axis, dims.size()); i < out.size(); ++i) out[i] = Dim(1);
  return out;
}

std::string normalized_dims(const std::vector<Type>& in, int64_t axis, size_t same_as_first, const char* linear_scale,
                            size_t outputs) {
  DimNames names = dim_names(rank_of(in[0])), ones = names;
  std::optional<size_t> first = maybe_axis(axis, names.size());
  if (!first) return "";
  for (size_t i = *first; i < names.size(); ++i) {
    names[i] = whole(names[i]);
    ones[i] = "1";
  }
  std::vector<std::string> operands(1, spaced(names)), results(1, spaced(names));
  for (size_t k = 1; k < in.size(); ++k) {
    bool whole_tensor = k < same_as_first;
    std::string text = whole_tensor ? spaced(names) : in[k].dims ? aligned(names, *in[k].dims) : "";
    operands.push_back(k == same_as_first ? linear_scale + text : text);
  }
  for (size_t k = 1; k < outputs; ++k) results.push_back(spaced(ones));
  return rule_text(operands, results);
}

void register_normalization(OpSet& ops) {
  for (auto [name, doc] : {std::pair{"Softmax", "e^x over its sum along an axis"},
                           {"LogSoftmax", "the logarithm of Softmax"},
                           {"Hardmax", "1 at the first greatest of an axis, 0 elsewhere"}})
    ops.add({.name = name, .inputs = "input", .outputs = "output", .attributes = {{"axis", "int", "-1"}},
             .dims = "b g q [k] -> b g q [k]", .dims_of = whole_axis_dims, .infer = infer_along<-1>, .doc = doc,
             .since = 13});
  ops.add({.name = "LpNormalization", .inputs = "input", .outputs = "output",
           .attributes = {{"axis", "int", "-1"}, {"p", "int", "2"}}, .dims = "t [h] -> t [h]",
           .dims_of = whole_axis_dims, .infer = infer_along<-1>, .doc = "x over its norm along an axis", .since = 22});
  ops.add({.name = "LayerNormalization", .inputs = "x scale b?", .outputs = "y mean? inv_std_dev?",
           .attributes = {{"axis", "int", "-1"}, {"epsilon", "float", "1e-05"}, {"stash_type", "int", "1"}},
           .dims = "t [h], [h], [h] -> t [h], t 1, t 1",
           .dims_of = [](const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
             return normalized_dims(in, node.attributes.integer("axis", -1), 1, "", out.size());
           },
           .ranks = "1-", .infer = infer_layer_normalization,
           .doc = "less the mean, over the standard deviation, scaled and shifted (Ba et al. 2016)", .since = 17});
  ops.add({.name = "RMSNormalization", .inputs = "x scale", .outputs = "y",
           .attributes = {{"axis", "int", "-1"}, {"epsilon", "float", "1e-05"}, {"stash_type", "int", "1"}},
           .dims = "t [h], *[h] -> t [h]",
           .dims_of = [](const Node& node, const std::vector<Type>& in, const std::vector<Type>& out) {
             return normalized_dims(in, node.attributes.integer("axis", -1), 1, "*", out.size());
           },
           .ranks = "1-", .infer = infer_rms_normalization,
           .doc = "over the root of the mean square, scaled (Zhang and Sennrich 2019)", .since = 23});
  ops.add({.name = "BatchNormalization", .inputs = "x scale b input_mean input_var",
           .outputs = "y running_mean? running_var?",
           .attributes = {{"epsilon", "float", "1e-05"}, {"momentum", "float", "0.9"}, {"training_mode", "int", "0"}},
           .dims = "b c ..., c, c, c, c -> b c ..., c, c",
           .dims_of = batch_dims, .infer = infer_batch_normalization,
           .doc = "by running statistics of each channel", .since = 15});
  ops.add(
      {.name = "GroupNormalization",
       .inputs = "x scale bias",
       .outputs = "y",
       .attributes = {{"epsilon", "float", "1e-05"}, {"num_groups", "int", "required"}, {"stash_type", "int", "1"}},
       .dims = "b [c] [s], [c], [c] -> b [c] [s]",
       .dims_of = group_dims,
       .infer = infer_same,
       .doc = "by the statistics of each group of channels",
       .since = 21});
  ops.add({.name = "InstanceNormalization", .inputs = "input scale b", .outputs = "output",
           .attributes = {{"epsilon", "float", "1e-05"}}, .dims = "b c [s], c, c -> b c [s]",
           .dims_of = instance_dims, .infer = infer_same, .doc = "by the statistics of each channel of each sample",
           .since = 22});
}

}  // namespace plait
