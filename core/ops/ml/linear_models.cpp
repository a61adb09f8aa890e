// LinearRegressor and LinearClassifier.
#include "core/ops/base/rows.h"
#include "core/ops/ml/lists.h"
#include "core/ops/ml/register.h"

namespace plait {

namespace {

/// Coefficients are [targets, features].
void check_coefficients(const InferContext& context, int64_t targets) {
  const int64_t count = list_size(context.attributes(), "coefficients");
  if (targets < 1 || count == 0 || count % targets)
    InferContext::fail(
        cat("there are ", count, " coefficients for ", targets, " targets, expected features for each"));
  const Dims* x = context.dims(0);
  if (x && x->back().is_constant() && x->back().constant() != count / targets)
    InferContext::fail(cat("there are ", count, " coefficients for ", targets, " targets, expected ",
                           x->back().constant(), " for each, as x has features"));
}

void infer_linear_regressor(InferContext& context) {
  const int64_t targets = context.attributes().integer("targets", 1),
                intercepts = list_size(context.attributes(), "intercepts");
  check_coefficients(context, targets);
  if (intercepts != 0 && intercepts != targets)
    InferContext::fail(cat("there are ", intercepts, " intercepts for ", targets, " targets"));
  context.set_type(0, DType::f32);
  if (const Dims* x = context.dims(0)) context.set_dims(0, {rows_of(*x), Dim(targets)});
}

void infer_linear_classifier(InferContext& context) {
  const Labels list(context.attributes(), "classlabels_ints");
  const int64_t labels = list.size, intercepts = list_size(context.attributes(), "intercepts");
  // One row of coefficients decides between two labels.
  if (labels < 2 || (intercepts != labels && !(intercepts == 1 && labels == 2)))
    InferContext::fail(cat("there are ", labels, " labels in ", quote(list.name), " and ", intercepts,
                           " intercepts, expected one intercept for each label, or one for two"));
  check_coefficients(context, intercepts);
  context.set_type(0, list.dtype());
  context.set_type(1, DType::f32);
  if (const Dims* x = context.dims(0)) {
    context.set_dims(0, {rows_of(*x)});
    context.set_dims(1, {rows_of(*x), Dim(labels)});
  }
}

}  // namespace

void register_linear_models(OpSet& ops) {
  ops.add({.name = "ai.onnx.ml.LinearRegressor",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"coefficients", "floats", ""},
                          {"intercepts", "floats", ""},
                          {"post_transform", "string", "NONE"},
                          {"targets", "int", "1"}},
           .ranks = "1-2",
           .infer = infer_linear_regressor,
           .doc = "x coefficients^T + intercepts, in f32",
           .since = 1});
  ops.add({.name = "ai.onnx.ml.LinearClassifier",
           .inputs = "x",
           .outputs = "y z",
           .attributes = {{"classlabels_ints", "ints", ""},
                          {"classlabels_strings", "strings", ""},
                          {"coefficients", "floats", "required"},
                          {"intercepts", "floats", ""},
                          {"multi_class", "int", "0"},
                          {"post_transform", "string", "NONE"}},
           .ranks = "1-2",
           .infer = infer_linear_classifier,
           .doc = "the label of the highest score of a linear model, and the scores in f32",
           .since = 1});
  ops.claim("ai.onnx.ml.LinearRegressor", 1, four_types);
  ops.claim("ai.onnx.ml.LinearClassifier", 1, four_types);
}

}  // namespace plait
