#pragma once
// What the engine on rank 0 asks of the others, and what they report (docs/architecture.md, "Ranks").
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/generate/ragged_rank.h"
#include "core/ranks/commands.h"

namespace plait {

/// Make the weights and the cache. Each rank reports its RankBytes.
struct LoadArrays {};

/// A step of each replica. The first rank of every replica but the first, if it has something to compute, reports StepOutput.
struct ComputeStep {
  std::vector<RaggedStep> replicas;
  auto fields() { return std::tie(replicas); }
};
struct StepOutput {
  std::vector<float> logits, hidden;  ///< [rows, vocabulary], [rows, hidden]; empty where there are none
  auto fields() { return std::tie(logits, hidden); }
};

/// Rows of the Store on the ranks of one replica, after copies of pages that are due.
struct ReplicaRows {
  int64_t replica = 0;
  std::vector<KvCache::Copy> copies;
  std::vector<StoreRow> rows;
  auto fields() { return std::tie(replica, copies, rows); }
};
/// If there are rows, each rank of the replica reports its parts of them, one after the other.
struct ReadRows {
  ReplicaRows where;
  auto fields() { return std::tie(where); }
};
struct WriteRows {
  ReplicaRows where;
  std::span<const std::byte> bytes;  ///< whole rows, one after the other
  auto fields() { return std::tie(where, bytes); }
};

struct SetTracing {
  bool on = false;
};
/// Each rank reports its trace, as std::vector<TracedEvent>.
struct TakeTrace {};
/// TraceEvent with a name of its own.
struct TracedEvent {
  std::string name;
  double begin = 0, end = 0, waited = 0;
  bool collective = false, async = false;
  auto fields() { return std::tie(name, begin, end, waited, collective, async); }
};

using EngineCommands = CommandSet<LoadArrays, JoinGroups, ComputeStep, ReadRows, WriteRows, SetTracing, TakeTrace>;

}  // namespace plait
