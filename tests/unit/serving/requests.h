#pragma once
// Requests to the schedulers of fixtures, and all that comes of them.
#include <map>
#include <random>

#include "serving/scheduler.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/support/models.h"

namespace plait::test {

struct Answer {
  std::map<int, std::vector<int32_t>> tokens;  // by sample
  std::map<int, std::vector<float>> logprobs;
  std::map<int, FinishReason> finish;
  bool operator==(const Answer&) const = default;
};

inline Answer collect(Request& request) {
  Answer out;
  while (!request.finished()) {
    auto event = request.next(hang);
    if (!event) break;
    if (event->has_token) {
      out.tokens[event->sample].push_back(event->token.id);
      out.logprobs[event->sample].push_back(event->token.logprob);
    }
    if (event->finish != FinishReason::none) out.finish[event->sample] = event->finish;
  }
  return out;
}

inline std::unique_ptr<Scheduler> scheduler(const std::string& name, const EngineOptions& options = small_engine(),
                                            SchedulerOptions limits = {}) {
  return std::make_unique<Scheduler>(fixture_engine(name, options), TokenizerFuture(), limits);
}

inline std::vector<int32_t> prompt(size_t length, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> out(length);
  for (int32_t& id : out) id = static_cast<int32_t>(random() % 500) + 3;
  return out;
}

}  // namespace plait::test
