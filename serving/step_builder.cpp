#include "serving/step_builder.h"

#include <algorithm>

#include "core/base/text.h"

namespace plait {
namespace {

using Phase = Sample::Phase;

bool generates(const Job& job) { return job->options.kind == RequestOptions::Kind::generate; }

/// Tokens [begin, end) of prompt and output, concatenated.
std::vector<int32_t> tokens_of(const Job& job, const Sample& sample, int64_t begin, int64_t end) {
  const auto prompt = static_cast<int64_t>(job->prompt.size());
  std::vector<int32_t> out;
  out.reserve(static_cast<size_t>(end - begin));
  if (begin < prompt) out.assign(job->prompt.begin() + begin, job->prompt.begin() + std::min(end, prompt));
  if (end > prompt)
    out.insert(out.end(), sample.output.begin() + std::max<int64_t>(begin - prompt, 0),
               sample.output.begin() + (end - prompt));
  return out;
}

}  // namespace

bool StepBuilder::is_alone(const Sample& sample) const {
  return std::none_of(running_.begin(), running_.end(), [&](const Job& other) {
    return std::any_of(other->samples.begin(), other->samples.end(),
                       [&](const Sample& one) { return &one != &sample && one.sequence; });
  });
}

bool StepBuilder::start(const Job& job, Sample& sample, std::span<const Job> running) {
  running_ = running;
  const int64_t length = job->length(sample);
  const auto prompt = static_cast<int64_t>(job->prompt.size());
  sample.sequence.reset();
  if (job->options.parent && sample.output.empty() && !job->scores_prompt())
    sample.sequence = engine_.fork(job->options.parent->sequence());
  if (!sample.sequence || sample.sequence->adapter() != job->adapter ||
      !engine_.continues(*sample.sequence, prompt)) {
    // Scores and hidden states need every token computed, so none may come from the cache. The row before a token of the prompt
    // gives its log-probability.
    const int64_t known = job->scores_prompt() ? std::max<int64_t>(job->prompt_scored - 1, 0) : length;
    const std::vector<int32_t> cached = tokens_of(job, sample, 0, generates(job) ? known : 0);
    sample.sequence = engine_.open(cached, prompt, job->adapter, job->input);
  }
  const int64_t chunk = std::min(length - sample.sequence->length(), engine_.options().step_tokens);
  if (!engine_.reserve(*sample.sequence, std::max<int64_t>(chunk, 1)) && !is_alone(sample)) {
    sample.sequence.reset();
    return false;
  }
  if (!generates(job)) {  // rows collected before preemption are recomputed
    std::lock_guard lock(job->mutex);
    job->matrix.clear();
  }
  sample.phase = Phase::active;
  return true;
}

std::vector<StepEntry> StepBuilder::build(std::span<const Job> running, int64_t most, const StepGoal& goal) {
  running_ = running;
  entries_.clear();
  int64_t budget = engine_.options().step_tokens;
  most = std::min(most, engine_.options().step_sequences);
  for (bool decode : {true, false}) {
    if (!decode) budget = goal.prompt_tokens(static_cast<int64_t>(entries_.size()), budget);
    for (const Job& job : running)
      for (Sample& sample : job->samples) {
        if (sample.in_flight || job->ending) continue;
        if (sample.phase == Phase::preempted && !decode) start(job, sample, running);
        if (sample.phase != Phase::active || !sample.sequence) continue;
        const int64_t missing = job->length(sample) - sample.sequence->length();
        if ((missing == 1) != decode) continue;
        if (budget <= 0 || static_cast<int64_t>(entries_.size()) >= most) return std::move(entries_);
        if (add(job, sample, budget)) budget -= static_cast<int64_t>(entries_.back().tokens.size());
      }
  }
  return std::move(entries_);
}

bool StepBuilder::add(const Job& job, Sample& sample, int64_t budget) {
  const int64_t have = sample.sequence->length(), missing = job->length(sample) - have;
  int64_t rows_left = engine_.options().step_rows;
  for (const StepEntry& entry : entries_) rows_left -= entry.rows;
  if (rows_left <= 0) return false;
  const bool every_row = !generates(job) || job->scores_prompt();
  int64_t tokens = std::min({missing, budget, every_row ? rows_left : missing});
  if (!make_space(sample, tokens)) {
    if (is_alone(sample) && entries_.empty())
      job->end(Error(Code::invalid_argument,
                     cat("the cache of ", human_bytes(engine_.options().cache_bytes), " is full at ", have,
                         " tokens of this request"),
                     "raise cache_bytes, or release kept conversations"));
    return false;
  }
  const bool ends = tokens == missing;
  entries_.push_back(
      {job, &sample, tokens_of(job, sample, have, have + tokens), every_row ? tokens : ends, ends, have});
  return true;
}

/// Reserves memory for `tokens` more by preempting younger samples, otherwise for fewer.
bool StepBuilder::make_space(Sample& sample, int64_t& tokens) {
  while (!engine_.reserve(*sample.sequence, tokens)) {
    if (preempt_youngest(sample)) continue;
    if (tokens == 1) return false;
    tokens = (tokens + 1) / 2;
  }
  return true;
}

/// Drops the cache of the youngest sample outside this step that is younger than `except` and shares its memory.
bool StepBuilder::preempt_youngest(const Sample& except) {
  Sample* youngest = nullptr;
  for (const Job& job : running_)
    for (Sample& sample : job->samples) {
      const bool in_step =
          std::any_of(entries_.begin(), entries_.end(), [&](const StepEntry& one) { return one.sample == &sample; });
      const bool younger = sample.order > except.order && (!youngest || sample.order > youngest->order);
      if (sample.sequence && sample.phase == Phase::active && !in_step && !sample.in_flight && younger &&
          engine_.shares_cache(*sample.sequence, *except.sequence))
        youngest = &sample;
    }
  if (!youngest) return false;
  youngest->sequence.reset();
  youngest->phase = Phase::preempted;
  ++preempted_;
  return true;
}

}  // namespace plait
