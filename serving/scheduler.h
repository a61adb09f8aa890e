#pragma once
// The scheduler: continuous batching of many requests on one engine and one thread. Admits requests, composes steps,
// preempts when the cache is full, and delivers tokens.
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
  /// Without a tokenizer events have no text, and stop strings are rejected. While it loads, tokens are still
  /// generated and returned: the first event of a sample after loading contains the text so far, and a sample that
  /// ends earlier delays its end until then (an event without a token). A failed load is like no tokenizer. The
  /// future must be made by another thread than the scheduler's, not deferred.
  Scheduler(std::unique_ptr<Engine> engine, TokenizerFuture tokenizer, SchedulerOptions options);
  /// Ends all requests with Error(closed).
  ~Scheduler();

  /// Waits for the tokenizer if there are stop strings, and rethrows its loading error.
  /// Throws Error(invalid_argument) on ids out of range, an empty prompt, or one longer than the context,
  /// Error(invalid_argument) when prompt and new tokens can never fit the cache, Error(overloaded) when the queue is
  /// full, Error(not_found) for an unknown adapter; of a model with an encoder also what Encoder::take_text and take_tensor throw.
  std::shared_ptr<Request> submit(RequestOptions options);
  SchedulerStats stats() const;

  /// Loads an adapter for later requests. Throws Error(invalid_argument) if the name is taken or the weights do not
  /// fit, Error(overloaded) when no slot is free; otherwise as Engine::add_adapter.
  void add_adapter(const std::string& name, const AdapterWeights& weights);
  /// Removes an adapter for later requests. Earlier requests and kept conversations continue with it; its slot is
  /// freed with the last of them. Throws Error(not_found).
  void remove_adapter(const std::string& name);
  std::vector<std::string> adapters() const;

  /// Serialises and restores a conversation.
  std::vector<std::byte> save(const Conversation& conversation);
  std::shared_ptr<Conversation> restore(std::span<const std::byte> bytes);

  const Decoder& decoder() const;
  /// Null: the model has none.
  const Encoder* encoder() const;
  int64_t vocabulary() const;
  Mesh mesh() const;
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
