#pragma once
// Where a value lives on a mesh, how it gets from one place to another, and what that costs.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/dims_rule.h"
#include "core/mesh/mesh.h"

namespace plait {

/// A result that the ranks along an axis still have to combine.
struct Pending {
  AxisId axis = 0;
  PendingKind kind = PendingKind::sum;
  bool operator==(const Pending&) const = default;
};

/// Each dim is cut into contiguous blocks of one size by a list of sub-axes, major first. An axis occurs once in all of
/// it; along axes that do not occur the ranks hold the same (replicated).
struct Sharding {
  std::vector<AxisList> dims;
  std::vector<Pending> pending;  ///< ascending by axis
  bool operator==(const Sharding&) const = default;

  static Sharding replicated(size_t rank) { return {std::vector<AxisList>(rank), {}}; }
  /// Dim `dim` of `rank` cut by `axes`.
  static Sharding cut(size_t rank, size_t dim, AxisList axes);
  bool is_replicated() const;
  bool owes(AxisId axis) const;
  /// All axes in dims, those of the first dim first.
  AxisList axes() const;
};

/// "[data, -, tensor] sum(tensor.1)"
std::string text(const Sharding& sharding, const Mesh& mesh);
/// Reads what `text` writes. Throws Error(invalid_argument).
Sharding parse_sharding(std::string_view text, const Mesh& mesh);

/// Whether `size` has so many equal parts for all values of its symbols.
bool divides(const Dim& size, int64_t parts);
/// The sizes that a rank holds; nullopt where one does not divide.
std::optional<Dims> local_dims(const Dims& dims, const Sharding& sharding, const Mesh& mesh);

/// One step on the way from a sharding to another, done at once by all ranks of each group along `axes`.
struct Collective {
  enum class Kind { reduce_scatter, all_reduce, slice, all_to_all, all_gather };
  Kind kind = Kind::slice;
  AxisList axes;
  PendingKind reduction = PendingKind::sum;  ///< of the reducing kinds
  int32_t dim = 0;     ///< that is cut (slice, reduce_scatter), joined (all_gather), or cut no longer (all_to_all)
  int32_t to_dim = 0;  ///< of all_to_all: the dim that is cut instead
  bool operator==(const Collective&) const = default;
};
std::string_view kind_name(Collective::Kind kind);

/// The steps that lead from one sharding to another of as many dims; `to` may owe only what `from` owes. A run of axes is
/// one step. Reductions come first, since they make what is moved smaller, and gathers last.
std::vector<Collective> reshard(const Sharding& from, const Sharding& to);
/// What is left after a step.
Sharding after(const Collective& step, Sharding sharding);

/// Bytes that each rank sends in one step when it holds `local_bytes` before it; the slowest way that is still optimal in
/// bandwidth: 2 (n-1)/n for all_reduce, (n-1)/n for reduce_scatter and all_to_all, n-1 for all_gather (Chan et al. 2007).
double moved_bytes(const Collective& step, double local_bytes, const Mesh& mesh);
/// The same for all steps from one sharding to another of a value of `bytes` in all.
double moved_bytes(const Sharding& from, const Sharding& to, double bytes, const Mesh& mesh);

}  // namespace plait
