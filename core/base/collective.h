#pragma once
// The collectives: steps of a resharding (core/mesh), nodes of a sharded graph (core/ops/collectives.cpp) and
// instructions of a program (core/exec).
#include <cstdint>
#include <optional>
#include <string_view>

namespace plait {

enum class CollectiveKind : uint8_t {
  all_reduce,
  reduce_scatter,  ///< each rank gets its block of `dim` of the sum (max, min)
  all_gather,      ///< blocks of `dim`, concatenated in rank order
  all_to_all,      ///< blocks of `dim` concatenated, each rank gets its block of `to_dim`
  shard            ///< the rank's block of a replicated `dim`; no communication
};

/// "all_reduce", in plans.
std::string_view kind_name(CollectiveKind kind);
/// "AllReduce", in traces; the op is "plait." and this.
std::string_view op_name(CollectiveKind kind);
/// The kind of an op ("plait.AllReduce"); nullopt if it is not a collective.
std::optional<CollectiveKind> collective_kind(std::string_view op);

/// The workspace of a collective whose communicator takes flat arrays of blocks in rank order: as large as so many of
/// its inputs and outputs.
struct CollectiveWorkspace {
  int inputs = 0, outputs = 0;
};
/// `contiguous`: whether the blocks of `dim` are contiguous, since only dims of size 1 precede it.
CollectiveWorkspace workspace_of(CollectiveKind kind, bool contiguous);

}  // namespace plait
