#pragma once
// Hub: waiting between the ranks of one machine, and the end of a world.
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/function_ref.h"
#include "core/comm/mapping.h"
#include "core/comm/options.h"

namespace plait {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// What a rank waits for: a condition that another rank makes true, and its description in errors.
struct Awaited {
  int rank;                         ///< in the world
  FunctionRef<bool()> come;         ///< acquires the data it checks, once true
  FunctionRef<std::string()> what;  ///< "step 3 of all_reduce(sum, f32, 64 bytes)"
  /// Whatever it is, a dead rank is noticed, on another machine by missed heartbeats.
  Patience patience = Patience::deadline;
};

/// A notice to ranks of other machines: a rank ended the world (value: the Code), left it, has waited long for
/// another
/// (value: 1 + that rank, 0: no longer), or is alive (a heartbeat; value: Hub::progress).
struct News {
  enum class Kind : int32_t { over, left, waits, lives };
  Kind kind;
  int32_t rank;
  int32_t value = 0;
  char message[500] = {};
};

/// Waits spin for at most 50 us (not at all where ranks share cores), then sleep on a futex, the rank's bell. A
/// sleeping rank publishes whom it waits for, so only that rank rings, without a system call when no rank sleeps; and
/// a deadline blames the rank at the end of a chain of waiting ranks.
///
/// Each rank has its own Hub over memory shared by the ranks of its machine. One thread calls it; `fail`, `over`,
/// `culprit`, `notice` and `note_device_wait` are thread-safe.
class Hub {
 public:
  static int64_t bytes(int world_size);

  /// `memory`: zeros, or in use by other ranks. `spin`: each rank of the machine has its own core.
  Hub(std::shared_ptr<Mapping> memory, int world_rank, int world_size, bool spin, const CommOptions& options);
  /// Leaves the world; ranks that wait for this one, now or later, throw.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const CommOptions& options() const { return options_; }
  void delay() const {
    if (options_.delay) options_.delay();
  }

  /// Waits until awaited.come(). Throws when the world is over, or ends it if the awaited rank misses the deadline.
  void wait(const Awaited& awaited);
  /// The same for conditions without a bell: polls, with pauses growing to 1 ms (5 ms without a deadline).
  void poll(const Awaited& awaited);

  /// Call when this rank has sent, received or taken part in a step: ranks that wait with Patience::progress see it.
  void moved() {
    std::atomic<uint32_t>& count = line(rank_).progress;
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  uint32_t progress() const { return line(rank_).progress.load(std::memory_order_relaxed); }

  /// Shaped links (CommOptions::link): when a message sent now may be received; 0 without them.
  int64_t mail_ready_ns(int to, int64_t bytes);
  /// Waits until that time of the steady clock. Throws when the world is over.
  void wait_until(int64_t ns);
  /// Waits as long as a step takes in which this rank sends each member so many bytes.
  void pass_links(const std::vector<int>& members, int64_t bytes);

  /// Nanoseconds this thread has waited so far.
  int64_t waited_ns() const { return waited_ns_; }

  /// Call after a change that `rank` may wait for. Sequentially consistent if the change is.
  void ring_for(int rank) {
    if (line(rank).waits_for.load(std::memory_order_seq_cst) == rank_ + 1) ring(rank);
  }

  /// Throws if the world is over.
  void check() const {
    if (memory_state().over.load(std::memory_order_acquire) != 0) throw_over();
  }
  /// Checks for dead ranks, at most ten times a second, and returns whether it did; for ranks that send and never wait.
  bool look_around();
  /// What waits look at, for threads that wait for something else: ends the world if a rank died, or one of another machine has been silent
  /// for the deadline. Thread-safe.
  void notice() noexcept;

  /// Communicator::note_device_wait.
  void note_device_wait(double waited_s) noexcept;

  bool over() const noexcept { return memory_state().over.load(std::memory_order_acquire) != 0; }
  int culprit() const noexcept;
  /// Ends the world unless it is over: every rank's pending and later calls throw this Error.
  void fail(Code code, int culprit, std::string_view message) noexcept;

  /// Worlds of several machines: `spread`, if set, sends notices to other machines; `listen` receives them (and calls
  /// `hear`) during waits. Both are thread-safe.
  std::function<void(const News& news)> spread;
  std::function<void()> listen;
  void hear(const News& news);
  /// From now on expects heartbeats of a rank on another machine, several within a deadline.
  void expect_life(int rank);

 private:
  struct alignas(64) Line {
    std::atomic<uint32_t> bell;      ///< the futex that the rank sleeps on
    std::atomic<int32_t> waits_for;  ///< 1 + the rank that it sleeps for; 0: awake
    std::atomic<uint32_t> came;      ///< it has joined,
    std::atomic<uint32_t> left;      ///< and it has left
    std::atomic<uint32_t> device;    ///< whether it waits for its device
    /// Counts what it has done. In a cache line of its own, since it changes with every step.
    alignas(64) std::atomic<uint32_t> progress;
  };
  struct alignas(64) State {
    static constexpr size_t message_bytes = 1000;
    std::atomic<uint32_t> over;  ///< 0 alive, 1 error being written, 2 written
    int32_t code;
    int32_t culprit;
    char message[message_bytes];
  };

  State& memory_state() const { return *reinterpret_cast<State*>(memory_->data()); }
  Line& line(int rank) const { return reinterpret_cast<Line*>(memory_->data() + sizeof(State))[rank]; }
  bool spin(FunctionRef<bool()> come) const;
  void sleep(const Awaited& awaited);
  class Waiting;
  void examine(Waiting& waiting);
  void give_up(const Awaited& awaited);
  uint64_t progress_of_all() const;
  void tell(const News& news) noexcept;
  void find_dead();
  void find_silent(int rank);
  void ring(int rank) const;
  [[noreturn]] void throw_over() const;

  std::shared_ptr<Mapping> memory_;
  const int rank_;
  const int world_size_;
  const int64_t spin_ns_;
  const CommOptions options_;
  int64_t waited_ns_ = 0;
  std::atomic<int64_t> looked_ns_ = 0;          ///< time of the last check by look_around
  std::vector<std::atomic<int64_t>> heard_ns_;  ///< by rank: time of the last heartbeat; 0: not expected
  /// Of a wait for a device: all ranks' progress, and when it last changed; whether other machines know of it.
  std::atomic<uint64_t> device_progress_ = 0;
  std::atomic<int64_t> device_moved_ns_ = 0;
  std::atomic<bool> device_told_ = false;
  std::vector<int64_t> link_free_ns_;           ///< by rank, shaped links: end of the last transfer
};

}  // namespace plait
