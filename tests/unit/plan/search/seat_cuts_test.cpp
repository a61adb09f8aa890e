#include "core/plan/search/seat_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <random>

namespace plait::test {
namespace {

/// By stages the least slowest part of all cuts there are.
std::map<size_t, double> by_enumeration(size_t units, int64_t ranks, size_t most_stages, const SeatCosts& costs) {
  std::map<size_t, double> out;
  const std::function<void(size_t, size_t, int64_t, double)> go = [&](size_t stages, size_t begin, int64_t first,
                                                                      double slowest) {
    if (begin == units && first == ranks) {
      const auto [at, added] = out.try_emplace(stages, slowest);
      at->second = std::min(at->second, slowest);
      return;
    }
    if (stages == most_stages) return;
    for (size_t end = begin + 1; end <= units; ++end)
      for (int64_t seats = 1; first + seats <= ranks; ++seats)
        go(stages + 1, end, first + seats,
           std::max({slowest, costs.stage(begin, end, first, seats), begin ? costs.message(begin, first) : 0}));
  };
  go(0, 0, 0, 0);
  return out;
}

TEST(SeatCuts, AreTheBestOfAll) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> number(0.1, 3);
  for (int round = 0; round < 20; ++round) {
    const size_t units = 2 + round % 5;
    const int64_t ranks = 1 + round % 6;
    std::vector<double> work, crosses;
    for (size_t i = 0; i < units; ++i) work.push_back(number(random)), crosses.push_back(number(random));
    SeatCosts costs;
    costs.stage = [&](size_t begin, size_t end, int64_t first, int64_t seats) {
      double out = 0;
      for (size_t i = begin; i < end; ++i) out += work[i];
      if (out > 6) return std::numeric_limits<double>::infinity();  // does not fit
      return out / static_cast<double>(seats) + (first % 2 ? 0.2 : 0) + 0.1 * static_cast<double>(seats - 1);
    };
    costs.message = [&](size_t begin, int64_t first) { return crosses[begin] / (first % 3 ? 1 : 2); };
    const std::map<size_t, double> expected = by_enumeration(units, ranks, 4, costs);
    size_t finite = 0;
    for (const auto& [stages, slowest] : expected) finite += slowest < 1e9;
    const std::vector<SeatCut> found = seat_cuts(units, ranks, 4, costs);
    ASSERT_EQ(found.size(), finite) << units << " units, " << ranks << " ranks";
    for (const SeatCut& cut : found) {
      EXPECT_DOUBLE_EQ(cut.slowest_s, expected.at(cut.seats.size()));
      double slowest = 0;
      size_t begin = 0;
      int64_t first = 0;
      for (size_t i = 0; i < cut.seats.size(); ++i) {
        const size_t end = begin + static_cast<size_t>(cut.units[i]);
        slowest = std::max(
            {slowest, costs.stage(begin, end, first, cut.seats[i]), begin ? costs.message(begin, first) : 0});
        begin = end;
        first += cut.seats[i];
      }
      EXPECT_EQ(begin, units);
      EXPECT_EQ(first, ranks);
      EXPECT_DOUBLE_EQ(slowest, cut.slowest_s);
    }
  }
}

}  // namespace
}  // namespace plait::test
