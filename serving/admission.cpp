#include "serving/admission.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

void Admission::add(Job job) {
  const auto count = static_cast<int64_t>(jobs_.size()), prompt = static_cast<int64_t>(job->prompt.size());
  const double wait = expected_wait(job->options.priority, job->options.samples);
  const auto refuse = [&](const std::string& why, const char* option) {
    throw Error(
        Code::overloaded, why,
        cat("try again ", wait > 0 ? cat("in about ", wait, " s") : "later", ", or raise the option ", option));
  };
  if (count >= options_.queue) refuse(cat("the queue is full: ", count, " requests wait"), "queue");
  if (options_.queue_tokens > 0 && count > 0 && tokens_ + prompt > options_.queue_tokens)
    refuse(cat("the queue is full: ", tokens_, " tokens of prompts wait, of at most ", options_.queue_tokens),
           "queue_tokens");
  const double most = std::chrono::duration<double>(options_.queue_wait).count();
  // One that need not wait is taken however long its prompt is.
  if (const double own = forecast_.prompt_seconds(prompt); most > 0 && wait > 0 && wait + own > most)
    refuse(cat("the request would wait for about ", wait, " s, and for its prompt ", own, " s: longer than ", most,
               " s"),
           "queue_wait_ms");
  jobs_.push_back(std::move(job));
  tokens_ += prompt;
}

std::vector<Job> Admission::candidates(size_t most) const {
  const auto forced = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& job) { return must_be_next(job); });
  if (forced != jobs_.end()) return {*forced};
  std::vector<Job> out(std::min(most, jobs_.size()));
  std::partial_sort_copy(jobs_.begin(), jobs_.end(), out.begin(), out.end(), [](const Job& a, const Job& b) {
    return std::pair(a->options.priority, a->arrival) < std::pair(b->options.priority, b->arrival);
  });
  return out;
}

void Admission::started(const Job& job) {
  for (const Job& other : jobs_) other->overtaken += other->arrival < job->arrival;
  erase_if([&](const Job& other) { return other == job; });
  forecast_.began(static_cast<int64_t>(job->prompt.size()), job->samples[0].sequence->length());
}

void Admission::ended(const Job& job, int64_t tokens, double seconds) {
  forecast_.ended(tokens, most_tokens(job), seconds);
}

/// New tokens of a sample.
int64_t Admission::most_tokens(const Job& job) const {
  if (job->options.kind != RequestOptions::Kind::generate) return 0;
  const auto prompt = static_cast<int64_t>(job->prompt.size());
  return context_ > 0 ? std::min(job->options.max_tokens, context_ - prompt) : job->options.max_tokens;
}

WorkLeft Admission::waiting_work(const Job& job) const {
  return {job->options.samples, forecast_.uncached(static_cast<int64_t>(job->prompt.size())),
          forecast_.left(most_tokens(job), 0)};
}

WorkLeft Admission::running_work(const Job& job) const {
  WorkLeft out{0, 0, 0};
  for (const Sample& sample : job->samples) {
    if (sample.ended()) continue;
    ++out.samples;
    const auto made = static_cast<int64_t>(sample.output.size());
    out.new_tokens = std::max(out.new_tokens, forecast_.left(most_tokens(job), made));
    if (sample.phase == Sample::Phase::waiting) continue;  // another computes the prompt
    const int64_t missing = job->length(sample) - (sample.sequence ? sample.sequence->length() : 0);
    if (missing > 1 || made == 0) out.prompt_tokens += static_cast<double>(missing);
  }
  return out;
}

void Admission::set_running(std::span<const Job> running, double prompt_token_s) {
  forecast_.set_prompt_token(prompt_token_s);
  running_.clear();
  for (const Job& job : running) running_.push_back(running_work(job));
  step_begin_ = std::chrono::steady_clock::now();
}

double Admission::expected_wait(int32_t priority, int64_t samples) const {
  std::vector<WorkLeft> ahead;
  for (const Job& job : jobs_)
    if (job->options.priority <= priority) ahead.push_back(waiting_work(job));
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - step_begin_;
  return std::max(0.0, forecast_.wait(running_, ahead, samples, options_.running) - since.count());
}

Job Admission::take_one() {
  if (jobs_.empty()) return nullptr;
  const Job out = std::move(jobs_.front());
  jobs_.pop_front();
  tokens_ -= static_cast<int64_t>(out->prompt.size());
  return out;
}

}  // namespace plait
