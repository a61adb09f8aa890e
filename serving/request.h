#pragma once
// What a request is to the scheduler. Internal to serving/.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "serving/scheduler.h"

namespace plait {

/// Kept alive by whoever may still continue it; its pages go back on the scheduler's thread (see Core::bury).
class Conversation {
 public:
  Conversation(std::shared_ptr<void> home, std::unique_ptr<Sequence> sequence, std::vector<int32_t> tail)
      : home_(std::move(home)), sequence_(std::move(sequence)), tail_(std::move(tail)) {}
  ~Conversation();

 private:
  friend struct SchedulerCore;
  std::shared_ptr<void> home_;  ///< the core: outlives the engine's sequences
  std::unique_ptr<Sequence> sequence_;
  std::vector<int32_t> tail_;  ///< tokens chosen but not fed yet: at most the last one
};

/// One sample of a request: a sequence of its own from the end of the prompt on.
struct Sample {
  enum class Phase {
    waiting,    ///< for admission, or for the prompt that another sample computes
    active,     ///< has a sequence; whatever it lacks is fed
    preempted,  ///< lost its sequence, starts again when there is room
    host,       ///< waits for the host's choice
    text,       ///< has ended as `ending` says; its last text waits for the tokenizer, which is still loading
    done,
  };
  Phase phase = Phase::waiting;
  std::unique_ptr<Sequence> sequence;  ///< null while waiting or preempted
  std::vector<int32_t> output;         ///< new tokens
  std::optional<TextStream> stream;
  std::string held_text;  ///< text that might turn out to begin a stop string
  FinishReason ending = FinishReason::none;
  int64_t order = 0;  ///< of admission: the youngest is preempted first
};

struct Request::State {
  // Set at submission, then constant.
  RequestOptions options;
  std::vector<int32_t> prompt;  ///< the parent's tokens too, so that a preempted request can start again
  std::chrono::steady_clock::time_point submitted, deadline;
  bool has_deadline = false;
  std::shared_ptr<const Adapter> adapter;  ///< until its end; null: none

  // The scheduler's thread alone.
  std::vector<Sample> samples;
  int64_t prompt_done = 0;  ///< score, embed: rows collected
  bool admitted = false;

  // Shared, under `mutex`.
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::deque<Event> events;
  std::optional<Error> error;
  bool error_seen = false;  ///< `next` has thrown it
  int32_t samples_left = 1;
  bool finished = false;
  std::deque<int32_t> pushed;  ///< host sampling: tokens that wait to be taken
  int32_t asking = 0;          ///< host sampling: logits handed out and not answered
  RequestUsage usage;
  std::vector<float> matrix;
  std::shared_ptr<Conversation> conversation;

  std::atomic<bool> cancelled{false};
  std::function<void()> wake;  ///< the scheduler; does nothing once that is gone

  void emit(Event event);
  void fail(const Error& why);
  void finish_sample();  ///< with `mutex` held
};

}  // namespace plait
