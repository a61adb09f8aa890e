#include "core/base/error.h"
#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

using Ints = std::vector<int64_t>;

/// Branches in a row: a row of x leaves at the first that holds, by its leaf, or after the last.
struct Chain {
  std::vector<int64_t> modes;
  std::vector<double> splits;
  std::vector<double> members = {};

  Attributes of(const std::vector<double>& weights) const {
    const auto count = static_cast<int64_t>(modes.size());
    Ints next, below, leaf, falls;
    for (int64_t i = 0; i < count; ++i) {
      below.push_back(i);
      leaf.push_back(1);
      next.push_back(i + 1 == count ? count : i + 1);
      falls.push_back(i + 1 == count);
    }
    std::vector<double> numbers(modes.begin(), modes.end());
    Attributes out = attributes({{"n_targets", int64_t{1}},
                                 {"tree_roots", Ints{0}},
                                 {"nodes_featureids", Ints(modes.size())},
                                 {"nodes_truenodeids", below},
                                 {"nodes_trueleafs", leaf},
                                 {"nodes_falsenodeids", next},
                                 {"nodes_falseleafs", falls},
                                 {"leaf_targetids", Ints(weights.size())}});
    out.set("nodes_modes", tensor(DType::u8, {count}, numbers));
    out.set("nodes_splits", tensor(DType::f32, {count}, splits));
    out.set("leaf_weights", tensor(DType::f32, {static_cast<int64_t>(weights.size())}, weights));
    if (!members.empty())
      out.set("membership_values", tensor(DType::f32, {static_cast<int64_t>(members.size())}, members));
    return out;
  }
};

const Tensor points = f32({8, 1}, {-1, -0.5, 0, 0.5, 1, 2, 40, NAN});

/// A set is the same as a comparison with each member, whatever its size.
TEST(ReferenceTrees, AMemberEqualsOneOfItsSet) {
  const Chain sets{{6, 6}, {9, 9}, {-1, 0, NAN, 2, 40, 0.5}}, each{{4, 4, 4, 4, 4}, {-1, 0, 2, 40, 0.5}};
  const Tensor by_sets =
      run_reference("ai.onnx.ml.TreeEnsemble", sets.of({1, 2, 3}), {points}, {{DType::f32, {8, 1}}})[0];
  expect_equal_bits(by_sets, run_reference("ai.onnx.ml.TreeEnsemble", each.of({1, 1, 2, 2, 2, 3}), {points},
                                           {{DType::f32, {8, 1}}})[0]);
  expect_equal_bits(by_sets, f32({8, 1}, {1, 3, 1, 2, 3, 2, 2, 3}));
}

/// A missing number takes the branch that the file specifies, or the one of its comparison.
TEST(ReferenceTrees, NanTakesTheTrueBranchOnRequest) {
  Attributes tree = Chain{{0}, {0}}.of({1, 2});
  expect_op("ai.onnx.ml.TreeEnsemble", tree, {points}, f32({8, 1}, {1, 1, 1, 2, 2, 2, 2, 2}));
  tree.set("nodes_missing_value_tracks_true", Ints{1});
  expect_op("ai.onnx.ml.TreeEnsemble", tree, {points}, f32({8, 1}, {1, 1, 1, 2, 2, 2, 2, 1}));
}

/// The standard numbers SOFTMAX 1 and LOGISTIC 2; ONNX Runtime 1.31 has them the other way round.
TEST(ReferenceTrees, TransformsAreNumberedAsInTheStandard) {
  Attributes tree = Chain{{0}, {0}}.of({1, 2});
  tree.set("n_targets", int64_t{2});
  tree.set("post_transform", int64_t{2});
  const float one = 1 / (1 + std::exp(-1.0F)), two = 1 / (1 + std::exp(-2.0F));
  const Tensor got = run_reference("ai.onnx.ml.TreeEnsemble", tree, {f32({2, 1}, {0, 1})}, {{DType::f32, {2, 2}}})[0];
  expect_equal_bits(got, f32({2, 2}, {one, 0.5, two, 0.5}));
}

std::string fault_of(const Attributes& tree, const char* op = "ai.onnx.ml.TreeEnsemble") {
  try {
    run_reference(op, tree, {points}, {{DType::f32, {8, 1}}});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_model);
    return error.message();
  }
  return {};
}

TEST(ReferenceTrees, AFileWithoutEndOrOutOfRangeIsRefused) {
  const std::tuple<const char*, Attribute, const char*> rows[] = {
      {"nodes_falsenodeids", Ints{1, 0}, "cycle"},
      {"nodes_falsenodeids", Ints{1, 1}, "cycle"},
      {"nodes_truenodeids", Ints{0, 7}, "nodes_truenodeids"},
      {"nodes_truenodeids", Ints{0, -1}, "nodes_truenodeids"},
      {"nodes_truenodeids", Ints{0}, "has 1 entries, expected 2"},
      {"nodes_featureids", Ints{0, -1}, "nodes_featureids"},
      {"nodes_modes", tensor(DType::u8, {2}, {0, 7}), "nodes_modes"},
      {"nodes_modes", tensor(DType::u8, {2}, {0, 6}), "membership_values"},
      {"nodes_splits", f32({1}, {0}), "nodes_splits"},
      {"leaf_targetids", Ints{0, 0, 1}, "leaf_targetids"},
      {"tree_roots", Ints{2}, "tree_roots"},
      {"aggregate_function", int64_t{4}, "aggregate_function"},
      {"post_transform", int64_t{-1}, "post_transform"},
      {"n_targets", int64_t{0}, "0 targets"},
  };
  for (const auto& [name, value, told] : rows) {
    Attributes tree = Chain{{0, 0}, {0, 1}}.of({1, 2, 3});
    EXPECT_EQ(fault_of(tree), "");
    // The second entry of "cycle" cases leads back instead of to a leaf.
    if (std::string_view(told) == "cycle") tree.set("nodes_falseleafs", Ints{0, 0});
    tree.set(name, value);
    EXPECT_NE(fault_of(tree).find(told), std::string::npos) << name << ": " << fault_of(tree);
  }
}

TEST(ReferenceTrees, ListedTreesAreHeldToTheirNodes) {
  const Attributes good = attributes({{"n_targets", int64_t{1}},
                                      {"nodes_treeids", Ints{4, 4, 4}},
                                      {"nodes_nodeids", Ints{7, 8, 9}},
                                      {"nodes_featureids", Ints{0, -2, -2}},
                                      {"nodes_truenodeids", Ints{8, 0, 0}},
                                      {"nodes_falsenodeids", Ints{9, 0, 0}},
                                      {"nodes_modes", std::vector<std::string>{"BRANCH_LT", "LEAF", "LEAF"}},
                                      {"nodes_values", std::vector<double>{0, 0, 0}},
                                      {"target_treeids", Ints{4, 4}},
                                      {"target_nodeids", Ints{8, 9}},
                                      {"target_ids", Ints{0, 0}},
                                      {"target_weights", std::vector<double>{1, 2}}});
  const char* op = "ai.onnx.ml.TreeEnsembleRegressor";
  expect_op(op, good, {points}, f32({8, 1}, {1, 1, 2, 2, 2, 2, 2, 2}));
  const std::tuple<const char*, Attribute, const char*> rows[] = {
      {"nodes_truenodeids", Ints{7, 0, 0}, "cycle"},
      {"nodes_truenodeids", Ints{3, 0, 0}, "no such node"},
      {"nodes_nodeids", Ints{7, 8, 8}, "two nodes 8"},
      {"nodes_modes", std::vector<std::string>{"BRANCH_ABOUT", "LEAF", "LEAF"}, "BRANCH_ABOUT"},
      {"target_nodeids", Ints{8, 10}, "no such node"},
      {"target_ids", Ints{0, 1}, "target_ids"},
      {"post_transform", std::string("TWICE"), "TWICE"},
      {"base_values", std::vector<double>{1, 2}, "2 base values"},
  };
  for (const auto& [name, value, told] : rows) {
    Attributes tree = good;
    tree.set(name, value);
    EXPECT_NE(fault_of(tree, op).find(told), std::string::npos) << name << ": " << fault_of(tree, op);
  }
}

/// Columns that a run shows to be too few.
TEST(ReferenceTrees, FewerColumnsThanTheTreesReadAreRefused) {
  Attributes tree = Chain{{0}, {0}}.of({1, 2});
  tree.set("nodes_featureids", Ints{1});
  EXPECT_EQ(refused("ai.onnx.ml.TreeEnsemble", tree, {points}, {{DType::f32, {8, 1}}}).code, KernelCode::bad_value);
}

}  // namespace
}  // namespace plait::test
