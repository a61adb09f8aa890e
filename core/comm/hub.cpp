#include "core/comm/hub.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <ctime>
#include <new>
#include <thread>

#include "core/base/text.h"

namespace plait {
namespace {

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free,
              "atomics are shared between processes");

constexpr int64_t spin_limit_ns = 50'000;
constexpr double look_every_s = 0.1;  ///< time to notice a dead rank
constexpr double idle_look_every_s = 1;
constexpr std::string_view over_hint = "the world of ranks is over: make a new one to go on";

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Returns on a timeout, a signal or a changed value; the caller checks again.
void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, double seconds, bool within_process) {
  timespec limit{static_cast<time_t>(seconds), static_cast<long>((seconds - std::floor(seconds)) * 1e9)};
  syscall(SYS_futex, &word, FUTEX_WAIT | (within_process ? FUTEX_PRIVATE_FLAG : 0), seen, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, bool within_process) {
  syscall(SYS_futex, &word, FUTEX_WAKE | (within_process ? FUTEX_PRIVATE_FLAG : 0), INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

int64_t Hub::bytes(int world_size) { return static_cast<int64_t>(sizeof(State) + sizeof(Line) * world_size); }

Hub::Hub(std::shared_ptr<Mapping> memory, int world_rank, int world_size, bool spin, const CommOptions& options)
    : memory_(std::move(memory)),
      rank_(world_rank),
      world_size_(world_size),
      spin_ns_(spin ? spin_limit_ns : 0),
      options_(options),
      heard_ns_(static_cast<size_t>(world_size)),
      link_free_ns_(options.link ? static_cast<size_t>(world_size) : 0) {
  if (!(options.deadline_s > 0) || options.in_flight_bytes < 0)
    throw Error(Code::invalid_argument, "ranks need a deadline above 0 s and in_flight_bytes of at least 0");
  memory_->hold(rank_);
  line(rank_).came.store(1, std::memory_order_release);
}

Hub::~Hub() {
  line(rank_).left.store(1, std::memory_order_seq_cst);
  for (int other = 0; other < world_size_; ++other) ring_for(other);
}

void Hub::ring(int rank) const {
  line(rank).bell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(line(rank).bell, memory_->is_within_process());
}

bool Hub::spin(FunctionRef<bool()> come) const {
  if (come()) return true;
  if (spin_ns_ == 0) return false;
  // The clock is read once in some hundred checks; a read costs about as much as twenty.
  for (int64_t start = now_ns(); now_ns() - start < spin_ns_;) {
    for (int look = 0; look < 128; ++look) {
      if (come()) return true;
      relax();
    }
    if (over()) return false;
  }
  return false;
}

namespace {
/// Adds its lifetime to a sum, also on exceptions.
struct Stopwatch {
  explicit Stopwatch(int64_t& sum) : sum(sum), start(now_ns()) {}
  ~Stopwatch() { sum += now_ns() - start; }
  int64_t& sum;
  const int64_t start;
};
}  // namespace

void Hub::wait(const Awaited& awaited) {
  if (awaited.come()) return;
  const Stopwatch watch(waited_ns_);
  if (!spin(awaited.come)) sleep(awaited);
}

/// A wait that is not over at once: published to other ranks, and to other machines if it takes long.
class Hub::Waiting {
 public:
  Waiting(Hub& hub, const Awaited& awaited) : awaited(awaited), hub_(hub) {}
  ~Waiting() {
    hub_.line(hub_.rank_).waits_for.store(0, std::memory_order_relaxed);
    if (told_) hub_.tell({News::Kind::waits, hub_.rank_, 0});
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// The order that ring_for relies on: publish before checking.
  void say() { hub_.line(hub_.rank_).waits_for.store(awaited.rank + 1, std::memory_order_seq_cst); }
  void say_elsewhere() {
    if (told_ || seconds() < hub_.options_.deadline_s / 4) return;
    told_ = true;
    hub_.tell({News::Kind::waits, hub_.rank_, awaited.rank + 1});
  }
  double seconds() const { return static_cast<double>(now_ns() - start_ns_) * 1e-9; }
  /// Whether no rank has made progress for a deadline. Ranks of other machines tell theirs by heartbeats, four a
  /// deadline.
  bool world_stands_still() {
    const double limit_s = hub_.options_.deadline_s * (hub_.listen ? 1.5 : 1);
    const int64_t now = now_ns();
    if (static_cast<double>(now - looked_ns_) * 1e-9 < std::min(look_every_s, limit_s / 10)) return false;
    looked_ns_ = now;
    const uint64_t progress = hub_.progress_of_all();
    if (moved_ns_ == 0 || progress != progress_) moved_ns_ = now;
    progress_ = progress;
    return static_cast<double>(now - moved_ns_) * 1e-9 >= limit_s;
  }

  const Awaited& awaited;

 private:
  Hub& hub_;
  const int64_t start_ns_ = now_ns();
  bool told_ = false;
  int64_t looked_ns_ = 0, moved_ns_ = 0;  ///< times of the last look at all ranks' progress, and of its last change
  uint64_t progress_ = 0;
};

void Hub::sleep(const Awaited& awaited) {
  Waiting waiting(*this, awaited);
  while (true) {
    waiting.say();
    const uint32_t bell = line(rank_).bell.load(std::memory_order_seq_cst);
    delay();
    if (awaited.come()) return;
    examine(waiting);
    if (awaited.come()) return;
    double slice_s = awaited.patience == Patience::unlimited ? idle_look_every_s : look_every_s;
    if (awaited.patience == Patience::deadline)
      slice_s = std::clamp(options_.deadline_s - waiting.seconds(), 1e-3, slice_s);
    futex_wait(line(rank_).bell, bell, slice_s, memory_->is_within_process());
  }
}

void Hub::poll(const Awaited& awaited) {
  if (awaited.come()) return;
  const Stopwatch watch(waited_ns_);
  if (spin(awaited.come)) return;
  Waiting waiting(*this, awaited);
  waiting.say();
  const int64_t longest_us = awaited.patience == Patience::unlimited ? 5000 : 1000;
  for (int64_t pause_us = 20;; pause_us = std::min(2 * pause_us, longest_us)) {
    examine(waiting);
    if (awaited.come()) return;
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    if (awaited.come()) return;
  }
}

/// Throws if the wait must end.
void Hub::examine(Waiting& waiting) {
  const Awaited& awaited = waiting.awaited;
  if (listen) listen();
  check();
  if (line(awaited.rank).left.load(std::memory_order_seq_cst)) {
    if (awaited.come()) return;  // it arrived before it left
    fail(Code::closed, awaited.rank,
         cat("rank ", awaited.rank, " left the world while rank ", rank_, " waited for its ", awaited.what()));
  }
  look_around();
  waiting.say_elsewhere();
  if (waiting.seconds() >= options_.deadline_s) {
    if (awaited.patience == Patience::deadline) give_up(awaited);
    find_silent(awaited.rank);
  }
  if (awaited.patience == Patience::progress && waiting.world_stands_still()) give_up(awaited);
  check();
}

void Hub::give_up(const Awaited& awaited) {
  // The awaited rank may itself be waiting for another.
  int blamed = awaited.rank;
  for (int hops = 0; hops < world_size_; ++hops) {
    const int next = line(blamed).waits_for.load(std::memory_order_seq_cst) - 1;
    if (next < 0 || next == rank_) break;
    blamed = next;
  }
  const std::string through = blamed == awaited.rank ? "" : cat(", which waits for rank ", blamed);
  const bool patient = awaited.patience == Patience::progress;
  const std::string limit = cat(" ", options_.deadline_s, " s");
  fail(
      Code::closed, blamed,
      cat("rank ", rank_, " waited", patient ? "" : limit, " for rank ", awaited.rank, "'s ", awaited.what(), through,
          patient ? cat(", while no rank made progress for", limit) : "", ": rank ", blamed, " does not come"));
}

uint64_t Hub::progress_of_all() const {
  uint64_t out = 0;
  for (int rank = 0; rank < world_size_; ++rank) out += line(rank).progress.load(std::memory_order_relaxed);
  return out;
}

int64_t Hub::mail_ready_ns(int to, int64_t bytes) {
  if (!options_.link) return 0;
  const double latency_s = options_.link(rank_, to, 0), transfer_s = options_.link(rank_, to, bytes) - latency_s;
  int64_t& free = link_free_ns_[static_cast<size_t>(to)];
  free = std::max(free, now_ns()) + static_cast<int64_t>(transfer_s * 1e9);
  return free + static_cast<int64_t>(latency_s * 1e9);
}

void Hub::wait_until(int64_t ns) {
  if (ns <= now_ns()) return;
  const Stopwatch watch(waited_ns_);
  constexpr int64_t longest_ns = 10'000'000;  // until it hears that the world is over
  for (int64_t left = ns - now_ns(); left > 0; left = ns - now_ns()) {
    if (listen) listen();
    check();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, longest_ns)));
  }
}

void Hub::pass_links(const std::vector<int>& members, int64_t bytes) {
  if (!options_.link) return;
  double longest_s = 0;
  for (const int member : members)
    if (member != rank_) longest_s = std::max(longest_s, options_.link(rank_, member, bytes));
  wait_until(now_ns() + static_cast<int64_t>(longest_s * 1e9));
}

bool Hub::look_around() {
  const int64_t now = now_ns();
  if (static_cast<double>(now - looked_ns_) < look_every_s * 1e9) return false;
  looked_ns_ = now;
  if (!memory_->is_within_process()) find_dead();
  return true;
}

void Hub::notice() noexcept {
  try {
    if (listen) listen();
    if (over() || !look_around()) return;
    for (int other = 0; other < world_size_; ++other)
      if (!line(other).left.load(std::memory_order_acquire)) find_silent(other);
  } catch (...) {  // what cannot be read now is read by the next wait
  }
}

void Hub::note_device_wait(double waited_s) noexcept {
  Line& own = line(rank_);
  if (waited_s <= 0) {  // it begins or ends
    own.device.store(waited_s == 0, std::memory_order_relaxed);
    own.progress.fetch_add(1, std::memory_order_relaxed);
    device_moved_ns_ = 0;
    if (waited_s < 0 && device_told_.exchange(false)) tell({News::Kind::waits, rank_, 0});
    return;
  }
  own.device.store(1, std::memory_order_relaxed);  // another thread's wait may have ended
  if (waited_s < options_.deadline_s / 4) return;
  if (!device_told_.exchange(true)) tell({News::Kind::waits, rank_, rank_ + 1});
  const int64_t now = now_ns();
  if (const uint64_t progress = progress_of_all(); device_moved_ns_ == 0 || progress != device_progress_) {
    device_progress_ = progress;
    device_moved_ns_ = now;
    return;
  }
  const double still_s = static_cast<double>(now - device_moved_ns_) * 1e-9;
  if (still_s < options_.deadline_s * (listen ? 1.5 : 1)) return;
  for (int other = 0; other < world_size_; ++other) {
    const Line& its = line(other);
    if (other == rank_ || its.left.load() || its.device.load() || its.waits_for.load()) continue;
    try {
      return fail(Code::closed, other,
                  cat("rank ", rank_, " waits for its device, and rank ", other, " has done nothing for ",
                      options_.deadline_s, " s: rank ", other, " does not come"));
    } catch (...) {  // out of memory for the message: the next look tries again
    }
  }
}

void Hub::find_dead() {
  for (int other = 0; other < world_size_; ++other) {
    const Line& its = line(other);
    if (other == rank_ || !its.came.load(std::memory_order_acquire) || memory_->is_held(other)) continue;
    if (its.left.load(std::memory_order_acquire))
      continue;  // left in order: an error only for ranks that wait for it
    fail(Code::closed, other, cat("rank ", other, " died: its process ended without leaving the world"));
  }
}

void Hub::find_silent(int rank) {
  const int64_t heard = heard_ns_[static_cast<size_t>(rank)];
  if (heard && static_cast<double>(now_ns() - heard) * 1e-9 > options_.deadline_s)
    fail(Code::closed, rank,
         cat("rank ", rank, " has been silent for ", options_.deadline_s, " s: its process or its machine is gone"));
}

void Hub::expect_life(int rank) { heard_ns_[static_cast<size_t>(rank)] = now_ns(); }

int Hub::culprit() const noexcept {
  const State& state = memory_state();
  return state.over.load(std::memory_order_acquire) == 2 ? state.culprit : -1;
}

void Hub::fail(Code code, int culprit, std::string_view message) noexcept {
  State& state = memory_state();
  uint32_t alive = 0;
  if (!state.over.compare_exchange_strong(alive, 1)) return;
  state.code = static_cast<int32_t>(code);
  state.culprit = culprit;
  const size_t length = std::min(message.size(), State::message_bytes - 1);
  std::memcpy(state.message, message.data(), length);
  state.message[length] = 0;
  state.over.store(2, std::memory_order_seq_cst);
  for (int other = 0; other < world_size_; ++other) ring(other);
  News news{News::Kind::over, culprit, static_cast<int32_t>(code)};
  message.copy(news.message, sizeof news.message - 1);
  tell(news);
}

void Hub::tell(const News& news) noexcept {
  try {
    if (spread) spread(news);
  } catch (...) {  // other machines notice by their deadlines
  }
}

void Hub::hear(const News& news) {
  if (news.rank < 0 || news.rank >= world_size_) return;
  switch (news.kind) {
    case News::Kind::over: return fail(static_cast<Code>(news.value), news.rank, news.message);
    case News::Kind::left: return line(news.rank).left.store(1, std::memory_order_seq_cst);
    case News::Kind::lives:
      line(news.rank).progress.store(static_cast<uint32_t>(news.value), std::memory_order_relaxed);
      return expect_life(news.rank);
    case News::Kind::waits: return line(news.rank).waits_for.store(news.value, std::memory_order_seq_cst);
  }
}

void Hub::throw_over() const {
  const State& state = memory_state();
  // Writing the message takes a microsecond, unless the writer died.
  for (int look = 0; look < 100 && state.over.load(std::memory_order_acquire) != 2; ++look)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (state.over.load(std::memory_order_acquire) != 2)
    throw Error(Code::closed, "a rank died while it ended the world", std::string(over_hint));
  throw Error(static_cast<Code>(state.code), state.message, std::string(over_hint));
}

}  // namespace plait
