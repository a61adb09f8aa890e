#pragma once
// Where the ranks of one machine wait for each other, and where a world ends.
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

/// What a rank waits for: another rank's doing, and the words for it in an error.
struct Awaited {
  int rank;                         ///< in the world
  FunctionRef<bool()> come;         ///< acquires what it looks at, once it is true
  FunctionRef<std::string()> what;  ///< "step 3 of all_reduce(sum, f32, 64 bytes)"
  bool for_ever = false;  ///< no deadline; death is still noticed, of a rank on another machine by its silence
};

/// What ranks of other machines are told: a rank ended the world (value: the Code), left it, waits long for another
/// (value: 1 + that rank, 0: no longer), or lives, which is all that it says now and then.
struct News {
  enum class Kind : int32_t { over, left, waits, lives };
  Kind kind;
  int32_t rank;
  int32_t value = 0;
  char message[500] = {};
};

/// Waiting is a spin of at most 50 us (none where ranks have to share cores), then a futex, the rank's bell. A rank that
/// sleeps says for whom, so that only the awaited one rings, and without a system call when nobody sleeps; and a
/// deadline finds the rank at the end of a chain of waiting ranks.
///
/// Each rank has a Hub of its own over memory that the ranks of its machine share. One thread calls it; `fail`, `over`
/// and `culprit` may be called from any.
class Hub {
 public:
  static int64_t bytes(int world_size);

  /// `memory`: zeros, or in use by other ranks. `spin`: there is a core for each rank of the machine.
  Hub(std::shared_ptr<Mapping> memory, int world_rank, int world_size, bool spin, const CommOptions& options);
  /// The rank leaves the world; whoever waits for it then, or later, throws.
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const CommOptions& options() const { return options_; }
  void delay() const {
    if (options_.delay) options_.delay();
  }

  /// Returns when awaited.come() holds. Throws when the world is over, or ends it because the awaited rank does not come.
  void wait(const Awaited& awaited);
  /// The same for what no bell announces: looks again and again, with pauses that grow to 1 ms (5 ms for ever).
  void poll(const Awaited& awaited);

  /// How long this rank has waited so far, in nanoseconds: this thread's alone.
  int64_t waited_ns() const { return waited_ns_; }

  /// To be called after a change that `rank` may wait for. Sequentially consistent with the change if that is.
  void ring_for(int rank) {
    if (line(rank).waits_for.load(std::memory_order_seq_cst) == rank_ + 1) ring(rank);
  }

  /// Throws if the world is over.
  void check() const {
    if (memory_state().over.load(std::memory_order_acquire) != 0) throw_over();
  }
  /// Notices what only a look reveals: ranks that died. For those who send and never wait; looks ten times a second.
  void look_around();

  bool over() const noexcept { return memory_state().over.load(std::memory_order_acquire) != 0; }
  int culprit() const noexcept;
  /// Ends the world, if it is not over: every rank's pending and later calls throw an Error with this.
  void fail(Code code, int culprit, std::string_view message) noexcept;

  /// Worlds of several machines: how a rank tells those of other machines what these cannot see, if set; and how it looks
  /// for what it is told (and calls `hear`), whenever it waits.
  std::function<void(const News& news)> spread;
  std::function<void()> listen;
  void hear(const News& news);
  /// The rank is on another machine and says that it lives, several times within a deadline: from now on.
  void expect_life(int rank);

 private:
  struct alignas(64) Line {
    std::atomic<uint32_t> bell;      ///< the futex that the rank sleeps on
    std::atomic<int32_t> waits_for;  ///< 1 + the rank that it sleeps for; 0: awake
    std::atomic<uint32_t> came;      ///< it was there once,
    std::atomic<uint32_t> left;      ///< and it is not there any more
  };
  struct alignas(64) State {
    static constexpr size_t message_bytes = 1000;
    std::atomic<uint32_t> over;  ///< 0 alive, 1 somebody writes down why not, 2 written
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
  int64_t looked_ns_ = 0;          ///< when look_around last did
  std::vector<int64_t> heard_ns_;  ///< by rank: when it last said that it lives; 0: it need not
};

}  // namespace plait
