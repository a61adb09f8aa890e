// Draws of dropout: as many as asked for, and of nothing but token, module and feature.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/base/counter_random.h"

namespace plait::test {
namespace {

constexpr int64_t features = 1000, tokens = 200;

std::vector<float> drawn(const Dropout& dropout, int64_t key, int64_t first, int64_t count) {
  const std::vector<float> x(static_cast<size_t>(count), 1.0f);
  std::vector<float> y(x.size());
  dropout.apply(x.data(), key, first, count, y.data());
  return y;
}

TEST(Dropout, DropsItsShareAndKeepsTheMean) {
  for (double rate : {0.05, 0.3, 0.5, 0.99}) {
    const Dropout dropout(rate, 3);
    int64_t dropped = 0;
    double sum = 0;
    for (int64_t key = 0; key < tokens; ++key)
      for (float value : drawn(dropout, key * 7919, 0, features)) dropped += value == 0, sum += value;
    constexpr double all = features * tokens;
    // Five standard deviations of so many coins, and of what they are worth.
    const double deviation = std::sqrt(rate * (1 - rate) / all);
    EXPECT_NEAR(static_cast<double>(dropped) / all, rate, 5 * deviation);
    EXPECT_NEAR(sum / all, 1, 5 * deviation / (1 - rate));
  }
}

TEST(Dropout, DependsOnTokenModuleAndFeatureAlone) {
  const Dropout dropout(0.4, 3);
  const std::vector<float> whole = drawn(dropout, 12345, 0, features);
  for (int64_t first : {0, 1, 2, 3, 4, 501})
    for (int64_t count : {0, 1, 5, 499}) {
      const std::vector<float> part = drawn(dropout, 12345, first, count);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first << " " << count;
    }
  EXPECT_NE(drawn(dropout, 12346, 0, features), whole);
  EXPECT_NE(drawn(Dropout(0.4, 4), 12345, 0, features), whole);
  EXPECT_EQ(drawn(dropout, -1, 0, features), std::vector<float>(features, 1.0f));
  EXPECT_EQ(drawn(Dropout(0, 3), 5, 0, features), std::vector<float>(features, 1.0f));
}

}  // namespace
}  // namespace plait::test
