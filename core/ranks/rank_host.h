#pragma once
// Rank 0's side of an engine on several ranks: broadcasts commands and gathers reports. The others run `serve_rank`
// (serve_rank.h), on threads started here or in processes of an existing world.
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

/// A report of a rank other than 0.
struct Report {
  int64_t rank = 0;
  std::vector<std::byte> bytes;

  /// The values of `report_ok`. Throws the error of `error_report`, prefixed with the rank.
  ByteReader reader() const { return read_report(bytes, rank); }
  template <class T>
  T as() const {
    ByteReader in = reader();
    return get_field<T>(in);
  }
};

/// Used by one thread at a time.
class RankHost {
 public:
  /// The body of a rank's thread: calls `serve_rank`. Loading checks `progress`.
  using Serve = std::function<void(World& world, LoadProgress& progress)>;

  /// A thread for each rank of the mesh but 0. What `serve` refers to lives as long as it is used:
  /// what only `make` of serve_rank needs, until `agree` has returned.
  RankHost(const Mesh& mesh, const CommOptions& options, Serve serve);
  /// Uses processes, which call `serve_rank`. Throws Error(invalid_argument) if the sizes of world and mesh differ.
  RankHost(const Mesh& mesh, std::shared_ptr<World> world);
  /// Cancels loading, broadcasts the end, and joins threads.
  ~RankHost();

  World& world() const { return *world_; }
  /// Ranks 1 to size - 1.
  const std::vector<int64_t>& others() const { return others_; }

  /// Does not wait. `command`: CommandSet::encode.
  void broadcast(std::span<const std::byte> command) const { world_->broadcast_command(command); }

  enum class Patience {
    deadline,  ///< a rank fails if it does not report within the world's deadline
    endless    ///< no deadline: for long work such as loading
  };
  /// Receives the next report of each of these ranks, all of them before rethrowing the first error.
  std::vector<Report> gather(std::span<const int64_t> ranks, Patience patience) const;
  /// The same after rank 0's own part `own`, whose error takes precedence.
  std::vector<Report> gather_with(FunctionRef<void()> own, std::span<const int64_t> ranks, Patience patience) const;
  /// The same for loading on all ranks: if rank 0 fails, threads are cancelled.
  std::vector<Report> gather_loaded(FunctionRef<void()> own) const;

  /// The initial handshake with ranks in `serve_rank`: `compile` returns rank 0's programs. Throws its error, another
  /// rank's, or Error(invalid_argument) for a rank with other programs or weights.
  void agree(FunctionRef<ProgramIdentities()> compile) const;

  /// Cancels the loading of ranks that are threads.
  void cancel() const;

 private:
  std::vector<int64_t> others_;
  std::vector<std::unique_ptr<LoadProgress>> progress_;  ///< of threads, from rank 1 on
  std::vector<std::unique_ptr<World>> worlds_;           ///< of threads, from rank 1 on
  std::shared_ptr<World> world_;                         ///< rank 0's
  std::unique_ptr<RankThreads> threads_;                 ///< the last member: threads use the others
};

}  // namespace plait
