#pragma once
// Ranks as threads of this process.
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace plait {

/// One thread for each rank except 0, for the object's lifetime. Used by one thread at a time.
class RankThreads {
 public:
  using Task = std::function<void(int64_t rank)>;

  explicit RankThreads(int64_t ranks);
  /// Waits for the current task.
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int64_t ranks() const { return static_cast<int64_t>(threads_.size()) + 1; }
  /// Calls task(rank) for ranks 1 to ranks() - 1, each on its thread. The task must not throw; the previous one has
  /// ended.
  void start(Task task);
  /// Returns when all ranks have ended the task.
  void wait();

 private:
  void loop(int64_t rank);
  void end() noexcept;  ///< threads leave their loops

  std::mutex mutex_;
  std::condition_variable started_, ended_;
  Task task_;
  uint64_t tasks_ = 0;     ///< started so far
  int64_t busy_ = 0;       ///< threads still in the current task
  bool stopping_ = false;  ///< threads return
  std::vector<std::thread> threads_;
};

}  // namespace plait
