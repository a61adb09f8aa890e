// What the rows of a prompt give: scores, hidden states, log-probabilities.
#include <algorithm>
#include <limits>

#include "serving/core.h"

namespace plait {

/// Scores and hidden states are collected; the last chunk ends the request.
void SchedulerCore::take_matrix(StepEntry& entry, Feed& feed) {
  const bool embed = entry.job->options.kind == RequestOptions::Kind::embed;
  const std::span<const float> rows = embed ? feed.hidden : std::span<const float>(feed.logits);
  {
    std::lock_guard lock(entry.job->mutex);
    entry.job->matrix.insert(entry.job->matrix.end(), rows.begin(), rows.end());
  }
  if (entry.ends_prefill) end_sample(entry.job, *entry.sample, FinishReason::length, {});
}

/// Emits the prompt's tokens that the step's rows give log-probabilities of, and leaves the last row, which the next token is chosen
/// from.
void SchedulerCore::score_prompt(const StepEntry& entry, Feed& feed) {
  const Job& job = entry.job;
  const auto emit = [&](SampledToken token) {
    Event event;
    event.has_token = event.of_prompt = true;
    event.token = std::move(token);
    job->emit(std::move(event));
    ++job->prompt_scored;
  };
  const auto vocabulary = feed.logits.size() / static_cast<size_t>(entry.rows);
  if (job->prompt_scored == 0) emit({job->prompt[0], std::numeric_limits<float>::quiet_NaN(), {}});
  // After preemption the first rows are those of tokens that were emitted.
  const auto end = std::min(entry.begin + entry.rows + 1, static_cast<int64_t>(job->prompt.size()));
  if (job->prompt_scored < end) {
    const auto first = static_cast<size_t>(job->prompt_scored - 1 - entry.begin);
    const std::span<const int32_t> ids(job->prompt.begin() + job->prompt_scored, job->prompt.begin() + end);
    for (SampledToken& token : scored_tokens(ids, std::span<const float>(feed.logits).subspan(first * vocabulary),
                                             vocabulary, job->options.prompt_logprobs, engine_->threads()))
      emit(std::move(token));
  }
  feed.logits = feed.logits.last(vocabulary);
}

}  // namespace plait
