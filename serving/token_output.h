#pragma once
// From chosen tokens to events: text, stop strings, and why a sample ends. Uses no engine.
#include "serving/request_state.h"

namespace plait {

/// Starts the sample's text. The stream sees the end of the prompt first: whether a piece begins with a blank depends on
/// what is before it.
void start_text(const Request::State& job, Sample& sample, const Tokenizer& tokenizer);

/// Adds the token to the sample's output. The event holds the token and the text that no stop string can begin in; its
/// `finish` says whether the sample ends with it. `context`: tokens that a sequence may have, 0: no limit.
Event accept_token(const Request::State& job, Sample& sample, SampledToken token, int64_t context);

/// The text of the tokens that were handed out before there was a tokenizer.
void catch_up_text(const Request::State& job, Sample& sample, const Tokenizer& tokenizer);

}  // namespace plait
