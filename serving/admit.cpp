// How requests begin: admission from the queue, and the tokenizer that loads with the first ones.
#include <algorithm>
#include <functional>

#include "core/comm/report.h"
#include "serving/core.h"
#include "serving/token_output.h"

namespace plait {

using Phase = Sample::Phase;

void SchedulerCore::admit() {
  constexpr size_t tried = 8;  // each opens a sequence, which looks its prompt up in the cache
  for (bool started = true; started;) {
    int64_t samples = 0;
    for (const Job& job : running_) {
      const bool computes = !std::all_of(job->samples.begin(), job->samples.end(), std::mem_fn(&Sample::ended));
      if (computes) samples += job->options.samples;
    }
    std::vector<Job> candidates;
    {
      std::lock_guard lock(mutex_);
      if (samples < options_.running) candidates = queue_.candidates(tried);
    }
    started = false;
    for (const Job& job : candidates) {
      if (samples > 0 && samples + job->options.samples > options_.running) continue;
      try {
        if (!start(job)) continue;
      } catch (...) {
        job->end(current_error());
        continue;  // the next iteration takes it out of the queue
      }
      started = true;
      std::lock_guard lock(mutex_);
      queue_.started(job);
      break;
    }
  }
  std::lock_guard lock(mutex_);
  queue_.set_running(running_, goal_.prompt_token());
}

/// False if it does not fit yet.
bool SchedulerCore::start(const Job& job) {
  if (numbers_->take_wrapped()) engine_->forget_pages();
  running_.reserve(running_.size() + 1);
  if (job->samples.empty()) job->samples.resize(static_cast<size_t>(job->options.samples));
  job->samples[0].order = ++admissions_;
  if (!builder_.start(job, job->samples[0], running_)) return false;
  start_masks(job);
  for (Sample& sample : job->samples)
    if (text_ && job->options.kind == RequestOptions::Kind::generate) start_text(*job, sample, *text_);
  {
    std::lock_guard lock(job->mutex);
    job->usage.queued_s = EngineThread::seconds_since(job->submitted);
    job->usage.cached_tokens = job->samples[0].sequence->length();
  }
  histograms_.request_prompt_tokens.add(static_cast<double>(job->prompt.size()));
  histograms_.request_cached_tokens.add(static_cast<double>(job->samples[0].sequence->length()));
  running_.push_back(job);
  return true;
}

/// Each sample's state in the grammar. The first mask is known.
void SchedulerCore::start_masks(const Job& job) {
  if (!job->options.grammar) return;
  for (Sample& sample : job->samples) {
    try {
      sample.mask = std::make_shared<MaskState>(job->options.grammar->start());
    } catch (...) {
      return job->end(current_error());
    }
  }
}

/// Once the tokenizer has loaded, samples that started without it get their text.
void SchedulerCore::look_for_tokenizer() {
  if (!text_coming_ || tokenizer_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  text_coming_ = false;
  try {
    text_ = tokenizer_.get();
  } catch (const std::exception&) {
    // The loader logs the error and callers that wait for the tokenizer get it; here tokens have no text.
  }
  for (const Job& job : running_) {
    if (job->finished || job->options.kind != RequestOptions::Kind::generate) continue;
    try {
      catch_up(job);
    } catch (...) {
      job->end(current_error());
    }
  }
}

void SchedulerCore::catch_up(const Job& job) {
  for (Sample& sample : job->samples) {
    if (sample.phase == Phase::done) continue;
    if (text_) catch_up_text(*job, sample, *text_);  // emitted with the sample's next event
    if (sample.phase != Phase::text) continue;
    Event last;
    last.text = std::move(sample.held_text);
    end_sample(job, sample, sample.ending, std::move(last));
  }
}

}  // namespace plait
