#pragma once
// Threads of a process that are ranks.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace plait {

/// One thread for each rank but 0, from construction to destruction. One thread at a time uses it.
class RankThreads {
 public:
  using Task = std::function<void(int64_t rank)>;

  explicit RankThreads(int64_t ranks);
  /// Waits for the task under way.
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int64_t ranks() const { return static_cast<int64_t>(threads_.size()) + 1; }
  /// Calls task(rank) for ranks 1 to ranks() - 1, each on its thread. The task must not throw; the one before has ended.
  void start(Task task);
  /// Returns when all ranks have ended the task.
  void wait();

 private:
  void loop(int64_t rank);
  void stop() noexcept;

  std::mutex mutex_;
  std::condition_variable started_, ended_;
  Task task_;
  uint64_t tasks_ = 0;     ///< started so far
  int64_t busy_ = 0;       ///< threads that have not ended the present task
  bool stopping_ = false;  ///< threads return
  std::vector<std::thread> threads_;
};

}  // namespace plait
