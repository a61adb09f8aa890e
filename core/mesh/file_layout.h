#pragma once
// File layout: the positions of a constant's elements in the file, derived from its steps. Maps a sharding of a
// weight of the canonical graph to one of the user's tensor, and back.
#include <optional>
#include <vector>

#include "core/base/constant.h"
#include "core/mesh/sharding.h"

namespace plait {

/// A dim's index is a mixed-radix number; each digit moves along one axis of the file's tensor.
struct FileLayout {
  struct Digit {
    int64_t size = 1;
    size_t axis = 0;
    int64_t stride = 1;  ///< along the axis
  };
  /// The source tensors: one, or one per position of the stacked axes, the last axis fastest.
  std::vector<const Constant*> tensors;
  size_t stacked = 0;          ///< how many leading axes are stacked (Constant::parts)
  std::vector<int64_t> sizes;  ///< by axis: stacked axes, tensor axes, then the bits of an element
  std::vector<int64_t> base;   ///< by axis: position of element 0
  /// By dim of the constant, slowest digit first. The digits of a dim may span positions past its last element: 3
  /// values of 4 bits take 2 bytes.
  std::vector<std::vector<Digit>> dims;
  Shape shape;  ///< of the constant
};

/// nullopt if the steps have no such map: a reshape across a sliced dim, bytes split after a cast. The result refers
/// to the constant.
std::optional<FileLayout> file_layout(const Constant& constant);

/// How a sharding of the constant cuts an axis of the file's tensor.
struct CutAxis {
  AxisList axes;  ///< mesh axes that cut it, slowest first
  /// By position: its block along these axes; -1: no element of the constant.
  std::vector<int32_t> blocks;
};
/// For each axis except the bits; positions past a dim's last element count as the constant's. A rank holds an
/// element if it has its block along every axis. nullopt if the sharding does not divide a digit, or splits an
/// element of the file.
std::optional<std::vector<CutAxis>> cut_in_file(const FileLayout& layout, const Sharding& sharding, const Mesh& mesh);

}  // namespace plait
