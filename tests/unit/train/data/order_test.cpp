// Order, packing and learning rates, by their properties.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/train/data/document_encoder.h"
#include "core/train/learning_rate.h"
#include "core/train/data/packing.h"
#include "core/train/data/sample_order.h"
#include "tests/unit/train/train_test.h"

namespace plait {
namespace {

using test::expect_error;

TEST(SampleOrder, EachEpochHasEachSampleOnce) {
  for (const int64_t samples : {1, 2, 3, 17, 256}) {
    SampleOrder order(samples, 3, 0);
    std::set<std::vector<int64_t>> seen;
    for (int epoch = 0; epoch < 4; ++epoch) {
      EXPECT_EQ(order.epoch(), epoch);
      std::vector<int64_t> all = order.next(samples);
      seen.insert(all);
      std::sort(all.begin(), all.end());
      std::vector<int64_t> whole(static_cast<size_t>(samples));
      std::iota(whole.begin(), whole.end(), int64_t{0});
      EXPECT_EQ(all, whole);
      EXPECT_EQ(order.taken(), samples * (epoch + 1));
    }
    if (samples > 16) {
      EXPECT_EQ(seen.size(), 4u) << "each epoch has an order of its own";
    }
  }
}

TEST(SampleOrder, DependsOnTheSeedAndNotOnTheSteps) {
  SampleOrder whole(50, 3, 0), other(50, 4, 0);
  const std::vector<int64_t> all = whole.next(180);
  EXPECT_NE(other.next(180), all);
  std::mt19937 random(1);
  for (int run = 0; run < 10; ++run) {
    SampleOrder parts(50, 3, 0);
    std::vector<int64_t> joined;
    while (joined.size() < all.size()) {
      const auto count = std::min<int64_t>(static_cast<int64_t>(random() % 23), std::ssize(all) - std::ssize(joined));
      const std::vector<int64_t> part = parts.next(count);
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, all);
  }
}

TEST(SampleOrder, AResumedRunIsAStraightOne) {
  for (const int64_t until : {0, 1, 29, 30, 31, 60, 75}) {
    SampleOrder straight(30, uint64_t{1} << 63, 99), resumed(30, 7, 99);
    straight.next(until);
    resumed.next(3);
    resumed.resume(straight.state());
    EXPECT_EQ(resumed.state(), straight.state());
    EXPECT_EQ(resumed.taken(), until);
    EXPECT_EQ(resumed.next(100), straight.next(100));
  }
}

TEST(SampleOrder, RefusesOtherDataAndOtherTexts) {
  SampleOrder order(30, 7, 99);
  expect_error([&] { order.resume(SampleOrder(31, 7, 99).state()); }, Code::invalid_argument, "31", "30");
  expect_error([&] { order.resume(SampleOrder(30, 7, 98).state()); }, Code::invalid_argument, "digest 98");
  for (const char* bad :
       {"", "epoch=1", "epoch=0 position=30 seed=7 samples=30 digest=99",
        "epoch=0 position=-1 seed=7 samples=30 digest=99", "epoch=x position=0 seed=7 samples=30 digest=99",
        "epoch=99999999999999 position=0 seed=7 samples=30 digest=99", "a b c d e"})
    expect_error([&] { order.resume(bad); }, Code::invalid_argument);
  EXPECT_EQ(order.taken(), 0);
  expect_error([&] { SampleOrder(0, 1, 1); }, Code::invalid_argument);
}

/// Every k-th of a kind: the first place of a small set is no likelier than another to get a sample.
TEST(SampleOrder, IsUniform) {
  constexpr int epochs = 6000, samples = 5;
  std::map<std::vector<int64_t>, int> counts;
  SampleOrder order(samples, 12, 0);
  for (int epoch = 0; epoch < epochs; ++epoch) ++counts[order.next(samples)];
  EXPECT_EQ(counts.size(), 120u);  // 5!
  double chi = 0;
  for (const auto& [permutation, count] : counts) chi += std::pow(count - epochs / 120.0, 2) / (epochs / 120.0);
  // 119 degrees of freedom: mean 119, deviation 15.4; six of them above.
  EXPECT_LT(chi, 119 + 6 * 15.4);
}

/// Documents whose ids tell them apart, some of whose ids count.
struct Made {
  std::vector<Document> documents;
  std::vector<TrainingSample> samples;
};

Made make_samples(std::mt19937& random, size_t count, int64_t longest) {
  Made out;
  out.documents.resize(count);
  for (size_t i = 0; i < count; ++i) {
    Document& document = out.documents[i];
    const size_t length = 2 + random() % static_cast<uint32_t>(longest);
    for (size_t j = 0; j < length; ++j) document.ids.push_back(static_cast<int32_t>(i * 1000 + j));
    if (random() % 2)
      for (size_t j = 0; j < length; ++j) document.counted.push_back(random() % 3 != 0);
  }
  for (const Document& document : out.documents) out.samples.push_back({document.ids, document.counted});
  return out;
}

TEST(Packing, KeepsEveryDocumentWholeAndOnce) {
  std::mt19937 random(2);
  for (int run = 0; run < 200; ++run) {
    const int64_t row_tokens = 8 + static_cast<int64_t>(random() % 60),
                  ranks = 1 + static_cast<int64_t>(random() % 5);
    const Made made = make_samples(random, random() % 40, std::min<int64_t>(row_tokens, 8 + random() % 40));
    const PackedStep step = pack_step(made.samples, row_tokens, ranks);
    ASSERT_GE(step.rows.size(), 1u);
    std::set<int32_t> seen;
    int64_t tokens = 0, targets = 0;
    for (const auto& micro_batch : step.rows) {
      ASSERT_EQ(static_cast<int64_t>(micro_batch.size()), ranks);
      for (const PackedRow& row : micro_batch) {
        EXPECT_LE(row.tokens(), row_tokens);
        ASSERT_TRUE(row.positions.size() == row.ids.size() && row.segments.size() == row.ids.size() &&
                    row.labels.size() == row.ids.size());
        tokens += row.tokens();
        int32_t segments = 0;
        for (size_t at = 0; at < row.ids.size();) {
          const int32_t number = row.ids[at] / 1000;
          EXPECT_TRUE(seen.insert(number).second) << "document " << number << " is there twice";
          const TrainingSample& sample = made.samples[static_cast<size_t>(number)];
          for (size_t i = 0; i + 1 < sample.ids.size(); ++i, ++at) {
            ASSERT_LT(at, row.ids.size());
            EXPECT_EQ(row.ids[at], sample.ids[i]);
            EXPECT_EQ(row.positions[at], static_cast<int32_t>(i));
            EXPECT_EQ(row.segments[at], segments);
            EXPECT_EQ(row.labels[at], sample.counted.empty() || sample.counted[i + 1] ? sample.ids[i + 1] : -1);
            targets += row.labels[at] >= 0;
          }
          ++segments;
        }
      }
    }
    EXPECT_EQ(seen.size(), made.samples.size());
    EXPECT_EQ(step.tokens, tokens);
    EXPECT_EQ(step.targets, targets);
  }
}

/// Ranks of a micro-batch have about the same to do, and no more micro-batches are made than the tokens need, about.
TEST(Packing, SpreadsTheWork) {
  std::mt19937 random(4);
  for (const int64_t ranks : {1, 2, 4, 8}) {
    const Made made = make_samples(random, 200, 60);
    const PackedStep step = pack_step(made.samples, 256, ranks);
    EXPECT_LE(static_cast<int64_t>(step.rows.size()), step.tokens / (256 * ranks) + 2);
    int64_t least = 256, most = 0;
    for (const auto& micro_batch : step.rows)
      for (const PackedRow& row : micro_batch)
        least = std::min(least, row.tokens()), most = std::max(most, row.tokens());
    // The last document that made a row the longest went there when the row was the emptiest.
    EXPECT_LE(most - least, 60);
  }
  // Eight sequences of a whole row's length over four ranks: two micro-batches of one sequence a rank.
  const std::vector<int64_t> lengths(8, 256);
  const RowPlan plan = plan_rows(lengths, 256, 4);
  ASSERT_EQ(plan.size(), 2u);
  for (const auto& micro_batch : plan)
    for (const auto& row : micro_batch) EXPECT_EQ(row.size(), 1u);
}

/// Which documents a step has, and all that is computed of them, is the same on any number of ranks.
TEST(Packing, EveryNumberOfRanksSeesTheSameStep) {
  std::mt19937 random(6);
  const Made made = make_samples(random, 30, 50);
  std::multiset<std::vector<int32_t>> all;
  for (const int64_t ranks : {1, 2, 3, 8}) {
    std::multiset<std::vector<int32_t>> tokens;
    const PackedStep step = pack_step(made.samples, 100, ranks);
    for (const auto& micro_batch : step.rows)
      for (const PackedRow& row : micro_batch)
        for (size_t i = 0; i < row.ids.size(); ++i) tokens.insert({row.ids[i], row.positions[i], row.labels[i]});
    if (all.empty()) all = tokens;
    EXPECT_EQ(tokens, all);
  }
}

TEST(Packing, FewSamplesLeaveRowsEmptyAndLongOnesAreRefused) {
  std::mt19937 random(8);
  const Made made = make_samples(random, 2, 10);
  PackedStep step = pack_step(made.samples, 16, 5);
  ASSERT_EQ(step.rows.size(), 1u);
  EXPECT_EQ(step.rows[0].size(), 5u);
  EXPECT_EQ(
      std::count_if(step.rows[0].begin(), step.rows[0].end(), [](const PackedRow& row) { return row.tokens() == 0; }),
      3);
  PackedRow& row = step.rows[0][0];
  const PackedRow before = row;
  pad_row(row, 16);
  EXPECT_EQ(row.tokens(), 16);
  EXPECT_EQ(row.segments.back(), -1);
  EXPECT_EQ(row.labels.back(), -1);
  EXPECT_TRUE(std::equal(before.ids.begin(), before.ids.end(), row.ids.begin()));
  pad_row(row, 4);
  EXPECT_EQ(row.tokens(), 16);
  EXPECT_EQ(pack_step({}, 16, 2).rows.size(), 1u);
  expect_error([] { plan_rows(std::vector<int64_t>{3, 9}, 8, 1); }, Code::invalid_argument, "9 tokens", "at most 8");
  expect_error([] { plan_rows(std::vector<int64_t>{3}, 8, 0); }, Code::invalid_argument);
}

TEST(LearningRate, RisesStaysOrFalls) {
  for (const auto schedule : {RateSchedule::constant, RateSchedule::linear, RateSchedule::cosine}) {
    const LearningRate rate{.peak = 2, .schedule = schedule, .warmup = 10, .steps = 110, .floor = 0.1};
    EXPECT_GT(rate.at(0), 0);
    for (int64_t step = 0; step < 10; ++step) EXPECT_NEAR(rate.at(step + 1) - rate.at(step), 2.0 / 11, 1e-12);
    EXPECT_DOUBLE_EQ(rate.at(10), 2);
    for (int64_t step = 10; step < 110; ++step) EXPECT_LE(rate.at(step + 1), rate.at(step));
    const bool constant = schedule == RateSchedule::constant;
    const double end = constant ? 2 : 0.2, middle = constant ? 2 : 1.1;
    EXPECT_NEAR(rate.at(60), middle, 1e-12);
    EXPECT_NEAR(rate.at(110), end, 1e-12);
    EXPECT_NEAR(rate.at(100000), end, 1e-12);
    EXPECT_EQ(rate_schedule_from_name(rate_schedule_name(schedule)), schedule);
  }
  // cosine: (1 + cos(pi / 4)) / 2 at a quarter
  EXPECT_NEAR((LearningRate{.peak = 1, .steps = 100}).at(25), (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_DOUBLE_EQ((LearningRate{.peak = 1, .schedule = RateSchedule::linear, .steps = 4}).at(1), 0.75);
  const Error error = test::error_of([] { rate_schedule_from_name("step"); });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_THAT(error.hint(), testing::HasSubstr("constant, linear, cosine"));
}

}  // namespace
}  // namespace plait
