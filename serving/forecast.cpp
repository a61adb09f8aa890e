#include "serving/forecast.h"

#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "serving/moving_mean.h"

namespace plait {

void Forecast::began(int64_t prompt, int64_t cached) {
  if (prompt > 0) follow_share(uncached_, static_cast<double>(prompt - cached) / static_cast<double>(prompt));
}

void Forecast::ended(int64_t tokens, int64_t most, double seconds) {
  if (tokens == 0) return;
  follow(new_token_s_, seconds / static_cast<double>(std::max<int64_t>(tokens - 1, 1)));
  const bool early = tokens < most;
  follow_share(early_, early ? 1 : 0);
  if (early) follow(early_tokens_, static_cast<double>(tokens));
}

double Forecast::left(int64_t most, int64_t made) const {
  const auto limit = static_cast<double>(most), done = static_cast<double>(made);
  const double expected = (1 - early_) * limit + early_ * std::min(early_tokens_, limit);
  // One that is longer than expected is not about to end for that.
  return std::clamp(expected / 8, expected - done, std::max(expected - done, limit - done));
}

double Forecast::wait(std::span<const WorkLeft> running, std::span<const WorkLeft> ahead, int64_t samples,
                      int64_t places) const {
  using End = std::pair<double, int64_t>;  // when, and how many places
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  double free = 0, prompts = 0;  // when there are places, and when all prompts so far are computed
  int64_t taken = 0;
  const auto begin = [&](const WorkLeft& one) {
    double at = free;
    if (one.prompt_tokens > 0) at = prompts = std::max(prompts, free) + one.prompt_tokens * prompt_token_s_;
    ends.emplace(at + one.new_tokens * new_token_s_, one.samples);
    taken += one.samples;
  };
  const auto wait_for = [&](int64_t wanted) {
    for (; taken > 0 && taken + wanted > places; ends.pop()) {
      free = std::max(free, ends.top().first);
      taken -= ends.top().second;
    }
  };
  for (const WorkLeft& one : running) begin(one);
  for (const WorkLeft& one : ahead) {
    wait_for(one.samples);
    begin(one);
  }
  wait_for(samples);
  return std::max(free, prompts);
}

}  // namespace plait
