#pragma once
// An engine on several ranks. Rank 0 has the engine: it allocates pages and sequences and broadcasts steps
// (engine_commands.h); the others run `serve_engine`. Ranks are threads that the engine starts, or processes of a world that
// the host opened.
//
// A mesh's axis `data` makes replicas: ranks that differ in it hold the same and compute steps of their own, on the
// sequences that are theirs. The ranks of one replica run one program together. Rank 0 is the first of replica 0.
#include <memory>
#include <vector>

#include "core/base/load_progress.h"
#include "core/comm/world.h"
#include "core/exec/program_identity.h"
#include "core/generate/ragged_rank.h"

namespace plait {

/// Where a rank is in the mesh.
struct ReplicaPlace {
  int64_t replica = 0;         ///< along `data`
  std::vector<int64_t> ranks;  ///< of this replica, in order
  bool first(int64_t rank) const { return ranks.front() == rank; }
  static ReplicaPlace of(const Mesh& mesh, int64_t rank);
};

/// Any rank but 0, as `serve_rank` (core/ranks): compiles and computes for the engine on rank 0 until that ends. `options`,
/// the graph and what is compiled must be those of rank 0; `weights` as in RaggedRank. refuse_rank is for a rank without a graph.
void serve_engine(World& world, const Graph& graph, const CompileOptions& compile, const EngineOptions& options,
                  std::shared_ptr<Store> weights = nullptr, LoadProgress* progress = nullptr);

/// A rank's options: its threads, its share of the memory.
EngineOptions rank_options(const EngineOptions& options, const Mesh& mesh, int processors);
/// The program is null when the decoder was not recognised. Throws Error(unsupported) also for a mesh with axes other than
/// data and tensor.
RaggedModel compile_rank(const Graph& graph, const CompileOptions& compile, const EngineOptions& options);
/// All programs of the model.
ProgramIdentities identities_of(const RaggedModel& model);

}  // namespace plait
