#pragma once
// The Mesh: named axes over ranks. Shardings (core/mesh/sharding.h) place values on it; no transport here.
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// A sub-axis: one prime factor of a mesh axis. tensor=12 is tensor.0 (2), tensor.1 (2) and tensor.2 (3), so that 4
/// ranks can share 2 heads in pairs, with nothing replicated that can be cut (Shardy's sub-axes).
using AxisId = int32_t;
/// Major first: a dim cut by {a, b} has size(a) size(b) blocks, and a rank has block coordinate(a) size(b) +
/// coordinate(b).
using AxisList = std::vector<AxisId>;

class Mesh {
 public:
  struct Axis {
    std::string name;
    int64_t size = 1;
    AxisList parts;  ///< empty for an axis of size 1
  };

  /// One rank.
  Mesh() = default;
  /// "data=2,tensor=4". Axes are pipeline, data and tensor, each at most once, in any order: tensor varies fastest
  /// with the rank number, then data, then pipeline, as is usual: tensor parallelism needs the nearest neighbours. ""
  /// is one rank. Throws Error(invalid_argument).
  static Mesh parse(std::string_view text);

  int64_t ranks() const { return ranks_; }
  const std::vector<Axis>& axes() const { return axes_; }
  /// Throws Error(unsupported) if an axis of more than one rank is not in `allowed`, naming it and `user`, the
  /// caller.
  void require_axes(std::initializer_list<std::string_view> allowed, std::string_view user) const;
  /// The sub-axes of an axis; empty if the mesh does not have it.
  AxisList parts(std::string_view axis) const;
  /// The number of sub-axes: AxisIds are 0 to count - 1, slowest first.
  AxisId sub_axes() const { return static_cast<AxisId>(sizes_.size()); }
  int64_t size(AxisId axis) const { return sizes_[static_cast<size_t>(axis)]; }
  /// The number of blocks of a dim cut by `axes`.
  int64_t blocks(std::span<const AxisId> axes) const;
  /// The rank's coordinate along a sub-axis.
  int64_t coordinate(int64_t rank, AxisId axis) const;
  /// The rank's block of a dim cut by `axes`.
  int64_t block(int64_t rank, std::span<const AxisId> axes) const;
  /// The group of ranks that differ from `rank` along `axes` only, including `rank`, in block order.
  std::vector<int64_t> group(int64_t rank, std::span<const AxisId> axes) const;

  /// "data=2,tensor=4"
  std::string text() const;
  /// "tensor" for all parts of an axis in order, otherwise "tensor.1"; "-" for none.
  std::string text(std::span<const AxisId> axes) const;
  /// The inverse. Throws Error(invalid_argument) naming an axis that the mesh does not have.
  AxisList parse_axes(std::string_view text) const;

 private:
  int64_t stride(AxisId axis) const;
  std::string name(AxisId axis) const;

  std::vector<Axis> axes_;
  std::vector<int64_t> sizes_;  ///< by sub-axis
  int64_t ranks_ = 1;
};

}  // namespace plait
