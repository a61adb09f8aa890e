#pragma once
// The ranks of this process: all ranks of a mesh as threads, or one rank of a world of processes.
#include <exception>
#include <memory>
#include <vector>

#include "core/base/function_ref.h"
#include "core/comm/world.h"
#include "core/ranks/rank_threads.h"

namespace plait {

/// Runs tasks on the ranks of this process: rank 0 on the calling thread, the others on threads that live as long as
/// this. Used by one thread at a time.
class LocalRanks {
 public:
  /// One thread per rank.
  explicit LocalRanks(int64_t ranks, const CommOptions& options = {});
  /// This process's rank of the world, which must outlive this.
  explicit LocalRanks(World& world);

  int64_t count() const { return threads_.ranks(); }
  /// The mesh rank of a local rank.
  int64_t rank(int64_t local) const { return first_ + local; }
  /// Null if there is only one rank in total.
  World* world(int64_t local) const;

  /// Calls task(local) on every rank of this process and returns when all have ended. An error on one does not stop
  /// the others; the error of the lowest rank is rethrown.
  void run(FunctionRef<void(int64_t local)> task);
  /// The same for tasks that communicate: an error ends the world, and the first error is rethrown.
  void run_together(FunctionRef<void(int64_t local)> task);
  /// As run_together; returns the results by rank.
  template <class Task>
  auto gather(const Task& task) {
    std::vector<decltype(task(int64_t{0}))> out(static_cast<size_t>(count()));
    run_together([&](int64_t local) { out[static_cast<size_t>(local)] = task(local); });
    return out;
  }

 private:
  std::vector<std::unique_ptr<World>> worlds_;  ///< ranks as threads
  World* process_ = nullptr;                    ///< ranks as processes
  int64_t first_ = 0;
  RankThreads threads_;  ///< the last member: threads use the others
};

}  // namespace plait
