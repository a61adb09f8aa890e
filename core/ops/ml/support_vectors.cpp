// SVMRegressor and SVMClassifier.
#include "core/ops/ml/lists.h"
#include "core/ops/ml/register.h"

namespace plait {

namespace {

/// `count` numbers are rows of features, each as long as one of x.
void check_features(const InferContext& context, std::string_view name, int64_t rows) {
  const int64_t count = list_size(context.attributes(), name);
  if (rows < 1 || count == 0 || count % rows)
    InferContext::fail(
        cat("attribute ", quote(name), " has ", count, " numbers for ", rows, " rows, expected features for each"));
  const Dims* x = context.dims(0);
  if (x && x->back().is_constant() && x->back().constant() != count / rows)
    InferContext::fail(cat("attribute ", quote(name), " has ", count / rows, " numbers a row, expected ",
                           x->back().constant(), ", as x has features"));
}

void check_count(const InferContext& context, std::string_view name, int64_t expected) {
  if (const int64_t count = list_size(context.attributes(), name); count < expected)
    InferContext::fail(cat("attribute ", quote(name), " has ", count, " numbers, expected ", expected));
}

void infer_regressor(InferContext& context) {
  const int64_t vectors = context.attributes().integer("n_supports", 0);
  if (vectors < 0) InferContext::fail(cat("n_supports is ", vectors));
  check_features(context, vectors ? "support_vectors" : "coefficients", vectors ? vectors : 1);
  if (vectors) check_count(context, "coefficients", vectors);
  check_count(context, "rho", 1);
  context.set_type(0, DType::f32);
  if (const Dims* x = context.dims(0)) context.set_dims(0, {rows_of(*x), Dim(1)});
}

void infer_classifier(InferContext& context) {
  const Labels list(context.attributes(), "classlabels_ints");
  const std::vector<int64_t> each = context.attributes().integers("vectors_per_class");
  int64_t vectors = 0;
  for (int64_t one : each) {
    if (one < 0 || one > INT32_MAX) InferContext::fail(cat("a class has ", one, " support vectors"));
    vectors += one;
  }
  const int64_t labels = list.size, pairs = labels * (labels - 1) / 2;
  if (labels < 2 || labels > (1 << 16))
    InferContext::fail(cat("there are ", labels, " labels in ", quote(list.name)));
  if (vectors && std::ssize(each) != labels)
    InferContext::fail(cat("there are ", each.size(), " numbers of support vectors for ", labels, " labels"));
  check_features(context, vectors ? "support_vectors" : "coefficients", vectors ? vectors : labels);
  check_count(context, "coefficients", vectors ? (labels - 1) * vectors : labels);
  check_count(context, "rho", vectors ? pairs : 1);
  const bool shares = vectors && list_size(context.attributes(), "prob_a") > 0;
  if (shares) check_count(context, "prob_a", pairs), check_count(context, "prob_b", pairs);
  context.set_type(0, list.dtype());
  context.set_type(1, DType::f32);
  if (const Dims* x = context.dims(0)) {
    context.set_dims(0, {rows_of(*x)});
    context.set_dims(1, {rows_of(*x), Dim(vectors && !shares && labels > 2 ? pairs : labels)});
  }
}

}  // namespace

void register_support_vectors(OpSet& ops) {
  ops.add({.name = "ai.onnx.ml.SVMRegressor",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"coefficients", "floats", "required"},
                          {"kernel_params", "floats", ""},
                          {"kernel_type", "string", "LINEAR"},
                          {"n_supports", "int", "0"},
                          {"one_class", "int", "0"},
                          {"post_transform", "string", "NONE"},
                          {"rho", "floats", "required"},
                          {"support_vectors", "floats", ""}},
           .ranks = "1-2",
           .infer = infer_regressor,
           .doc = "a weighted sum of kernels of x and support vectors, in f32",
           .since = 1});
  ops.add({.name = "ai.onnx.ml.SVMClassifier",
           .inputs = "x",
           .outputs = "y z",
           .attributes = {{"classlabels_ints", "ints", ""},
                          {"classlabels_strings", "strings", ""},
                          {"coefficients", "floats", "required"},
                          {"kernel_params", "floats", ""},
                          {"kernel_type", "string", "LINEAR"},
                          {"post_transform", "string", "NONE"},
                          {"prob_a", "floats", ""},
                          {"prob_b", "floats", ""},
                          {"rho", "floats", "required"},
                          {"support_vectors", "floats", ""},
                          {"vectors_per_class", "ints", ""}},
           .ranks = "1-2",
           .infer = infer_classifier,
           .doc = "the label that most pairs of classes choose by their support vectors, and scores in f32",
           .since = 1});
  ops.claim("ai.onnx.ml.SVMRegressor", 1, four_types);
  ops.claim("ai.onnx.ml.SVMClassifier", 1, four_types);
}

}  // namespace plait
