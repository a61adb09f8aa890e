#pragma once
// The scheduler's state of a request. Internal to serving/.
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "core/base/error.h"
#include "core/text/tokenizer.h"
#include "serving/engine_thread.h"
#include "serving/masks.h"
#include "serving/request.h"

namespace plait {

/// An immutable sequence. Its memory is released on the engine's thread.
class Conversation {
 public:
  /// `thread` keeps the engine alive.
  Conversation(std::shared_ptr<EngineThread> thread, std::unique_ptr<Sequence> sequence, std::vector<int32_t> tail,
               std::vector<std::shared_ptr<const GivenRows>> given, std::shared_ptr<const EncoderInput> input)
      : thread_(std::move(thread)),
        tail_(std::move(tail)),
        given_(std::move(given)),
        input_(std::move(input)) {
    sequence_.push_back(std::move(sequence));
  }
  ~Conversation() { thread_->release_later(sequence_); }
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  const Sequence& sequence() const { return *sequence_.front(); }
  /// Tokens chosen but not fed: at most the last one.
  const std::vector<int32_t>& tail() const { return tail_; }
  /// Rows of its tokens whose ids are negative.
  const std::vector<std::shared_ptr<const GivenRows>>& given() const { return given_; }
  /// Null without an encoder.
  const std::shared_ptr<const EncoderInput>& input() const { return input_; }

 private:
  const std::shared_ptr<EngineThread> thread_;
  EngineThread::Sequences sequence_;  ///< one
  const std::vector<int32_t> tail_;
  const std::vector<std::shared_ptr<const GivenRows>> given_;
  const std::shared_ptr<const EncoderInput> input_;
};

/// One sample of a request: its own sequence from the end of the prompt on.
struct Sample {
  enum class Phase {
    waiting,    ///< for admission, or for another sample to compute the prompt
    active,     ///< has a sequence; missing tokens are fed
    preempted,  ///< lost its sequence, restarts when memory allows
    host,       ///< waits for the host's token
    text,       ///< ended with `ending`; its last text waits for the tokenizer to load
    done,
  };
  Phase phase = Phase::waiting;
  std::unique_ptr<Sequence> sequence;  ///< null while waiting or preempted
  bool in_flight = false;              ///< in a step that has begun: the sequence stays as it is
  std::vector<int32_t> output;         ///< new tokens
  std::shared_ptr<MaskState> mask;     ///< null without a grammar
  std::optional<TextStream> stream;
  std::string held_text;  ///< text that may begin a stop string
  FinishReason ending = FinishReason::none;
  int64_t order = 0;  ///< admission order: the youngest is preempted first

  /// Whether nothing more is to be computed for it.
  bool ended() const { return phase == Phase::text || phase == Phase::done; }
};

struct Request::State {
  // Set at submission, then constant.
  RequestOptions options;
  std::vector<int32_t> prompt;  ///< including the parent's, so that a preempted request can restart
  std::vector<std::shared_ptr<const GivenRows>> given;  ///< rows of the prompt's tokens whose ids are negative
  std::shared_ptr<const EncoderInput> input;  ///< so that a preempted request can restart; null without an encoder
  std::chrono::steady_clock::time_point submitted;
  using TimePoint = std::chrono::steady_clock::time_point;
  TimePoint deadline = TimePoint::max(), queue_deadline = TimePoint::max();  ///< max: none
  std::shared_ptr<const Adapter> adapter;                                    ///< until its end; null: none

  // With the scheduler's mutex, while it waits.
  int64_t arrival = 0;    ///< its number in the order of submission
  int64_t overtaken = 0;  ///< later ones that have started

  // The engine's thread only.
  std::vector<Sample> samples;
  bool admitted = false;
  int64_t prompt_scored = 0;  ///< tokens of the prompt whose log-probabilities were emitted
  bool ending = false;        ///< ends once no sample is in flight

  // Shared, under `mutex`.
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<Mailbox> mailbox;
  int64_t tag = 0;
  bool posted = false;  ///< since `next` last found nothing
  bool unannounced = false;  ///< the mailbox had no memory for the tag
  std::deque<Event> events;
  std::optional<Error> error;
  bool error_seen = false;  ///< `next` has thrown it
  int32_t samples_left = 1;
  bool finished = false;
  std::deque<int32_t> pushed;  ///< host sampling: tokens not yet taken
  int32_t asking = 0;          ///< host sampling: logits returned and not answered
  RequestUsage usage;
  std::vector<float> matrix;
  std::shared_ptr<Conversation> conversation;

  std::atomic<bool> cancelled{false};
  std::function<void()> wake;  ///< wakes the scheduler; no effect once it is destroyed

  /// Length of the prompt and the sample's output.
  int64_t length(const Sample& sample) const { return static_cast<int64_t>(prompt.size() + sample.output.size()); }
  int32_t token(const Sample& sample, int64_t index) const {
    const auto at = static_cast<size_t>(index);
    return at < prompt.size() ? prompt[at] : sample.output[at - prompt.size()];
  }
  /// Whether log-probabilities of the prompt are still to come, so that each of its rows is computed.
  bool scores_prompt() const {
    return options.kind == RequestOptions::Kind::generate && options.prompt_logprobs >= 0 &&
           prompt_scored < static_cast<int64_t>(prompt.size());
  }
  bool in_flight() const {
    return std::any_of(samples.begin(), samples.end(), [](const Sample& sample) { return sample.in_flight; });
  }
  uint32_t index_of(const Sample& sample) const { return static_cast<uint32_t>(&sample - samples.data()); }

  /// Throws std::bad_alloc, and has then changed nothing.
  void emit(Event event);
  void emit_cancelled();  ///< for every sample that has not ended
  // A loop's outermost catch calls these: they take no memory. Without any, the text of the error is left out.
  void fail(const Error& why) noexcept;
  /// Fails it and releases its engine resources, except sequences in flight.
  void end(const Error& why) noexcept;
  void release() noexcept;
  /// Whether who waits knows of all there is to take; otherwise tries to tell.
  bool is_announced() noexcept;
  // With `mutex` held.
  void finish_sample();
  void announce() noexcept;  ///< something to take: wakes who waits for it, unless there is no memory for the mailbox
};

}  // namespace plait
