#pragma once
// Where the elements of a constant stand in the file: its steps, seen as a map of places. So a sharding of a weight of the
// canonical graph is one of the user's tensor, and the other way round.
#include <optional>
#include <vector>

#include "core/base/constant.h"
#include "core/mesh/sharding.h"

namespace plait {

/// Every dim of the constant is a number of several digits, and each digit moves along one axis of the file's tensor.
struct FileLayout {
  struct Digit {
    int64_t size = 1;
    size_t axis = 0;
    int64_t stride = 1;  ///< along the axis
  };
  /// What the axes belong to: one tensor of the file, or as many as the stacked axes have places, the last the fastest.
  std::vector<const Constant*> tensors;
  size_t stacked = 0;          ///< so many axes in front are places in a stack (Constant::parts)
  std::vector<int64_t> sizes;  ///< of the axes: the stacked ones, then those of a tensor, then the bits of an element
  std::vector<int64_t> base;   ///< by axis: where element 0 is
  /// Of the constant, by dim; the first digit is the slowest. The digits of a dim may have places behind the dim's last
  /// element: 3 values of half a byte take 2 bytes.
  std::vector<std::vector<Digit>> dims;
  Shape shape;  ///< of the constant
};

/// nullopt where a step leaves no such map: a reshape across what a slice has cut, bytes taken apart behind a cast.
/// Refers to the constant.
std::optional<FileLayout> file_layout(const Constant& constant);

/// An axis of the file's tensor as a sharding of the constant cuts it.
struct CutAxis {
  AxisList axes;  ///< that cut it, the slowest first
  /// By place: the block along these axes that the place is in; -1: no element of the constant is there.
  std::vector<int32_t> blocks;
};
/// For each axis but the bits; places behind a dim's last element count as the constant's. An element is held by the ranks
/// that have its block along all of them. nullopt where the sharding does not divide a digit, or cuts through an element of
/// the file.
std::optional<std::vector<CutAxis>> cut_in_file(const FileLayout& layout, const Sharding& sharding, const Mesh& mesh);

}  // namespace plait
