#include "serving/admission.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

void Admission::add(Job job, int64_t running) {
  const auto count = static_cast<int64_t>(jobs_.size()), prompt = static_cast<int64_t>(job->prompt.size());
  const double wait = expected_wait(running, job->options.priority);
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

void Admission::ended(double seconds_run) {
  constexpr double weight = 1.0 / 8;
  run_s_ = run_s_ > 0 ? run_s_ + weight * (seconds_run - run_s_) : seconds_run;
}

double Admission::expected_wait(int64_t running, int32_t priority) const {
  if (jobs_.empty() && running < options_.running) return 0;
  const auto ahead =
      std::count_if(jobs_.begin(), jobs_.end(), [&](const Job& job) { return job->options.priority <= priority; });
  return run_s_ / static_cast<double>(std::max<int64_t>(running, 1)) * static_cast<double>(ahead + 1);
}

std::deque<Job> Admission::take_all() {
  tokens_ = 0;
  return std::exchange(jobs_, {});
}

}  // namespace plait
