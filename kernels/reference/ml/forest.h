#pragma once
// Decision trees in one form, read from both that ai.onnx.ml has: TreeEnsemble's indices (opset 5), and the lists of
// TreeEnsembleRegressor and TreeEnsembleClassifier that name nodes by tree and id (opsets 1 to 3).
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/exec/kernel.h"
#include "kernels/reference/ml/post_transform.h"

namespace plait::reference {

/// Numbered as TreeEnsemble's attribute `nodes_modes`.
enum class BranchMode : uint8_t { leq, lt, gte, gt, eq, neq, member };
/// Numbered as TreeEnsemble's attribute `aggregate_function`.
enum class Aggregate : uint8_t { average, sum, min, max };

/// A place in a forest: branch `n` is n, leaf `n` is -1 - n.
using TreePlace = int32_t;
inline TreePlace leaf_place(int64_t leaf) { return static_cast<TreePlace>(-1 - leaf); }

struct TreeBranch {
  BranchMode mode = BranchMode::leq;
  bool missing_is_true = false;  ///< NaN takes the branch of a true comparison
  int32_t feature = 0;
  int32_t members = 0;  ///< of mode member: the set
  double split = 0;
  TreePlace if_true = 0, if_false = 0;
};

struct LeafWeight {
  int32_t target = 0;
  double weight = 0;
};

/// Every walk from a root ends in a leaf, and every number is in range.
struct Forest {
  std::vector<TreePlace> roots;  ///< in the file's order
  std::vector<TreeBranch> branches;
  std::vector<std::vector<LeafWeight>> leaves;
  std::vector<std::vector<double>> sets;  ///< sorted members
  int64_t targets = 0;
  int64_t features = 0;  ///< x needs as many columns
  Aggregate aggregate = Aggregate::sum;
  PostTransform transform = PostTransform::none;
  std::vector<double> base;  ///< by target, or empty

  /// The leaf that a row reaches.
  template <class N>
  const std::vector<LeafWeight>& leaf_of(TreePlace root, const N* row) const {
    TreePlace at = root;
    while (at >= 0) {
      const TreeBranch& branch = branches[static_cast<size_t>(at)];
      at = holds(branch, static_cast<double>(row[branch.feature])) ? branch.if_true : branch.if_false;
    }
    return leaves[static_cast<size_t>(-1 - at)];
  }
  bool holds(const TreeBranch& branch, double value) const;
};

/// Of a node TreeEnsemble. Both throw Error(bad_model), naming the attribute and its entry: lists of unequal lengths, numbers out
/// of range, a tree with a cycle.
Forest read_forest(const Attributes& attributes);
/// Of a TreeEnsembleRegressor or TreeEnsembleClassifier, whose leaves' attributes begin with `stem`: "target" or "class".
Forest read_listed_forest(const Attributes& attributes, const std::string& stem, int64_t targets);

}  // namespace plait::reference
