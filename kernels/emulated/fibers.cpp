#include "kernels/emulated/fibers.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/emulated/context_switch.h"
#include "kernels/emulated/sanitizers.h"
#include "kernels/emulated/shared_memory.h"

namespace plait::emulated {
namespace {

enum class State : uint8_t { runs, in_block, ended };  // runs: or waits for its warp

struct AsyncCopy {
  void* to;
  const void* from;
  int copied;
};

struct Fiber : Context {
  State state = State::ended;
  int lane = 0, warp = 0;
  const Meeting* meeting = nullptr;  ///< in a frame of its own, while it waits
  Position position;
  std::vector<AsyncCopy> open;                 ///< copies without a group
  std::vector<std::vector<AsyncCopy>> groups;  ///< under way, by age
};

struct Warp {
  uint32_t mask = 0, arrived = 0;  ///< of the lanes' meeting
  uint32_t ready = 0;              ///< lanes that can run, by their places in the order
  const Meeting* meeting = nullptr;
  const void* operands[warp_lanes];
  void* results[warp_lanes];
};

/// Most often the very same literals: their text is compared only where it stands twice.
bool same(const char* a, const char* b) { return a == b || !std::strcmp(a, b); }
bool same(const Meeting& a, const Meeting& b) {
  return a.where.line == b.where.line && same(a.name, b.name) && same(a.where.file, b.where.file);
}

std::string text_of(const Meeting& meeting) {
  const std::string file = meeting.where.file;
  return std::string(meeting.name) + " at " + file.substr(file.rfind('/') + 1) + ":" +
         std::to_string(meeting.where.line);
}

/// The fibers of a block, one after another on the calling thread.
class Block {
 public:
  explicit Block(unsigned most_threads) : all_(most_threads) {
    stacks_.allocate(most_threads);
    for (size_t i = 0; i < all_.size(); ++i) {
      Fiber& fiber = all_[i];
      stacks_.put(i, fiber);
      fiber.lane = static_cast<int>(i % warp_lanes), fiber.warp = static_cast<int>(i / warp_lanes);
#if defined(PLAIT_THREAD_SANITIZED)
      fiber.thread_sanitizer = __tsan_create_fiber(0);
#endif
    }
  }
  ~Block() {
#if defined(PLAIT_THREAD_SANITIZED)
    for (const Fiber& fiber : all_) __tsan_destroy_fiber(fiber.thread_sanitizer);
#endif
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  size_t most_threads() const { return all_.size(); }
  Fiber& current() { return *current_; }
  SharedMemory& shared() { return shared_; }

  /// Returns the first thing that went wrong; "" if nothing did.
  std::string run(const Launch& launch, Dim3 index, uint64_t seed, const FunctionRef<void()>& thread) {
    try {
      begin(launch, index, seed, thread);
    } catch (const std::exception& error) {
      fault_ = error.what();
    }
    while (ended_ < fibers_.size() && fault_.empty()) {
      Quiet quiet;
      if (random_) std::shuffle(warp_order_.begin(), warp_order_.end(), *random_);
      bool ran = false;
      for (const int warp : warp_order_)
        while (Fiber* next = ready_lane(warp, 0)) {
          if (!fault_.empty()) break;
          ran = true;
          resume(*next);
        }
      if (fault_.empty() && ended_ < fibers_.size() && !open_barrier() && !ran) fault_ = "deadlock: " + who_waits();
    }
    Quiet quiet;
    if (fault_.empty()) fault_ = shared_.damage();
    return fault_.empty() ? "" : "block " + text(index) + ": " + fault_;
  }
  /// Memory of the launch is ordered before what the caller does next, and not before another block.
  void settle() { acquire(&ended_); }

  void meet_warp(const Meeting& meeting, uint32_t mask, const void* operand, void* result, bool orders_memory,
                 FunctionRef<void(const void* const*, void* const*)> work) {
    Fiber& me = *current_;
    Warp& warp = warps_[static_cast<size_t>(me.warp)];
    bool last = false;
    {
      Quiet quiet;
      join(warp, me, meeting, mask);
      warp.operands[me.lane] = operand, warp.results[me.lane] = result;
      if (orders_memory) release(&warp);
      last = warp.arrived == mask;
      if (last) {
        work(warp.operands, warp.results);
        warp.ready |= places_of(mask);
        warp.arrived = 0;
      } else {
        warp.ready &= ~bit_of(me);
      }
    }
    if (!last) give_way();
    if (orders_memory) acquire(&warp);
  }

  void meet_block(const Meeting& meeting) {
    Fiber& me = *current_;
    {
      Quiet quiet;
      me.meeting = &meeting;
      me.state = State::in_block;
      warps_[static_cast<size_t>(me.warp)].ready &= ~bit_of(me);
      release(this);
    }
    give_way();
    acquire(this);
  }

 private:
  static std::string text(Dim3 at) {
    return "(" + std::to_string(at.x) + ", " + std::to_string(at.y) + ", " + std::to_string(at.z) + ")";
  }
  uint32_t bit_of(const Fiber& fiber) const { return 1U << place_[fiber.lane]; }
  /// Lanes as their places in the order.
  uint32_t places_of(uint32_t lanes) const {
    if (!random_ || lanes == all_lanes) return lanes;
    uint32_t out = 0;
    for (int lane = 0; lane < warp_lanes; ++lane)
      if (lanes >> lane & 1) out |= 1U << place_[lane];
    return out;
  }
  void make_ready() {
    for (size_t warp = 0; warp < warps_.size(); ++warp) {
      const size_t lanes = std::min<size_t>(warp_lanes, fibers_.size() - warp * warp_lanes);
      warps_[warp].ready = places_of(lanes == warp_lanes ? all_lanes : (1U << lanes) - 1);
    }
  }

  void begin(const Launch& launch, Dim3 index, uint64_t seed, const FunctionRef<void()>& thread) {
    Quiet quiet;
    thread_ = &thread;
    ended_ = 0;
    fault_.clear();
    random_.reset();
    if (seed) random_.emplace(seed);
    fibers_ = std::span(all_).first(size_t{launch.block.x} * launch.block.y * launch.block.z);
    warps_.resize((fibers_.size() + warp_lanes - 1) / warp_lanes);
    warp_order_.resize(warps_.size());
    std::iota(warp_order_.begin(), warp_order_.end(), 0);
    std::iota(lane_order_, lane_order_ + warp_lanes, 0);
    if (random_) std::shuffle(lane_order_, lane_order_ + warp_lanes, *random_);
    for (int i = 0; i < warp_lanes; ++i) place_[lane_order_[i]] = i;
    shared_.begin(launch.shared_bytes);
    for (Warp& warp : warps_) warp.arrived = 0;
    for (size_t i = 0; i < fibers_.size(); ++i) {
      Fiber& fiber = fibers_[i];
      const auto number = static_cast<unsigned>(i);
      fiber.position = {{number % launch.block.x, number / launch.block.x % launch.block.y,
                         number / launch.block.x / launch.block.y},
                        index,
                        launch.block,
                        launch.grid};
      fiber.open.clear(), fiber.groups.clear();
      prepare(fiber, &entry);
      fiber.state = State::runs;
    }
    make_ready();
    release(&thread_);
  }

  static void entry();

  /// A lane of the warp that can run, from place `first` of the order on; null if there is none.
  Fiber* ready_lane(int warp, int first) {
    const uint32_t ready = warps_[static_cast<size_t>(warp)].ready;
    if (!ready) return nullptr;
    const int place = (first + std::countr_zero(std::rotr(ready, first))) % warp_lanes;
    return &fibers_[static_cast<size_t>(warp * warp_lanes + lane_order_[place])];
  }

  void resume(Fiber& fiber) {
    current_ = &fiber;
    // What Quiet stands for here is not the fiber's: ThreadSanitizer keeps it by fiber.
    switch_context(scheduler_, fiber);
  }
  /// Another lane of the warp continues, or the scheduler.
  void give_way(bool ends = false) {
    Fiber& me = *current_;
    Context* next = &scheduler_;
    release(&ended_);  // for `settle`: it may be that this fiber is not resumed
    {
      Quiet quiet;
      if (Fiber* lane = fault_.empty() ? ready_lane(me.warp, place_[me.lane] + 1) : nullptr) next = current_ = lane;
    }
    switch_context(me, *next, ends);
  }

  void join(Warp& warp, Fiber& me, const Meeting& meeting, uint32_t mask) {
    if (!(mask >> me.lane & 1))
      fail("lane " + std::to_string(me.lane) + " is not in the mask of its " + text_of(meeting));
    me.meeting = &meeting;
    if (warp.arrived) {
      if (!same(*warp.meeting, meeting) || warp.mask != mask)
        fail("lanes of a warp meet in different operations, or with different masks: " + text_of(*warp.meeting) +
             " and " + text_of(meeting));
    } else {
      if (mask != all_lanes) std::fill(std::begin(warp.operands), std::end(warp.operands), nullptr);
      warp.mask = mask;
      warp.meeting = &meeting;
    }
    warp.arrived |= 1U << me.lane;
  }

  /// Lets all continue if all wait at one barrier.
  bool open_barrier() {
    const Fiber* first = nullptr;
    for (const Fiber& fiber : fibers_) {
      if (fiber.state == State::ended) continue;
      if (fiber.state != State::in_block) return false;
      if (!first) first = &fiber;
      if (same(*fiber.meeting, *first->meeting)) continue;
      fault_ = "threads wait at different barriers: " + who_waits();
      return true;
    }
    if (!first) return false;
    if (ended_) {
      fault_ = "a barrier that threads which have ended do not reach: " + who_waits();
      return true;
    }
    for (Fiber& fiber : fibers_) fiber.state = State::runs;
    make_ready();
    return true;
  }

  /// "threads 0-30 in __shfl_sync at norm.cu:12; threads 31 have ended"
  std::string who_waits() const {
    std::map<std::string, std::string> by_place;
    for (size_t i = 0; i < fibers_.size();) {
      const auto place = [](const Fiber& fiber) {
        return fiber.state == State::ended ? std::string("have ended") : "are in " + text_of(*fiber.meeting);
      };
      const std::string here = place(fibers_[i]);
      const size_t begin = i;
      while (i < fibers_.size() && place(fibers_[i]) == here) ++i;
      std::string& numbers = by_place[here];
      numbers += (numbers.empty() ? "" : ", ") + std::to_string(begin);
      if (i - begin > 1) numbers += "-" + std::to_string(i - 1);
    }
    std::string out;
    for (const auto& [place, numbers] : by_place)
      out += (out.empty() ? "threads " : "; threads ") + numbers + " " + place;
    return out;
  }

  std::vector<Fiber> all_;
  std::span<Fiber> fibers_;  ///< of this launch
  std::vector<Warp> warps_;
  std::vector<int> warp_order_;
  int lane_order_[warp_lanes], place_[warp_lanes];
  std::optional<std::mt19937_64> random_;
  Stacks stacks_;
  SharedMemory shared_;
  Context scheduler_ = own_context();
  Fiber* current_ = nullptr;
  const FunctionRef<void()>* thread_ = nullptr;
  size_t ended_ = 0;
  std::string fault_;
};

/// The block that runs on this thread, kept from launch to launch since its stacks are expensive.
thread_local std::unique_ptr<Block> kept;
thread_local Block* running = nullptr;

void Block::entry() {
  entered();
  Block& block = *running;
  acquire(&block.thread_);  // what is before the launch; see also `run`
  try {
    (*block.thread_)();
    Quiet quiet;
    const Fiber& me = *block.current_;
    if (!me.open.empty() || !me.groups.empty()) fail("a thread ends while its copies (cp.async) are under way");
  } catch (const std::exception& error) {
    Quiet quiet;
    if (block.fault_.empty()) block.fault_ = error.what();
  }
  {
    Quiet quiet;
    Fiber& me = *block.current_;
    me.state = State::ended;
    block.warps_[static_cast<size_t>(me.warp)].ready &= ~block.bit_of(me);
    ++block.ended_;
  }
  block.give_way(true);
  std::abort();  // an ended fiber is not resumed
}

std::atomic<uint64_t>& order() {
  static std::atomic<uint64_t> seed = [] {
    const char* given = std::getenv("PLAIT_EMULATE_SEED");
    return given ? std::strtoull(given, nullptr, 10) : 0;
  }();
  return seed;
}

}  // namespace

void run_grid(const GridKernel& kernel, const Launch& launch, uint64_t seed, FunctionRef<void()> thread) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error(std::string(kernel.name) + ": " + why);
  };
  const unsigned threads = launch.block.x * launch.block.y * launch.block.z;
  if (!threads || threads > kernel.most_threads)
    refuse("blocks of " + std::to_string(threads) + " threads, its launch bounds are " +
           std::to_string(kernel.most_threads));
  if (running) refuse("a kernel that launches kernels");
  std::string fault;
  {
    Quiet quiet;
    if (!kept || kept->most_threads() < threads) kept.reset(), kept = std::make_unique<Block>(threads);
    running = kept.get();
  }
  std::vector<uint64_t> blocks(size_t{launch.grid.x} * launch.grid.y * launch.grid.z);
  std::iota(blocks.begin(), blocks.end(), 0);
  if (seed) std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(seed));
  for (size_t i = 0; i < blocks.size() && fault.empty(); ++i) {
    const uint64_t block = blocks[i];
    const Dim3 index{static_cast<unsigned>(block % launch.grid.x),
                     static_cast<unsigned>(block / launch.grid.x % launch.grid.y),
                     static_cast<unsigned>(block / launch.grid.x / launch.grid.y)};
    fault = running->run(launch, index, seed ? seed * 1000003 + block : 0, thread);
  }
  running->settle();
  {
    Quiet quiet;
    running = nullptr;
    if (!fault.empty()) kept.reset();  // fibers were left in the middle of something
  }
  if (!fault.empty()) refuse(fault);
}

void set_thread_order(uint64_t seed) { order() = seed; }
uint64_t thread_order() { return order(); }

const Position& here() { return running->current().position; }
void fail(const std::string& message) { throw std::runtime_error(message); }

void meet_block(const Meeting& meeting) { running->meet_block(meeting); }
void meet_warp(const Meeting& meeting, uint32_t mask, const void* operand, void* result, bool orders_memory,
               FunctionRef<void(const void* const*, void* const*)> work) {
  running->meet_warp(meeting, mask, operand, result, orders_memory, work);
}

void* shared_array(const void* tag, size_t bytes) {
  Quiet quiet;
  return running->shared().array(tag, bytes);
}
void* dynamic_shared() { return running->shared().dynamic(); }

void fence() {
  static std::byte place;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  acquire(&place);
  release(&place);
}

void copy_async(void* to, const void* from, int copied) {
  Quiet quiet;
  running->current().open.push_back({to, from, copied});
}
void copy_commit() {
  Quiet quiet;
  Fiber& me = running->current();
  me.groups.push_back(std::move(me.open));
  me.open.clear();
}
void copy_wait(int left) {
  constexpr int width = 16;
  for (;;) {
    std::vector<AsyncCopy> copies;
    {
      Quiet quiet;
      std::vector<std::vector<AsyncCopy>>& groups = running->current().groups;
      if (static_cast<int>(groups.size()) <= left) return;
      copies = std::move(groups.front());
      groups.erase(groups.begin());
    }
    for (const AsyncCopy& copy : copies) {  // the kernel's own accesses
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.copied));
      std::memset(static_cast<std::byte*>(copy.to) + copy.copied, 0, static_cast<size_t>(width - copy.copied));
    }
  }
}

}  // namespace plait::emulated
