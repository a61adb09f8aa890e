#pragma once
// Requests: their options, and the events that answer them.
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/generate/given_rows.h"
#include "core/generate/sampler.h"
#include "core/text/constraint.h"
#include "serving/mailbox.h"

namespace plait {

enum class FinishReason : int32_t { none = 0, eos = 1, stop = 2, length = 3, cancelled = 4, error = 5 };

/// A kept sequence, which later requests may continue or fork. Thread-safe to share.
class Conversation;

struct RequestOptions {
  std::vector<int32_t> prompt;  ///< token ids, unmodified; appended to `parent`'s if given
  /// Rows f32 [n, h] that stand for the prompt's tokens whose id is one of `input_tokens`, in order: embeddings of an image or a sound.
  Tensor input_rows;
  std::vector<int32_t> input_tokens;
  std::vector<GivenPlace>
      input_places;  ///< of each row, or empty; of decoders that take them (DecoderInterface::takes_places)
  /// Of a model with an encoder: its text, or its input of that name; `prompt` is what the decoder begins with. Not with `parent`, whose
  /// input stays.
  std::vector<int32_t> encoder_text;
  std::string encoder_input;
  Tensor encoder_tensor;
  SamplingParams sampling;
  int64_t max_tokens = 256;  ///< new tokens
  /// Events of the prompt's tokens come first, with so many alternatives; -1: none. Nothing of the prompt is taken from the cache.
  int32_t prompt_logprobs = -1;
  int64_t min_tokens = 0;                  ///< no end of text and no stop before that many
  std::vector<int32_t> stop_tokens;        ///< end the text (reason eos); the stop token itself is the last token
  std::vector<int32_t> suppressed;         ///< tokens that are never chosen
  std::vector<int32_t> suppressed_first;   ///< tokens that are not chosen as the first
  std::vector<std::string> stop_strings;   ///< end the text (reason stop), which is cut before them
  int32_t samples = 1;                     ///< from one prompt; they share its pages
  std::shared_ptr<const Grammar> grammar;  ///< bounds each output; null: none
  /// Tokens that only the grammar determines are fed together, without logits. The output is the same either way. Not with
  /// log-probabilities, nor with host_sampling.
  bool forced_tokens = true;
  bool special_text = false;   ///< events have the text of special tokens too
  bool host_sampling = false;  ///< `next` returns logits and waits for `push`
  /// Name of the adapter for all tokens; "": none; nullopt: that of `parent`, if any. Continuing a conversation with
  /// another adapter recomputes it.
  std::optional<std::string> adapter;
  bool keep = false;  ///< keep the sequence for `conversation`
  std::shared_ptr<Conversation> parent;
  std::chrono::milliseconds deadline{0};        ///< from submission, then Error(timeout); 0: none
  std::chrono::milliseconds queue_deadline{0};  ///< from submission to the start, then Error(overloaded); 0: none
  int32_t priority = 0;                         ///< lower ones start first
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
  bool of_prompt =
      false;  ///< the token is one of the prompt's, with its log-probability (NaN: the first one's, and rows' that are given)
  SampledToken token;
  std::string text;                          ///< complete UTF-8 characters; may be empty
  FinishReason finish = FinishReason::none;  ///< if not `none`: the last event of this sample
  int32_t stop = -1;                         ///< which of stop_strings ended the sample; -1: none
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
  /// Waits for the next event; nullopt after `timeout` (negative: no limit) or when every sample has ended
  /// (`finished` distinguishes the two), then at once. Throws the error that ended the request.
  std::optional<Event> next(std::chrono::milliseconds timeout);
  /// Whether every event, and the error if any, has been taken.
  bool finished() const;
  /// From now on `tag` is posted to the mailbox (null: none) when `next` has something to return at once, and again only after `next`
  /// has found nothing. Posted before this returns if there is something already.
  void attach(std::shared_ptr<Mailbox> mailbox, int64_t tag);
  void cancel();
  /// Host sampling: the token chosen from the logits returned last. Throws Error(invalid_argument) when no logits are
  /// outstanding or the token is out of range.
  void push(int32_t token);
  RequestUsage usage() const;
  /// The kept sequence of sample 0, once finished; null if not kept.
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
