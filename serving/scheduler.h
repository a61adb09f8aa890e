#pragma once
// The scheduler: many requests, one engine, one thread. It decides who is admitted, which tokens make up a step, who is
// preempted when the cache is full, and hands tokens to those who wait for them.
#include <memory>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/generate/engine.h"
#include "serving/request.h"
#include "serving/scheduler_options.h"

namespace plait {

class SchedulerCore;

/// Owns the engine and its thread, which sleeps when there is nothing to do. Thread-safe.
class Scheduler {
 public:
  /// Without a tokenizer events have no text, and stop strings are refused. While it loads tokens are made and handed
  /// out all the same: the first event of a sample after that brings the text of those before, and a sample that ends
  /// earlier keeps its end back until then (an event without a token). One whose loading fails is as if there were
  /// none. The future must be made by another thread than the scheduler's, not deferred.
  Scheduler(std::unique_ptr<Engine> engine, TokenizerFuture tokenizer, SchedulerOptions options);
  /// Ends all requests with Error(closed).
  ~Scheduler();

  /// Waits for the tokenizer if there are stop strings, and throws what ended its loading.
  /// Throws Error(invalid_argument) on ids out of range, an empty prompt, or one longer than the context,
  /// Error(out_of_memory) when prompt and new tokens can never fit the cache, Error(overloaded) when the queue is full,
  /// Error(not_found) when there is no adapter of that name.
  std::shared_ptr<Request> submit(RequestOptions options);
  SchedulerStats stats() const;

  /// Requests may name it from now on. Throws Error(invalid_argument) where there is one of that name, or it does not fit,
  /// Error(overloaded) when no slot is free; else what Engine::add_adapter does.
  void add_adapter(const std::string& name, const AdapterWeights& weights);
  /// No request that is submitted from now on may name it. Those that were go on to their ends, and so may kept
  /// conversations; its slot is free when the last of them is gone. Throws Error(not_found).
  void remove_adapter(const std::string& name);
  std::vector<std::string> adapters() const;

  /// A conversation as bytes, and back.
  std::vector<std::byte> save(const Conversation& conversation);
  std::shared_ptr<Conversation> restore(std::span<const std::byte> bytes);

  const Decoder& decoder() const;
  int64_t vocabulary() const;
  int64_t context() const;
  void set_profiling(bool on);
  Profile profile() const;
  void set_tracing(bool on);
  /// By rank.
  std::vector<std::vector<TraceEvent>> trace() const;

 private:
  std::shared_ptr<SchedulerCore> core_;
};

}  // namespace plait
