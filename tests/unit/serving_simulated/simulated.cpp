#include "tests/unit/serving_simulated/simulated.h"

#include <cstdlib>
#include <new>

namespace plait {
namespace {

bool fails() { return MemoryFault::left > 0 && --MemoryFault::left == 0 && ++MemoryFault::happened; }

void* allocated(size_t size) {
  void* out = fails() ? nullptr : std::malloc(size ? size : 1);
  if (!out) throw std::bad_alloc();
  return out;
}

Decoder one_pool() {
  Decoder out;
  out.groups.resize(1);
  out.pools.resize(1);
  return out;
}

}  // namespace

int32_t next_of(std::span<const int32_t> tokens) {
  uint64_t hash = 7;
  for (int32_t token : tokens) hash = mixed_bits(hash, static_cast<uint64_t>(token) + 1);
  return static_cast<int32_t>(hash % simulated_vocabulary);
}

SimulatedEngine::SimulatedEngine(const SimulatedLimits& limits, uint64_t seed)
    : Engine({.page_tokens = limits.page_tokens,
              .step_tokens = limits.step_tokens,
              .step_sequences = limits.step_sequences,
              .step_rows = limits.step_sequences},
             std::make_shared<MemoryBudget>(int64_t{1} << 30)),
      cache(one_pool(), {.pages = {limits.pages}}, limits.page_tokens),
      limits_(limits),
      decoder_(one_pool()),
      draw_(seed) {
  vocabulary_ = simulated_vocabulary;
  logits_.resize(static_cast<size_t>(simulated_vocabulary * (limits.step_tokens + limits.step_sequences)));
}

void SimulatedEngine::begin(std::span<Feed> feeds, bool) {
  PLAIT_ASSERT(static_cast<int64_t>(begun_.size()) < limits_.steps_in_flight);
  budget().check();
  if (limits_.step_fails && draw_.once_in(2 * limits_.step_fails)) throw Error(Code::numeric, "the step does not begin");
  begun_.push_back(feeds);
}

void SimulatedEngine::finish() {
  PLAIT_ASSERT(!begun_.empty());
  const std::span<Feed> feeds = begun_.front();
  begun_.pop_front();
  std::chrono::steady_clock::ticks += 1'000'000 * (limits_.step_is_late && draw_.once_in(limits_.step_is_late) ? 500 : 1);
  if (limits_.step_fails && draw_.once_in(2 * limits_.step_fails)) throw Error(Code::numeric, "the step fails");
  for (Feed& feed : feeds) cache.prepare_commit(kv(*feed.sequence), feed.tokens.size());
  float* to = logits_.data();
  for (Feed& feed : feeds) {
    cache.commit(kv(*feed.sequence), feed.tokens);
    const std::vector<int32_t>& all = feed.sequence->tokens();
    feed.logits = {to, static_cast<size_t>(feed.rows * simulated_vocabulary)};
    std::fill(feed.logits.begin(), feed.logits.end(), 0.0f);
    for (int64_t row = 0; row < feed.rows; ++row, to += simulated_vocabulary)
      to[next_of(std::span(all).first(all.size() - static_cast<size_t>(feed.rows - 1 - row)))] = 9;
  }
}

}  // namespace plait

// The whole program's: what the scheduler and the cache take is what fails.
void* operator new(size_t size) { return plait::allocated(size); }
void* operator new[](size_t size) { return plait::allocated(size); }
void operator delete(void* pointer) noexcept { std::free(pointer); }
void operator delete[](void* pointer) noexcept { std::free(pointer); }
void operator delete(void* pointer, size_t) noexcept { std::free(pointer); }
void operator delete[](void* pointer, size_t) noexcept { std::free(pointer); }
