#include "serving/admission.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

void Admission::add(Job job, bool all_run) {
  const auto count = static_cast<int64_t>(jobs_.size()), prompt = static_cast<int64_t>(job->prompt.size());
  const double wait = expected_wait(all_run, job->options.priority);
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
  if (most > 0 && wait > most)
    refuse(cat("the request would wait for about ", wait, " s, longer than ", most, " s"), "queue_wait_ms");
  tokens_ += prompt;
  jobs_.push_back(std::move(job));
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
}

void Admission::ended(Clock::time_point now, double seconds_run) {
  constexpr double weight = 1.0 / 16;
  // Without the time in which nothing ran.
  const double since = std::min(std::chrono::duration<double>(now - last_end_).count(), seconds_run);
  between_ends_ = between_ends_ > 0 ? between_ends_ + weight * (since - between_ends_) : since;
  last_end_ = now;
}

double Admission::expected_wait(bool all_run, int32_t priority) const {
  if (jobs_.empty() && !all_run) return 0;
  const auto ahead =
      std::count_if(jobs_.begin(), jobs_.end(), [&](const Job& job) { return job->options.priority <= priority; });
  return between_ends_ * static_cast<double>(ahead + 1);
}

std::deque<Job> Admission::take_all() {
  tokens_ = 0;
  return std::exchange(jobs_, {});
}

}  // namespace plait
