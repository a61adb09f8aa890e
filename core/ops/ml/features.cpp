// Ops on features: Scaler, Normalizer, Imputer, and those that are read as other ops.
#include "core/ops/base/rows.h"
#include "core/ops/ml/lists.h"
#include "core/ops/ml/register.h"

namespace plait {

namespace {

void infer_scaler(InferContext& context) {
  const int64_t offsets = list_size(context.attributes(), "offset"),
                scales = list_size(context.attributes(), "scale");
  if (offsets != scales || offsets == 0)
    InferContext::fail(cat("attributes \"offset\" and \"scale\" have ", offsets, " and ", scales,
                           " numbers, expected equally many, and at least one"));
  check_per_feature(context, "scale", scales);
  context.set_type(0, DType::f32);
  if (const Dims* x = context.dims(0)) context.set_dims(0, *x);
}

void infer_normalizer(InferContext& context) {
  const std::string norm = context.attributes().string("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2")
    InferContext::fail(cat("attribute \"norm\" is ", quote(norm), ", expected MAX, L1 or L2"));
  context.set_type(0, DType::f32);
  if (const Dims* x = context.dims(0)) context.set_dims(0, *x);
}

void infer_imputer(InferContext& context) {
  const DType dtype = context.dtype(0);
  if (dtype != DType::none) {
    const char* name = is_float(dtype) ? "imputed_value_floats" : "imputed_value_int64s";
    const int64_t size = list_size(context.attributes(), name);
    if (size == 0)
      InferContext::fail(cat("attribute ", quote(name), " is missing or empty, for x of ", dtype_name(dtype)));
    check_per_feature(context, name, size);
  }
  infer_same(context);
}

}  // namespace

void register_features(OpSet& ops) {
  ops.add({.name = "ai.onnx.ml.Scaler",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"offset", "floats", ""}, {"scale", "floats", ""}},
           .infer = infer_scaler,
           .doc = "(x - offset) scale, by features or with one pair, in f32",
           .since = 1});
  ops.add(
      {.name = "ai.onnx.ml.Normalizer",
       .inputs = "x",
       .outputs = "y",
       .attributes = {{"norm", "string", "MAX"}},
       .ranks = "1-2",
       .infer = infer_normalizer,
       .doc = "rows over their greatest element, sum of absolutes, or root of squares, in f32; a row of norm 0 stays",
       .since = 1});
  ops.add({.name = "ai.onnx.ml.Imputer",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"imputed_value_floats", "floats", ""},
                          {"imputed_value_int64s", "ints", ""},
                          {"replaced_value_float", "float", "0"},
                          {"replaced_value_int64", "int", "0"}},
           .infer = infer_imputer,
           .doc = "x with one value (or NaN) replaced, by features or with one number",
           .since = 1});
  ops.add({.name = "ai.onnx.ml.Binarizer",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"threshold", "float", "0"}},
           .doc = "1 where x > threshold, 0 elsewhere",
           .since = 1,
           .written_as = "Greater"});
  ops.add({.name = "ai.onnx.ml.ArrayFeatureExtractor",
           .inputs = "x y",
           .outputs = "z",
           .doc = "columns of x, by number",
           .since = 1,
           .written_as = "Gather"});
  ops.add({.name = "ai.onnx.ml.FeatureVectorizer",
           .inputs = "x...",
           .outputs = "y",
           .attributes = {{"inputdimensions", "ints", ""}},
           .doc = "the columns of all next to each other, in f32",
           .since = 1,
           .written_as = "Concat"});
  for (const char* name : {"Scaler", "Normalizer", "Imputer", "Binarizer"})
    ops.claim(cat("ai.onnx.ml.", name), 1, four_types);
  ops.claim("ai.onnx.ml.FeatureVectorizer", 1, cat("T:", four_types));
  ops.claim("ai.onnx.ml.ArrayFeatureExtractor", 1, cat(four_types, " string, i64"));
}

}  // namespace plait
