#pragma once
// An engine on several ranks. Rank 0 has the engine: it keeps the books of pages and sequences, and tells the others what
// to compute; these sit in `serve_engine`. Ranks are threads that the engine starts, or processes of a world that the host
// opened.
//
// A mesh's axis `data` makes replicas: ranks that differ in it hold the same and compute steps of their own, on the
// sequences that are theirs. The ranks of one replica run one program together. Rank 0 is the first of replica 0.
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/load_progress.h"
#include "core/comm/report.h"
#include "core/comm/world.h"
#include "core/exec/program_identity.h"
#include "core/generate/ragged_rank.h"

namespace plait {

/// What rank 0 tells the others: a byte, then
enum class RankCommand : uint8_t {
  load,    ///< make the weights; each rank reports, as after compiling
  join,    ///< RaggedRank::join
  step,    ///< a RaggedStep for each replica; the first ranks of replicas but the first report what they made
  read,    ///< replica, copies, rows: its ranks report their parts, one behind the other
  write,   ///< the same, then the rows' bytes, whole
  trace,   ///< a bool: whether to trace from now on
  traced,  ///< each rank reports its trace
  end
};

/// Where a rank stands.
struct ReplicaPlace {
  int64_t replica = 0;         ///< along `data`
  std::vector<int64_t> ranks;  ///< of this replica, in order
  bool first(int64_t rank) const { return ranks.front() == rank; }
  static ReplicaPlace of(const Mesh& mesh, int64_t rank);
};

/// Any rank but 0, with the world's communicator at its disposal: compiles and computes for the engine on rank 0, until that
/// ends. What goes wrong before the first step is reported to rank 0, and this returns when rank 0 says so; what goes wrong
/// later ends the world, and is thrown, as is the end of the world by others. `options`, the graph and what is
/// compiled must be those of rank 0; `weights` as in RaggedRank.
void serve_engine(World& world, const Graph& graph, const CompileOptions& compile, const EngineOptions& options,
                  std::shared_ptr<Store> weights = nullptr, LoadProgress* progress = nullptr);

/// The same for a rank that has no graph: tells rank 0 why, and returns when that has heard it.
void refuse_engine(World& world, const Error& why);

/// As rank 0 sees the others.
class Ranks {
 public:
  /// Ranks of threads, which start at once and share `weights`. The graph must live until `agree` has returned.
  Ranks(const Graph& graph, const CompileOptions& compile, const EngineOptions& options,
        std::shared_ptr<Store> weights);
  /// Processes that have called `serve_engine`, or are about to. Throws Error(invalid_argument) when they are not as many
  /// as the mesh has.
  Ranks(std::shared_ptr<World> world, const Mesh& mesh);
  /// Tells them that it is over; waits for threads.
  ~Ranks();

  World& world() const { return *world_; }
  void command(RankCommand command, ByteWriter bytes = {});
  /// The next report of each of these ranks, which read_report reads. Throws the first error among them.
  std::vector<std::vector<std::byte>> reports(std::span<const int64_t> ranks, bool patient = false);
  /// Waits until all have compiled; throws Error(invalid_argument) for a rank that compiled something else than rank 0 has.
  /// Null: rank 0 compiled nothing, and has its own to say about it: throws nothing that a rank says.
  void agree(const Program* program);
  /// Waits until all have made their weights, and says what each holds, from rank 1 on. `failed`: rank 0 did not, and has its
  /// own to say, too.
  std::vector<RankBytes> loaded(bool failed);
  /// What each rank has traced, from rank 1 on.
  std::vector<std::vector<TraceEvent>> traces();
  /// Threads that load end as soon as they can.
  void cancel();

 private:
  std::vector<std::vector<std::byte>> listen(bool whatever);

  std::shared_ptr<World> world_;
  std::vector<std::unique_ptr<LoadProgress>> progress_;
  std::vector<std::thread> threads_;
  std::set<std::string> trace_names_;
};

/// What each rank makes of the options for all: its threads, its share of the memory.
EngineOptions rank_options(const EngineOptions& options, const Mesh& mesh, int processors);
/// The program is null when the decoder was not recognised. Throws Error(unsupported) for a mesh with axes other than data
/// and tensor, too.
RaggedModel compile_rank(const Graph& graph, const CompileOptions& compile, const EngineOptions& options);

void put_trace(ByteWriter& out, const std::vector<TraceEvent>& events);
/// Names that this process does not know live in `names`.
std::vector<TraceEvent> get_trace(ByteReader& in, std::set<std::string>& names);

}  // namespace plait
