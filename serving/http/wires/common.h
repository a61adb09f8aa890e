#pragma once
// What the wires have in common.
#include <optional>
#include <vector>

#include "serving/http/wires/wire.h"

namespace plait::http {

/// The model that a body names. Throws HttpError: 404, 503 while it loads.
Named model_of(const Models& models, const Fields& body);

/// Options of how tokens are chosen, and how many. Fields are OpenAI's, and vLLM's where OpenAI has none. `most_tokens`: the field with
/// the limit of new tokens; without it the context is.
plait_api::Options sampling_options(const Fields& body, const Named& named,
                                    std::initializer_list<const char*> most_tokens);

/// "n"
int32_t outputs_of(const Fields& body);
/// "stream", and of its options whether usage is sent at the end.
struct Streaming {
  bool on = false, usage = false;
};
Streaming streaming_of(const Fields& body);

/// What the parts of an answer have in common.
struct Form {
  std::string id, model;
  int64_t created = 0;
  int32_t choices = 1;
  size_t samples = 1;  ///< of each prompt: so many of the choices
  Streaming streaming;
  bool logprobs = false;
  bool echo_logprobs = false;       ///< of what is echoed, too
  bool prompt_logprobs = false;     ///< vLLM's field
  std::vector<std::string> echoes;  ///< what each choice begins with; empty: nothing
};

/// A request of a prompt: text, or ids.
plait_api::Request submit_prompt(const Named& named, const Json& prompt, const std::string& path,
                                 const plait_api::Options& options);
/// A prompt or a list of prompts, each a text or ids.
std::vector<const Json*> prompts_of(const Json& value, const std::string& path);

Json usage_of(const Totals& totals);
/// "chatcmpl-..." of the operating system's random numbers.
std::string new_id(const char* prefix);
int64_t seconds_since_epoch();
/// One event of a stream.
void write_frame(const Json& frame, std::string& out);
/// The end of a stream. `last`: a chunk without choices, for the usage if it was asked for.
void end_stream(const Streaming& streaming, Json last, const Totals& totals, std::string& out);

/// "prompt_logprobs", vLLM's: how many of the most likely tokens next to each of the prompt. Not for streams. Throws HttpError(400).
std::optional<int64_t> prompt_logprobs_of(const Fields& body, const Streaming& streaming);

/// The texts of tokens, for log-probabilities.
class TokenTexts {
 public:
  explicit TokenTexts(plait_api::Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}
  /// The token's own bytes, which need not be whole characters: as JSON they are U+FFFD then.
  std::string text(int32_t token) const { return tokenizer_.bytes(token); }
  /// As a text has it: "" of a special one.
  std::string shown(int32_t token) const { return tokenizer_.decode({token}, true); }

 private:
  plait_api::Tokenizer tokenizer_;
};

/// A token of a prompt in the form of vLLM's prompt_logprobs: by id, its log-probability and those of the most likely ones; null of the
/// first.
Json prompt_logprob(const plait_event& event, const TokenTexts& texts);

}  // namespace plait::http
