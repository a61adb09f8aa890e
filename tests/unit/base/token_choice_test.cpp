// A token is the one that sorting all candidates would find.
#include "core/base/token_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace plait {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

/// By the definition, in order.
int32_t chosen_in_order(const std::vector<float>& logits, const ChoiceSettings& settings) {
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  const auto logit = [&](int32_t id) { return logits[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  const float largest = logit(order[0]);
  if (settings.per_unit == 0) return order[0];
  std::erase_if(order, [&](int32_t id) { return !is_candidate(largest, logit(id), settings); });
  if (settings.top_k > 0 && settings.top_k < static_cast<int64_t>(order.size()))
    order.resize(static_cast<size_t>(settings.top_k));
  const auto weight = [&](int32_t id) { return token_weight(largest, logit(id), settings); };
  const auto sum = [&] {
    uint64_t out = 0;
    for (int32_t id : order) out += weight(id);
    return out;
  };
  const auto at = [&](uint64_t place) {
    size_t i = 0;
    while (i + 1 < order.size() && place >= weight(order[i])) place -= weight(order[i++]);
    return i;
  };
  if (settings.top_p < 1) order.resize(at(nucleus_end(settings.top_p, sum())) + 1);
  return order[at(place_of(settings.uniform, sum()))];
}

TEST(TokenChoice, IsThatOfSortedCandidates) {
  std::mt19937 random(11);
  const auto one_of = [&](std::initializer_list<double> all) { return all.begin()[random() % all.size()]; };
  for (int round = 0; round < 3000; ++round) {
    const size_t sizes[] = {1, 2, 15, 16, 17, 64, 65, 333, 1023, 1024, 1025, 5000};
    std::vector<float> logits(sizes[random() % std::size(sizes)]);
    std::normal_distribution<float> normal(0, static_cast<float>(one_of({0.1, 1, 4, 20})));
    const bool ties = random() % 3 == 0;
    for (float& one : logits) one = ties ? std::round(normal(random)) : normal(random);
    if (random() % 3 == 0) std::sort(logits.begin(), logits.end());
    if (random() % 5 == 0)
      for (size_t i = 1; i < logits.size(); i += 2) logits[i] = -infinity;
    const ChoiceSettings settings{.per_unit = one_of({0, 0.5, 1.4427, 8}),
                                  .floor = one_of({-1e30, -1e30, -3, 0}),
                                  .top_p = one_of({1, 1, 0.95, 0.5, 0.01, 0}),
                                  .uniform = std::uniform_real_distribution<double>()(random),
                                  .top_k = static_cast<int64_t>(one_of({0, 0, 1, 7, 50}))};
    std::vector<float> own = logits;
    ASSERT_EQ(choose_token(own, settings, {}), chosen_in_order(logits, settings)) << "round " << round;
  }
}

/// More candidates than are put in order at once: the place is looked for in the row.
TEST(TokenChoice, IsThatOfSortedCandidatesInLongRows) {
  std::mt19937 random(12);
  for (int round = 0; round < 60; ++round) {
    std::vector<float> logits(20000 + random() % 20000);
    std::normal_distribution<float> normal(0, round % 3 == 0 ? 0.01F : 3);
    for (float& one : logits) one = round % 4 == 1 ? 1 : round % 4 == 2 ? std::round(normal(random)) : normal(random);
    const ChoiceSettings settings{.per_unit = round % 5 == 0 ? 0.1 : 1.4427,
                                  .floor = -infinity,
                                  .top_p = round % 2 ? 1 : 0.97,
                                  .uniform = std::uniform_real_distribution<double>()(random)};
    ASSERT_EQ(choose_token(logits, settings, {}), chosen_in_order(logits, settings)) << "round " << round;
  }
}

TEST(TokenChoice, FaultsAreFoundAnywhere) {
  for (const size_t size : {1, 16, 40, 1024, 3000})
    for (size_t at = 0; at < size; at += 1 + size / 7) {
      std::vector<float> logits(size, 1);
      logits[at] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(choose_token(logits, {}, {}), nan_in_logits);
      logits[at] = infinity;
      EXPECT_EQ(choose_token(logits, {}, {}), no_finite_logit);
      logits.assign(size, -infinity);
      EXPECT_EQ(choose_token(logits, {}, {}), no_finite_logit);
      logits[at] = -1e30F;
      EXPECT_EQ(choose_token(logits, {}, {}), static_cast<int32_t>(at));
    }
}

}  // namespace
}  // namespace plait
