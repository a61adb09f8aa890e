#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "core/base/error.h"
#include "core/generate/sampler.h"

namespace plait {
namespace {

SampledToken draw(std::vector<float> logits, const SamplingParams& params, std::vector<int32_t> prompt = {},
                  std::vector<int32_t> output = {}, uint32_t sample_index = 0) {
  return sample(logits, params, prompt, output, {}, sample_index);
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) { EXPECT_EQ(draw({1, 3, 2, 3}, {}).id, 1); }

TEST(Sampler, DrawsFromTheDistribution) {
  SamplingParams params;
  params.temperature = 1;
  const std::vector<float> logits{std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  std::map<int32_t, int> counts;
  constexpr int draws = 20000;
  for (uint64_t seed = 0; seed < draws; ++seed) {
    params.seed = seed;
    ++counts[draw(logits, params).id];
  }
  // Four standard deviations of a binomial of 20000 draws are below 0.0145.
  EXPECT_NEAR(counts[0] / double{draws}, 0.5, 0.0145);
  EXPECT_NEAR(counts[1] / double{draws}, 0.3, 0.0145);
  EXPECT_NEAR(counts[2] / double{draws}, 0.2, 0.0145);
}

TEST(Sampler, CutsKeepOnlyWhatTheyMay) {
  const std::vector<float> logits{0.1f, 2.0f, 1.0f, 1.5f, -3.0f};
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SamplingParams params;
    params.temperature = 5;
    params.seed = seed;
    params.top_k = 2;
    int32_t id = draw(logits, params).id;
    EXPECT_TRUE(id == 1 || id == 3);
    params.top_k = 0;
    params.top_p = 1e-9;
    EXPECT_EQ(draw(logits, params).id, 1);
    params.top_p = 1;
    params.temperature = 1;
    params.min_p = 0.55;  // exp(1.5 - 2) = 0.61, exp(1 - 2) = 0.37
    id = draw(logits, params).id;
    EXPECT_TRUE(id == 1 || id == 3);
  }
}

TEST(Sampler, PenaltiesAndBias) {
  SamplingParams params;
  params.repetition_penalty = 2;
  EXPECT_EQ(draw({4, 3, 1}, params, {0}).id, 1);    // 4 becomes 2
  EXPECT_EQ(draw({-1, -1.5f}, params, {0}).id, 1);  // -1 becomes -2
  params = {};
  params.presence_penalty = 1.5;
  EXPECT_EQ(draw({4, 3}, params, {0}, {}).id, 0);  // the prompt does not count
  EXPECT_EQ(draw({4, 3}, params, {}, {0}).id, 1);
  params = {};
  params.frequency_penalty = 0.6;
  EXPECT_EQ(draw({4, 3}, params, {}, {0}).id, 0);
  EXPECT_EQ(draw({4, 3}, params, {}, {0, 0}).id, 1);
  params = {};
  params.logit_bias = {{2, 10.0f}, {77, 5.0f}};
  EXPECT_EQ(draw({4, 3, 1}, params).id, 2);
}

TEST(Sampler, BannedTokensCannotBeChosen) {
  std::vector<float> logits{5, 4};
  const int32_t banned[] = {0};
  EXPECT_EQ(sample(logits, {}, {}, {}, banned, 0).id, 1);
  std::vector<float> only{5};
  EXPECT_THROW(sample(only, {}, {}, {}, banned, 0), Error);
}

TEST(Sampler, LogProbabilitiesAreTheModelsOwn) {
  SamplingParams params;
  params.top_logprobs = 2;
  params.temperature = 0.1;
  params.logit_bias = {{1, 100.0f}};
  SampledToken token = draw({std::log(0.5f), std::log(0.3f), std::log(0.2f)}, params);
  EXPECT_EQ(token.id, 1);
  EXPECT_NEAR(token.logprob, std::log(0.3), 1e-6);
  EXPECT_EQ(token.rank, 2);
  ASSERT_EQ(token.top.size(), 2u);
  EXPECT_EQ(token.top[0].first, 0);
  EXPECT_NEAR(token.top[1].second, std::log(0.3), 1e-6);
}

TEST(Sampler, LogProbabilitiesOfLongRowsAreThoseOfDoubles) {
  std::mt19937 random(8);
  for (const float spread : {0.01F, 1.0F, 8.0F}) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> logits(5003);
    for (float& logit : logits) logit = normal(random);
    logits[9] = -INFINITY;
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit));
    SampledToken token;
    token.id = 77;
    add_logprobs(logits, 20, token);
    EXPECT_NEAR(token.logprob, logits[77] - std::log(sum), 1e-6 * std::log(sum));
    ASSERT_EQ(token.top.size(), 20u);
    std::vector<float> sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (size_t i = 0; i < 20; ++i) EXPECT_EQ(logits[static_cast<size_t>(token.top[i].first)], sorted[i]);
  }
}

TEST(Sampler, RanksAreThePlacesAmongTheMostLikely) {
  std::mt19937 random(5);
  std::vector<float> logits(100);
  for (float& logit : logits) logit = static_cast<float>(random() % 40);  // some are equal
  SampledToken all;
  add_logprobs(logits, 100, all);
  for (size_t place = 0; place < all.top.size(); ++place) {
    SampledToken one;
    one.id = all.top[place].first;
    add_logprobs(logits, 0, one);
    EXPECT_EQ(one.rank, static_cast<int32_t>(place) + 1);
    EXPECT_EQ(one.logprob, all.top[place].second);
  }
}

TEST(Sampler, WeightsAreExponentials) {
  for (float y = 0; y < weight_bits; y += 0.00317F) {
    const double exact = std::exp2(weight_bits - static_cast<double>(y));
    EXPECT_NEAR(static_cast<double>(power_weight(y)), exact, 1 + exact * 0x1p-22) << y;
  }
  EXPECT_EQ(power_weight(0), uint64_t{1} << weight_bits);
  // A temperature near 0 leaves the largest logits only; one that is huge, all of them.
  EXPECT_EQ(token_weight(3, 3, {.per_unit = 1e300}), uint64_t{1} << weight_bits);
  EXPECT_FALSE(is_candidate(3, std::nextafter(3.0F, 0.0F), {.per_unit = 1e300, .floor = -INFINITY}));
  EXPECT_TRUE(is_candidate(3, -1e30F, {.per_unit = 1e-30, .floor = -INFINITY}));
  EXPECT_FALSE(is_candidate(3, -INFINITY, {.per_unit = 1e-30, .floor = -INFINITY}));
}

TEST(Sampler, EditsOfATokenAreOne) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.frequency_penalty = 0.5;
  params.logit_bias = {{4, 1.0F}, {4, 2.0F}};
  const int32_t prompt[] = {4}, output[] = {4, 4, 7};
  std::vector<LogitEdit> edits = logit_edits(params, prompt, output, {});
  ASSERT_EQ(edits.size(), 2u);
  if (edits[0].id == 7) std::swap(edits[0], edits[1]);
  EXPECT_EQ(edited_logit(8, edits[0], 2), 8 / 2 - 2 * 0.5F + 3);
  EXPECT_EQ(edited_logit(-8, edits[1], 2), -16 - 0.5F);
}

TEST(Sampler, NaNIsAnError) {
  for (size_t at : {size_t{0}, size_t{2}}) {
    std::vector<float> logits{1, 2, 3};
    logits[at] = std::nanf("");
    try {
      sample(logits, {}, {}, {}, {}, 0);
      FAIL() << "a NaN was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::numeric);
    }
  }
}

}  // namespace
}  // namespace plait
