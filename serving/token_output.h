#pragma once
// Turns sampled tokens into events: text, stop strings, and finish reasons. Independent of the engine.
#include "serving/request_state.h"

namespace plait {

/// Starts the sample's text stream with the end of the prompt, which decides whether the first piece begins with a
/// blank.
void start_text(const Request::State& job, Sample& sample, const Tokenizer& tokenizer);

/// Appends the token to the sample's output. The event contains the token and text in which no stop string can begin;
/// its `finish` is set if the sample ends. `context`: max tokens of a sequence, 0: no limit. `complete`: its grammar lets nothing
/// follow the token.
Event accept_token(const Request::State& job, Sample& sample, SampledToken token, int64_t context, bool complete);

/// Whether the token, next of the sample's output, ends the text.
bool ends_text(const RequestOptions& options, const Sample& sample, int32_t token);

/// Adds the text of tokens returned before the tokenizer was loaded to `held_text`.
void catch_up_text(const Request::State& job, Sample& sample, const Tokenizer& tokenizer);

}  // namespace plait
