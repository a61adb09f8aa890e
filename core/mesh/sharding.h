#pragma once
// Sharding: the placement of a value on a mesh, resharding, and its cost.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/collective.h"
#include "core/graph/dims_rule.h"
#include "core/mesh/mesh.h"

namespace plait {

/// A reduction still due along an axis (a partial value).
struct Pending {
  AxisId axis = 0;
  PendingKind kind = PendingKind::sum;
  bool operator==(const Pending&) const = default;
};

/// Each dim is cut into equal contiguous blocks by a list of sub-axes, major first. An axis occurs at most once;
/// along axes that do not occur the value is replicated.
struct Sharding {
  std::vector<AxisList> dims;
  std::vector<Pending> pending;  ///< ascending by axis
  bool operator==(const Sharding&) const = default;

  static Sharding replicated(size_t rank) { return {std::vector<AxisList>(rank), {}}; }
  /// Dim `dim` of `rank` cut by `axes`.
  static Sharding cut(size_t rank, size_t dim, AxisList axes);
  bool is_replicated() const;
  bool owes(AxisId axis) const;
  /// All axes in `dims`, in order of the dims.
  AxisList axes() const;
};

/// "[data, -, tensor] sum(tensor.1)"
std::string text(const Sharding& sharding, const Mesh& mesh);
/// The inverse of `text`. Throws Error(invalid_argument).
Sharding parse_sharding(std::string_view text, const Mesh& mesh);

/// Whether `parts` divides `size` for all values of its symbols.
bool divides(const Dim& size, int64_t parts);
/// The local sizes of a rank; nullopt if one does not divide.
std::optional<Dims> local_dims(const Dims& dims, const Sharding& sharding, const Mesh& mesh);

/// One resharding step, run by all ranks of each group along `axes`.
struct Collective {
  CollectiveKind kind = CollectiveKind::shard;
  AxisList axes;
  PendingKind reduction = PendingKind::sum;  ///< for the reducing kinds
  int32_t dim = 0;     ///< that is cut (shard, reduce_scatter), joined (all_gather), or cut no longer (all_to_all)
  int32_t to_dim = 0;  ///< of all_to_all: the dim that is cut instead
  bool operator==(const Collective&) const = default;
};

/// Steps that reshard `from` to `to`, of equal rank; `to` may be pending only where `from` is. Consecutive axes form
/// one step. Reductions come first, since they reduce the bytes moved, gathers last.
std::vector<Collective> reshard(const Sharding& from, const Sharding& to);
/// The sharding after a step.
Sharding after(const Collective& step, Sharding sharding);

/// Bytes each rank sends in one step, given `local_bytes` before it, by the slowest bandwidth-optimal algorithm:
/// 2 (n-1)/n for all_reduce, (n-1)/n for reduce_scatter and all_to_all, n-1 for all_gather (Chan et al. 2007).
double moved_bytes(const Collective& step, double local_bytes, const Mesh& mesh);
/// The same for all steps of a reshard of a value of `bytes` in total.
double moved_bytes(const Sharding& from, const Sharding& to, double bytes, const Mesh& mesh);

}  // namespace plait
