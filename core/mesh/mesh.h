#pragma once
// The Mesh: named axes over ranks. What lives where is said by Shardings (core/mesh/sharding.h); no transport here.
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

/// A sub-axis: one prime part of a mesh axis. tensor=12 is tensor.0 (2), tensor.1 (2) and tensor.2 (3), so that 4 ranks
/// may share 2 heads, two by two, and nothing is stored twice that could be cut (Shardy's sub-axes).
using AxisId = int32_t;
/// Major first: a dim cut by {a, b} has size(a) size(b) blocks, and a rank has block coordinate(a) size(b) +
/// coordinate(b).
using AxisList = std::vector<AxisId>;

class Mesh {
 public:
  struct Axis {
    std::string name;
    int64_t size = 1;
    AxisList parts;  ///< none for an axis of size 1
  };

  /// One rank.
  Mesh() = default;
  /// "data=2,tensor=4". Axes are pipeline, data and tensor, each at most once, in any order: ranks that are neighbours
  /// by number differ in tensor first, then in data, then in pipeline, as is usual in the field, since tensor
  /// parallelism needs the nearest neighbours. "" is one rank. Throws Error(invalid_argument).
  static Mesh parse(std::string_view text);

  int64_t ranks() const { return ranks_; }
  const std::vector<Axis>& axes() const { return axes_; }
  /// Throws Error(unsupported) if an axis of more than one rank is not among `allowed`, naming it and `user`, who cannot use it.
  void require_axes(std::initializer_list<std::string_view> allowed, std::string_view user) const;
  /// The parts of an axis; none when the mesh does not have it.
  AxisList parts(std::string_view axis) const;
  /// How many sub-axes there are: AxisIds are 0 to count - 1, slowest first.
  AxisId sub_axes() const { return static_cast<AxisId>(sizes_.size()); }
  int64_t size(AxisId axis) const { return sizes_[static_cast<size_t>(axis)]; }
  /// Into how many blocks these cut a dim.
  int64_t blocks(std::span<const AxisId> axes) const;
  /// Where the rank is along a sub-axis.
  int64_t coordinate(int64_t rank, AxisId axis) const;
  /// Which block of a dim cut by these the rank has.
  int64_t block(int64_t rank, std::span<const AxisId> axes) const;
  /// The ranks that differ from `rank` along these only, in the order of their blocks; `rank` is among them.
  std::vector<int64_t> group(int64_t rank, std::span<const AxisId> axes) const;

  /// "data=2,tensor=4"
  std::string text() const;
  /// "tensor" for all parts of an axis in order, else "tensor.1"; "-" for none.
  std::string text(std::span<const AxisId> axes) const;
  /// The inverse. Throws Error(invalid_argument) naming what the mesh does not have.
  AxisList parse_axes(std::string_view text) const;

 private:
  int64_t stride(AxisId axis) const;
  std::string name(AxisId axis) const;

  std::vector<Axis> axes_;
  std::vector<int64_t> sizes_;  ///< by sub-axis
  int64_t ranks_ = 1;
};

}  // namespace plait
