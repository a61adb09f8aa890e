// How long the processor needs to choose a token from a row of logits, on one thread: the best of all rounds.
//
//   sampling_bench [vocabulary] [rounds]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/base/token_choice.h"

int main(int count, char** words) {
  using namespace plait;
  const long vocabulary = count > 1 ? std::atol(words[1]) : 262144, rounds = count > 2 ? std::atol(words[2]) : 25;
  if (vocabulary < 1 || rounds < 1) return 2;
  std::vector<float> logits(static_cast<size_t>(vocabulary));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  for (float& one : logits) one = normal(random);
  constexpr double per_unit = 1.4426950408889634, none = -1e30;  // temperature 1, no min-p
  const std::pair<const char*, ChoiceSettings> rows[] = {
      {"greedy", {}},
      {"temperature 1", {.per_unit = per_unit, .floor = none, .uniform = 0.7}},
      {"top_p 0.95", {.per_unit = per_unit, .floor = none, .top_p = 0.95, .uniform = 0.7}},
      {"top_k 40", {.per_unit = per_unit, .floor = none, .uniform = 0.7, .top_k = 40}},
  };
  std::printf("%ld logits\n", vocabulary);
  for (const auto& [name, settings] : rows) {
    double best = 1e9;
    int32_t token = 0;
    for (long round = 0; round < rounds; ++round) {
      std::vector<float> own = logits;
      const auto begin = std::chrono::steady_clock::now();
      token = choose_token(own, settings, {});
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    std::printf("%-14s %8.3f ms   token %d\n", name, 1e3 * best, token);
  }
}
