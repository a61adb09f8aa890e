#include "core/base/thread_pool.h"

#include <sched.h>

#include <chrono>

#include "core/base/threads.h"

namespace plait {
namespace {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Spins until `done()` or the time limit; reads the clock rarely.
template <class Done>
bool spin(int64_t limit_ns, Done done) {
  if (limit_ns == 0) return done();
  auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      relax();
    }
    if ((std::chrono::steady_clock::now() - start).count() > limit_ns) return false;
  }
}

/// `pending_` as the gate of a round: how many workers are inside, how many came, whether it is closed to others, and the low bits of the
/// round's number.
struct Gate {
  static constexpr int counted = 10;  ///< bits of a number of workers
  static constexpr int32_t came = 1 << counted, closed = 1 << 2 * counted, inside = came - 1;
  static constexpr uint32_t rounds = (1u << 31 >> 2 * counted) - 1;

  static int32_t of(uint32_t round) { return static_cast<int32_t>((round & rounds) << (2 * counted + 1)); }
  static bool belongs(int32_t gate, uint32_t round) { return (gate & ~(2 * closed - 1)) == of(round); }
  static bool is_empty(int32_t gate) { return (gate & inside) == 0; }
  static int32_t arrived(int32_t gate) { return (gate & (closed - came)) / came; }
};

/// Whether there is an open round that this worker has not seen; it is then in it.
bool join(std::atomic<int32_t>& pending, const std::atomic<uint32_t>& rounds, uint32_t& seen) {
  for (;;) {
    const uint32_t round = rounds.load(std::memory_order_acquire);
    int32_t gate = pending.load(std::memory_order_acquire);
    if (round == seen) return false;
    if (!Gate::belongs(gate, round)) {  // the caller is between the two, and may wait for this processor
      std::this_thread::yield();
      continue;
    }
    if (gate & Gate::closed) {
      seen = round;
      return false;
    }
    if (!pending.compare_exchange_weak(gate, gate + Gate::came + 1, std::memory_order_acq_rel)) continue;
    // Of the round that is open now, even if so many began since that the gate's bits of the number are the same.
    seen = rounds.load(std::memory_order_acquire);
    return true;
  }
}

/// Opens a round, does the caller's part, and waits for `workers` to have come and all that came to have left.
void hold_round(std::atomic<int32_t>& pending, std::atomic<uint32_t>& rounds, int64_t spin_ns, size_t workers,
                FunctionRef<void()> own) {
  const uint32_t round = rounds.load(std::memory_order_relaxed) + 1;
  rounds.store(round, std::memory_order_release);  // first, so that who is in by the gate reads this number
  // Exchanged and not stored: notify_all first asks whether anyone waits, and that must not be read before a worker that is about to wait
  // can see the new number.
  pending.exchange(Gate::of(round), std::memory_order_seq_cst);
  rounds.notify_all();
  own();
  if (workers == 0) pending.fetch_or(Gate::closed, std::memory_order_acq_rel);
  int32_t gate = 0;
  auto ended = [&] {
    gate = pending.load(std::memory_order_acquire);
    return Gate::is_empty(gate) && Gate::arrived(gate) >= static_cast<int32_t>(workers);
  };
  if (!spin(spin_ns, ended))
    while (!ended()) pending.wait(gate);
  pending.fetch_or(Gate::closed, std::memory_order_acq_rel);
}

thread_local const std::atomic<bool>* stops_this_thread = nullptr;

}  // namespace

void check_stopped() {
  if (stops_this_thread && stops_this_thread->load(std::memory_order_relaxed))
    throw Error(Code::cancelled, "the work was cancelled");
}

const std::atomic<bool>* ThreadPool::stop_on(const std::atomic<bool>* flag) {
  stops_this_thread = flag;
  return std::exchange(flag_, flag);
}

int usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

ThreadPool::ThreadPool(int threads) {
  if (threads > 1 && threads <= usable_processors()) spin_ns_ = 50'000;
  start_threads(threads_, 1, threads, [this](int64_t worker) { loop(static_cast<int>(worker)); }, [this] { end(); });
}

/// Workers leave their loops.
void ThreadPool::end() {
  stop_.store(true);
  pending_.store(Gate::of(round_.load() + 1) | Gate::closed);
  round_.fetch_add(1);
  round_.notify_all();
}

ThreadPool::~ThreadPool() {
  end();
  for (auto& thread : threads_) thread.join();
}

void ThreadPool::call(int worker) {
  const std::atomic<bool>* const before = std::exchange(stops_this_thread, flag_);
  try {
    (*task_)(worker);
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
  stops_this_thread = before;
}

void ThreadPool::loop(int worker) {
  for (uint32_t seen = 0; !stop_.load();) {  // before each wait: join may have seen the round that ends the pool
    if (!spin(spin_ns_, [&] { return round_.load(std::memory_order_acquire) != seen; })) round_.wait(seen);
    if (!join(pending_, round_, seen)) continue;
    call(worker);
    pending_.fetch_sub(1, std::memory_order_acq_rel);
    pending_.notify_one();
  }
}

void ThreadPool::run(FunctionRef<void(int)> task) {
  if (threads_.empty()) return task(0);
  task_ = &task;
  hold_round(pending_, round_, spin_ns_, threads_.size(), [&] { call(0); });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::for_each(int64_t count, FunctionRef<void(int64_t, int)> task) {
  std::atomic<int64_t> next{0};
  auto work = [&](int worker) {
    while (!stopped()) {
      const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
      if (item >= count) return;
      task(item, worker);
    }
  };
  if (threads_.empty() || count <= 1) {
    work(0);
  } else {
    const FunctionRef<void(int)> task(work);
    task_ = &task;
    hold_round(pending_, round_, spin_ns_, 0, [&] { call(0); });
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }
  // Each worker runs until there is no item, or it stops.
  if (next.load(std::memory_order_relaxed) < count) throw Error(Code::cancelled, "the work was cancelled");
}

}  // namespace plait
