#include "serving/token_output.h"

#include <algorithm>

namespace plait {
namespace {

/// The length of the longest suffix of `text` that is a prefix of a stop string.
size_t begun_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops)
    for (size_t length = std::min(stop.size(), text.size()); length > longest; --length)
      if (text.compare(text.size() - length, length, stop, 0, length) == 0) longest = length;
  return longest;
}

bool contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Moves text that can be returned from the held text to the event; ends the sample at a stop string.
void show_text(const RequestOptions& options, Sample& sample, bool may_stop, Event& event) {
  size_t cut = std::string::npos;
  for (size_t i = 0; i < options.stop_strings.size() && may_stop; ++i) {
    const std::string& stop = options.stop_strings[i];
    const size_t at = stop.empty() ? std::string::npos : sample.held_text.find(stop);
    if (at >= cut) continue;
    cut = at;
    event.stop = static_cast<int32_t>(i);
  }
  if (cut != std::string::npos) {
    event.finish = FinishReason::stop;
    event.text = sample.held_text.substr(0, cut);
    return;
  }
  const size_t keep = event.finish == FinishReason::none ? begun_stop(sample.held_text, options.stop_strings) : 0;
  event.text = sample.held_text.substr(0, sample.held_text.size() - keep);
  sample.held_text.erase(0, event.text.size());
}

}  // namespace

void start_text(const Request::State& job, Sample& sample, const Tokenizer& tokenizer) {
  constexpr size_t enough = 16;
  sample.stream.emplace(tokenizer.stream(!job.options.special_text));
  for (size_t i = job.prompt.size() - std::min(enough, job.prompt.size()); i < job.prompt.size(); ++i)
    sample.stream->push(job.prompt[i]);
  sample.stream->end_prompt();
}

bool ends_text(const RequestOptions& options, const Sample& sample, int32_t token) {
  return static_cast<int64_t>(sample.output.size()) + 1 >= options.min_tokens && contains(options.stop_tokens, token);
}

Event accept_token(const Request::State& job, Sample& sample, SampledToken token, int64_t context, bool complete) {
  const RequestOptions& options = job.options;
  const bool ends = ends_text(options, sample, token.id);
  sample.output.push_back(token.id);
  const auto count = static_cast<int64_t>(sample.output.size());
  const int64_t prefix = job.adapter ? job.adapter->prefix : 0;
  const int64_t length = prefix + static_cast<int64_t>(job.prompt.size()) + count;
  const bool may_stop = count >= options.min_tokens;
  Event event;
  if (ends) event.finish = FinishReason::eos;
  else if (complete) event.finish = FinishReason::stop;
  else if (count >= options.max_tokens || (context && length >= context)) event.finish = FinishReason::length;
  if (sample.stream) {
    if (event.finish != FinishReason::eos) sample.held_text += sample.stream->push(token.id);
    if (event.finish != FinishReason::none) sample.held_text += sample.stream->finish();
    show_text(options, sample, may_stop, event);
  }
  event.has_token = true;
  event.token = std::move(token);
  return event;
}

void catch_up_text(const Request::State& job, Sample& sample, const Tokenizer& tokenizer) {
  const bool ended = sample.phase == Sample::Phase::text;
  start_text(job, sample, tokenizer);
  const size_t shown = sample.output.size() - (ended && sample.ending == FinishReason::eos);
  for (size_t i = 0; i < shown; ++i) sample.held_text += sample.stream->push(sample.output[i]);
  if (ended) sample.held_text += sample.stream->finish();
}

}  // namespace plait
