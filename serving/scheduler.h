#pragma once
// The scheduler: many requests, one engine, one thread. It decides who is admitted, which tokens make up a step, who is
// preempted when the cache is full, and hands tokens to those who wait for them.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/generate/engine.h"
#include "core/generate/sampler.h"
#include "core/text/tokenizer.h"

namespace plait {

enum class FinishReason : int32_t { none = 0, eos = 1, stop = 2, length = 3, cancelled = 4, error = 5 };

/// A sequence that outlived its request: to be continued or forked by later ones. Thread-safe to share.
class Conversation;

struct RequestOptions {
  std::vector<int32_t> prompt;  ///< token ids, as they are; appended to `parent`'s when there is one
  SamplingParams sampling;
  int64_t max_tokens = 256;               ///< new tokens
  int64_t min_tokens = 0;                 ///< before that, no end of text and no stop
  std::vector<int32_t> stop_tokens;       ///< end the text (reason eos); the stop token itself is the last token
  std::vector<std::string> stop_strings;  ///< end the text (reason stop); the text handed out ends before it
  int32_t samples = 1;                    ///< from one prompt; they share its pages
  bool host_sampling = false;             ///< `next` returns logits and waits for `push`
  /// By name, what all its tokens are computed with, "": none; nullopt: what `parent` was, or none. A conversation that is
  /// continued with another is computed anew.
  std::optional<std::string> adapter;
  bool keep = false;  ///< keep the sequence for `conversation`
  std::shared_ptr<Conversation> parent;
  std::chrono::milliseconds deadline{0};  ///< from submission; 0: none. A request past it ends with Error(timeout)
  enum class Kind {
    generate,
    score,
    embed
  } kind = Kind::generate;  ///< score: logits of all prompt tokens; embed: hidden states
};

/// One token, or the end, of one sample.
struct Event {
  int32_t sample = 0;
  bool has_token = false;
  SampledToken token;
  std::string text;                          ///< whole UTF-8; may be empty while a character is incomplete
  FinishReason finish = FinishReason::none;  ///< not none: the last event of this sample
  std::vector<float> logits;                 ///< host sampling: [vocabulary]; then has_token is false
};

struct RequestUsage {
  int64_t prompt_tokens = 0, cached_tokens = 0, new_tokens = 0;
  double queued_s = 0, first_token_s = 0, prefill_s = 0, total_s = 0;  ///< since submission; prefill: in steps
};

/// A submitted request. Thread-safe. Dropping the last reference cancels it.
class Request {
 public:
  ~Request();
  /// The next event; nullopt when `timeout` is over (negative: waits for ever) or when every sample has ended. Throws
  /// what ended the request. After the end it returns nullopt at once; `finished` tells the two apart.
  std::optional<Event> next(std::chrono::milliseconds timeout);
  /// Whether every event, and the error if there was one, has been taken.
  bool finished() const;
  void cancel();
  /// Host sampling: the token that follows the logits handed out last. Throws Error(invalid_argument) when none wait,
  /// or when the token is out of range.
  void push(int32_t token);
  RequestUsage usage() const;
  /// The kept sequence of sample 0, once finished; null when not kept.
  std::shared_ptr<Conversation> conversation() const;
  /// score: [prompt, vocabulary]; embed: [prompt, hidden]; moved out, once finished.
  std::vector<float> take_matrix();

  struct State;  ///< serving/request.h

 private:
  friend class Scheduler;
  explicit Request(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

struct SchedulerOptions {
  int64_t queue = 256;   ///< waiting requests; one more is Error(overloaded)
  int64_t running = 64;  ///< samples in a step
};

struct SchedulerStats {
  int64_t running = 0, waiting = 0, finished = 0, preempted = 0, steps = 0;
  EngineStats engine;
};

/// A tokenizer that may still be loading; one that is not valid() stands for none.
using TokenizerFuture = std::shared_future<std::shared_ptr<const Tokenizer>>;

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
  class Core;
  std::shared_ptr<Core> core_;
};

}  // namespace plait
