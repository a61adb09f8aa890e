#pragma once
// The ranks of this process: all of a mesh, as threads; or one of a world of processes.
#include <exception>
#include <memory>
#include <vector>

#include "core/base/function_ref.h"
#include "core/comm/world.h"
#include "core/ranks/rank_threads.h"

namespace plait {

/// Runs tasks on the ranks of this process, which share its memory: rank 0 of them on the calling thread, the others on
/// threads of their own, which live as long as this. One thread at a time uses it.
class LocalRanks {
 public:
  /// As many threads as there are ranks.
  explicit LocalRanks(int64_t ranks, const CommOptions& options = {});
  /// This process's rank of the world, which outlives this.
  explicit LocalRanks(World& world);

  int64_t count() const { return threads_.ranks(); }
  /// The number in the mesh of a local rank.
  int64_t rank(int64_t local) const { return first_ + local; }
  /// Null: there is no other rank, here or elsewhere.
  World* world(int64_t local) const;

  /// Calls task(local) on every rank of this process and returns when all have ended. An error of one does not concern the
  /// others; the error of the lowest rank is thrown.
  void run(FunctionRef<void(int64_t local)> task);
  /// The same where ranks wait for each other: an error ends the world, and the first error is thrown.
  void run_together(FunctionRef<void(int64_t local)> task);
  /// run_together, and what `task` returned on each.
  template <class Task>
  auto gather(const Task& task) {
    std::vector<decltype(task(int64_t{0}))> out(static_cast<size_t>(count()));
    run_together([&](int64_t local) { out[static_cast<size_t>(local)] = task(local); });
    return out;
  }

 private:
  std::vector<std::unique_ptr<World>> worlds_;  ///< of threads
  World* process_ = nullptr;                    ///< of processes
  int64_t first_ = 0;
  RankThreads threads_;  ///< the last member: threads use the others
};

}  // namespace plait
