#pragma once
// The scheduler's loop, driven by a test, and an engine whose next token is a hash of all before it.
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/base/counter_random.h"
#include "core/generate/kv_cache.h"
#include "serving/engine_thread.h"

namespace plait {

inline EngineThread::Work* simulated_work = nullptr;
inline bool simulated_wake = false;

/// Numbers of a seed, the same on every machine.
class Chance {
 public:
  explicit Chance(uint64_t seed) : seed_(seed) {}
  int64_t below(int64_t count) { return static_cast<int64_t>(mixed_bits(seed_, ++count_) % static_cast<uint64_t>(count)); }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  bool once_in(int64_t count) { return below(count) == 0; }

 private:
  uint64_t seed_, count_ = 0;
};

/// Allocations fail: the `left`-th from now on, once. 0: none.
struct MemoryFault {
  static inline thread_local int64_t left = 0;
  static inline int64_t happened = 0;
};

struct SimulatedLimits {
  int64_t pages = 16, page_tokens = 4, step_tokens = 16, step_sequences = 4, steps_in_flight = 1;
  int64_t step_fails = 0, step_is_late = 0;  ///< once in so many; 0: never
};

constexpr int64_t simulated_vocabulary = 32;
int32_t next_of(std::span<const int32_t> tokens);

/// Its cache is the real one. A step that fails changes no sequence.
class SimulatedEngine final : public Engine {
 public:
  SimulatedEngine(const SimulatedLimits& limits, uint64_t seed);

  std::unique_ptr<Sequence> open(std::span<const int32_t> tokens, int64_t prompt, std::shared_ptr<const Adapter> adapter,
                                 std::shared_ptr<const EncoderInput>) override {
    return cache.open(tokens, prompt, std::move(adapter));
  }
  std::unique_ptr<Sequence> fork(const Sequence& sequence) override { return cache.fork(kv(sequence)); }
  bool reserve(Sequence& sequence, int64_t tokens) override { return cache.reserve(kv(sequence), tokens); }
  bool could_fit(int64_t length, const EncoderInput*) const override { return cache.could_fit(length); }
  void step(std::span<Feed> feeds) override {
    begin(feeds, false);
    finish();
  }
  void step_hidden(std::span<Feed> feeds) override { step(feeds); }
  int64_t steps_in_flight() const override { return limits_.steps_in_flight; }
  void begin(std::span<Feed> feeds, bool hidden) override;
  void finish() override;
  std::shared_ptr<const Adapter> add_adapter(const std::string&, const AdapterWeights&) override { return nullptr; }
  std::vector<std::byte> save(const Sequence&) const override { return {}; }
  std::unique_ptr<Sequence> restore(std::span<const std::byte>, std::span<const SavedRows>) override { return nullptr; }
  EngineStats stats() const override {
    EngineStats out;
    out.pages = cache.pages();
    out.pages_free = cache.pages_free();
    return out;
  }
  const Decoder& decoder() const override { return decoder_; }
  void set_profiling(bool) override {}
  Profile profile() const override { return {}; }
  void set_tracing(bool) override {}
  std::vector<std::vector<TraceEvent>> trace() override { return {}; }

  KvCache cache;

 private:
  static KvSequence& kv(Sequence& sequence) { return static_cast<KvSequence&>(sequence); }
  static const KvSequence& kv(const Sequence& sequence) { return static_cast<const KvSequence&>(sequence); }

  const SimulatedLimits limits_;
  Decoder decoder_;
  Chance draw_;
  std::deque<std::span<Feed>> begun_;
  std::vector<float> logits_;
};

}  // namespace plait
