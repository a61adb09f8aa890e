#pragma once
// A request: what is asked for, and the events that answer it.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/generate/sampler.h"

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

  struct State;  ///< serving/request_state.h

 private:
  friend class Scheduler;
  explicit Request(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace plait
