// Ensembles of decision trees. The kernel checks the trees themselves (kernels/reference/ml/forest.h).
#include <algorithm>

#include "core/ops/base/rows.h"
#include "core/ops/ml/lists.h"
#include "core/ops/ml/register.h"

namespace plait {

namespace {

/// Refuses x with fewer columns than the trees' branches read.
void check_columns(const InferContext& context) {
  const Dims* x = context.dims(0);
  if (!x || !(*x)[1].is_constant()) return;
  const std::vector<int64_t> features = context.attributes().integers("nodes_featureids");
  const Attribute* found = context.attributes().find("nodes_modes");
  const auto* modes = found ? std::get_if<std::vector<std::string>>(found) : nullptr;
  for (size_t i = 0; i < features.size(); ++i) {
    if (modes && i < modes->size() && (*modes)[i] == "LEAF") continue;
    if (features[i] < 0 || features[i] >= (*x)[1].constant())
      InferContext::fail(cat("entry ", i, " of \"nodes_featureids\" is ", features[i], ", and x has ",
                             (*x)[1].constant(), " features"));
  }
}

int64_t targets_of(const InferContext& context) {
  const int64_t targets = context.attributes().integer("n_targets", 0);
  if (targets < 1 || targets > INT32_MAX)
    InferContext::fail(cat("attribute \"n_targets\" is ", targets, ", expected a positive number"));
  return targets;
}

void infer_ensemble(InferContext& context) {
  const int64_t targets = targets_of(context);
  check_columns(context);
  context.set_type(0, context.dtype(0));
  if (const Dims* x = context.dims(0)) context.set_dims(0, {(*x)[0], Dim(targets)});
}

void infer_tree_regressor(InferContext& context) {
  infer_ensemble(context);
  context.set_type(0, DType::f32);
}

void infer_tree_classifier(InferContext& context) {
  const Labels list(context.attributes(), "classlabels_int64s");
  const int64_t labels = list.size;
  if (labels == 0) InferContext::fail("attribute \"classlabels_int64s\" or \"classlabels_strings\" is missing or empty");
  check_columns(context);
  context.set_type(0, list.dtype());
  context.set_type(1, DType::f32);
  if (const Dims* x = context.dims(0)) {
    context.set_dims(0, {(*x)[0]});
    context.set_dims(1, {(*x)[0], Dim(labels)});
  }
}

/// Trees as opsets 1 to 3 write them; `stem` is "target" or "class".
std::vector<AttributeRow> listed_trees(const std::string& stem) {
  return {{"base_values", "floats", ""},
          {"base_values_as_tensor", "tensor", ""},
          {stem + "_ids", "ints", ""},
          {stem + "_nodeids", "ints", ""},
          {stem + "_treeids", "ints", ""},
          {stem + "_weights", "floats", ""},
          {stem + "_weights_as_tensor", "tensor", ""},
          {"nodes_falsenodeids", "ints", ""},
          {"nodes_featureids", "ints", ""},
          {"nodes_hitrates", "floats", ""},
          {"nodes_hitrates_as_tensor", "tensor", ""},
          {"nodes_missing_value_tracks_true", "ints", ""},
          {"nodes_modes", "strings", ""},
          {"nodes_nodeids", "ints", ""},
          {"nodes_treeids", "ints", ""},
          {"nodes_truenodeids", "ints", ""},
          {"nodes_values", "floats", ""},
          {"nodes_values_as_tensor", "tensor", ""},
          {"post_transform", "string", "NONE"}};
}

}  // namespace

void register_trees(OpSet& ops) {
  ops.add({.name = "ai.onnx.ml.TreeEnsemble",
           .inputs = "x",
           .outputs = "y",
           .attributes = {{"aggregate_function", "int", "1"},
                          {"leaf_targetids", "ints", "required"},
                          {"leaf_weights", "tensor", "required"},
                          {"membership_values", "tensor", ""},
                          {"n_targets", "int", "required"},
                          {"nodes_falseleafs", "ints", "required"},
                          {"nodes_falsenodeids", "ints", "required"},
                          {"nodes_featureids", "ints", "required"},
                          {"nodes_hitrates", "tensor", ""},
                          {"nodes_missing_value_tracks_true", "ints", ""},
                          {"nodes_modes", "tensor", "required"},
                          {"nodes_splits", "tensor", "required"},
                          {"nodes_trueleafs", "ints", "required"},
                          {"nodes_truenodeids", "ints", "required"},
                          {"post_transform", "int", "0"},
                          {"tree_roots", "ints", "required"}},
           .ranks = "2",
           .infer = infer_ensemble,
           .doc = "the leaves that each row of x reaches in decision trees, aggregated by target",
           .since = 5});
  std::vector<AttributeRow> regressor = listed_trees("target"), classifier = listed_trees("class");
  regressor.push_back({"aggregate_function", "string", "SUM"});
  regressor.push_back({"n_targets", "int", ""});
  classifier.push_back({"classlabels_int64s", "ints", ""});
  classifier.push_back({"classlabels_strings", "strings", ""});
  ops.add({.name = "ai.onnx.ml.TreeEnsembleRegressor",
           .inputs = "x",
           .outputs = "y",
           .attributes = std::move(regressor),
           .ranks = "2",
           .infer = infer_tree_regressor,
           .doc = "the leaves that each row of x reaches in decision trees, aggregated by target, in f32",
           .since = 3});
  ops.add(
      {.name = "ai.onnx.ml.TreeEnsembleClassifier",
       .inputs = "x",
       .outputs = "y z",
       .attributes = std::move(classifier),
       .ranks = "2",
       .infer = infer_tree_classifier,
       .doc =
           "labels by the sums of the leaves that each row of x reaches in decision trees, and these scores in f32",
       .since = 3});
  ops.claim("ai.onnx.ml.TreeEnsemble", 5, "f16 f32 f64");
  ops.claim("ai.onnx.ml.TreeEnsembleRegressor", 1, four_types);
  ops.claim("ai.onnx.ml.TreeEnsembleClassifier", 1, four_types);
}

}  // namespace plait
