#pragma once
// Commands from the engine on rank 0 to other ranks, and their reports (docs/dev/ranks.md).
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/generate/ragged_rank.h"
#include "core/ranks/commands.h"

namespace plait {

/// Each rank reports its RankNeeds.
struct MeasureMemory {};
/// Load the weights and allocate the cache. Each rank reports its RankBytes.
struct LoadArrays {
  CacheCapacity capacity;
  auto fields() { return std::tie(capacity); }
};

/// One step per replica. The rank of each replica that has the results, if it is not rank 0, reports StepOutput if its step is not
/// empty.
struct ComputeStep {
  std::vector<RaggedStep> replicas;
  auto fields() { return std::tie(replicas); }
};
struct StepOutput {
  std::vector<float> logits, hidden;  ///< [rows, vocabulary], [rows, hidden]; empty if no feed takes them
  std::vector<int32_t> tokens;        ///< [rows]; empty if none is chosen
  auto fields() { return std::tie(logits, hidden, tokens); }
};

/// Store rows of one replica, accessed after the pending page copies.
struct ReplicaRows {
  int64_t replica = 0;
  std::vector<KvCache::Copy> copies;
  std::vector<StoreRow> rows;
  auto fields() { return std::tie(replica, copies, rows); }
};
/// Each rank of the replica reports its parts of its stage's rows, concatenated; no report without rows.
struct ReadRows {
  ReplicaRows where;
  auto fields() { return std::tie(where); }
};
struct WriteRows {
  ReplicaRows where;
  std::span<const std::byte> bytes;  ///< whole rows, concatenated
  auto fields() { return std::tie(where, bytes); }
};

struct SetTracing {
  bool on = false;
};
/// Each rank reports its trace, as std::vector<TracedEvent>.
struct TakeTrace {};
/// TraceEvent that owns its name.
struct TracedEvent {
  std::string name;
  double begin = 0, end = 0, waited = 0;
  bool collective = false, async = false;
  auto fields() { return std::tie(name, begin, end, waited, collective, async); }
};

using EngineCommands = CommandSet<JoinGroups, MeasureMemory, LoadArrays, ComputeStep, ReadRows, WriteRows, SetTracing, TakeTrace>;

}  // namespace plait
