#pragma once
// How much an op computes, from its dims rule.
#include <string>
#include <vector>

#include "core/graph/schema.h"

namespace plait {

/// An op with numbers as sizes of its operands.
struct OpCall {
  const std::string& op;
  const Attributes& attributes;
  std::vector<Type> inputs, outputs;  ///< Type{} for absent ones
  int64_t sequence = 0;               ///< tokens of a sample; 0: a row is one sample
  bool all_pairs = false;  ///< attention multiplies every pair of a sample's tokens, not those before each token only
  bool scores_kept = false;  ///< attention's gradient finds the scores that the forward pass computed
};

struct OpWork {
  double flops = 0;      ///< of products: 2 for each multiplication
  double least_dim = 0;  ///< of a product: the least of its rows, columns and depth
  double tiles = 0;      ///< of a product with a matrix: parts of 128 by 256 of its results; 0: not known
  double scores = 0;  ///< passes of attention over its scores, in elements: one of a forward pass, two of a gradient
  bool in_place = false;   ///< writes its third and fourth operand into pages
  bool rows_only = false;  ///< reads as many rows of a table as it returns
};

/// Ops without products have flops 0: they take the time of their bytes.
OpWork work_of(const OpCall& call, const OpSet& ops);

}  // namespace plait
