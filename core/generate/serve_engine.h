#pragma once
// An engine on several ranks. Rank 0 has the engine: it allocates pages and sequences and broadcasts steps
// (engine_commands.h); the others run `serve_engine`. Ranks are threads that the engine starts, or processes of a
// world that the host opened.
//
// Mesh axis `data` makes replicas: ranks that differ in it hold the same weights and compute separate steps on their
// own sequences. The ranks of one replica run one program together, or along the axis `pipeline` one stage of it each. Rank 0 is
// the first of replica 0.
#include <memory>
#include <vector>

#include "core/base/load_progress.h"
#include "core/comm/world.h"
#include "core/exec/program_identity.h"
#include "core/generate/ragged_rank.h"

namespace plait {

/// A rank's replica.
struct ReplicaPlace {
  int64_t replica = 0;         ///< along `data`
  std::vector<int64_t> ranks;  ///< of this replica, in order
  int64_t reporter = 0;        ///< the one that has the results: the first of the last pipeline stage
  bool first(int64_t rank) const { return ranks.front() == rank; }
  static ReplicaPlace of(const Mesh& mesh, int64_t rank);
};

/// Runs any rank except 0 with `serve_rank` (core/ranks): compiles, then computes until the engine on rank 0 ends.
/// `options`, graph and `compile` must equal rank 0's; `weights` as in RaggedRank. Ranks without a graph:
/// refuse_rank.
void serve_engine(World& world, const Graph& graph, const CompileOptions& compile, const EngineOptions& options,
                  std::shared_ptr<Store> weights = nullptr, LoadProgress* progress = nullptr);

/// A rank's share of the options: its threads and its memory, and the cache's size where it does not depend on devices.
EngineOptions rank_options(const EngineOptions& options, const CompileOptions& compile, int processors);
/// The program is null if the decoder is not recognised. Along the axis pipeline each rank has a stage, cut as `compile.stages`
/// specify, if they have seats.
RaggedModel compile_rank(const Graph& graph, const CompileOptions& compile, const EngineOptions& options);
/// Identities of all programs of the model.
ProgramIdentities identities_of(const RaggedModel& model);

}  // namespace plait
