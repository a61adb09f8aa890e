#pragma once
// Rank 0's side of an engine on several ranks: it broadcasts commands and gathers reports. The others sit in `serve_rank`
// (serve_rank.h), on threads that the host starts or in processes of a world that was opened before.
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/function_ref.h"
#include "core/base/load_progress.h"
#include "core/comm/report.h"
#include "core/comm/world.h"
#include "core/exec/program_identity.h"
#include "core/mesh/mesh.h"
#include "core/ranks/fields.h"
#include "core/ranks/rank_threads.h"

namespace plait {

/// What a rank other than 0 reported.
struct Report {
  int64_t rank = 0;
  std::vector<std::byte> bytes;

  /// What `report_ok` was given. Throws what `error_report` was given, with the rank in front.
  ByteReader reader() const { return read_report(bytes, rank); }
  template <class T>
  T as() const {
    ByteReader in = reader();
    return get_field<T>(in);
  }
};

/// One thread at a time uses it.
class RankHost {
 public:
  /// What the thread of a rank does: calls `serve_rank`. Its loading looks at `progress`.
  using Serve = std::function<void(World& world, LoadProgress& progress)>;

  /// A thread for each rank of the mesh but 0. What `serve` refers to lives as long as it is used:
  /// what only `make` of serve_rank needs, until `agree` has returned.
  RankHost(const Mesh& mesh, const CommOptions& options, Serve serve);
  /// Processes, which have called `serve_rank` or are about to. Throws Error(invalid_argument) for a world of another size
  /// than the mesh.
  RankHost(const Mesh& mesh, std::shared_ptr<World> world);
  /// Cancels what loads, broadcasts the end, and waits for threads.
  ~RankHost();

  World& world() const { return *world_; }
  /// Ranks 1 to size - 1.
  const std::vector<int64_t>& others() const { return others_; }

  /// Does not wait. `command`: CommandSet::encode.
  void broadcast(std::span<const std::byte> command) const { world_->broadcast_command(command); }

  enum class Patience {
    deadline,  ///< a rank that does not report within the world's deadline has failed
    endless    ///< for what takes its time, such as loading
  };
  /// Receives the next report of each of these ranks, all of them before the first error among them is thrown.
  std::vector<Report> gather(std::span<const int64_t> ranks, Patience patience) const;
  /// The same around rank 0's own part, whose error comes before those of reports.
  std::vector<Report> gather_with(FunctionRef<void()> own, std::span<const int64_t> ranks, Patience patience) const;
  /// The same of all ranks, which load: where rank 0 fails, threads are cancelled.
  std::vector<Report> gather_loaded(FunctionRef<void()> own) const;

  /// The first exchange of rank 0 and ranks in `serve_rank`: `compile` returns what rank 0 compiled. Throws its error, or that
  /// of another rank, or Error(invalid_argument) for a rank with other programs or other weights.
  void agree(FunctionRef<ProgramIdentities()> compile) const;

  /// Ranks that are threads end their loading as soon as they can.
  void cancel() const;

 private:
  std::vector<int64_t> others_;
  std::vector<std::unique_ptr<LoadProgress>> progress_;  ///< of threads, from rank 1 on
  std::vector<std::unique_ptr<World>> worlds_;           ///< of threads, from rank 1 on
  std::shared_ptr<World> world_;                         ///< rank 0's
  std::unique_ptr<RankThreads> threads_;                 ///< the last member: threads use the others
};

}  // namespace plait
