// A study of layouts: many cuts of the same models, each measured, against simulated ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/mapped_file.h"
#include "core/plan/simulate/plan_pricer.h"
#include "tests/unit/plan/oracles/tables.h"
#include "tests/unit/plan/plan_world.h"

namespace plait::test {
namespace {

struct Layout {
  std::string task, name;  ///< model, GPUs and tokens of a sample; how it is cut
  bool fitted = false;
  double measured = 0, predicted = 0;  ///< seconds of a step
};

PlanTask task_of(const TableRow& row) {
  static const std::map<std::string, std::string> shapes{
      {"13B", "layers=40,hidden=5120,heads=40,feed_forward=13824"},
      {"30B", "layers=60,hidden=6656,heads=52,feed_forward=17920"},
      {"65B", "layers=80,hidden=8192,heads=64,feed_forward=22016"}};
  const int64_t sequence = row.integer("sequence");
  const std::string shape =
      cat("family=llama,vocabulary=128000,", shapes.at(row.text("model")), ",sequence=", sequence);
  return {.decoder = {PlanWorld::get().options(), parse_decoder_shape(shape)},
          .machine = parse_machine(read_text_file(PLAIT_SOURCE_DIR "/tests/unit/plan/oracles/data/aleph_alpha.json")),
          .batch = sequence == 2048 ? 2048 : 512,
          .work = DType::bf16,
          .copies_in_work = true};
}

Plan plan_of(const TableRow& row) {
  Plan out{.pipeline = row.integer("pipeline"),
           .tensor = row.integer("tensor"),
           .micro_batch = row.integer("micro") * row.integer("sequence"),
           .zero = 1};
  out.data = row.integer("gpus") / out.tensor / out.pipeline;
  if (row.integer("sharded_tokens") && out.tensor > 1) out.seeds = {"sequence"};
  return out;
}

const std::vector<Layout>& all_layouts() {
  static const std::vector<Layout> layouts = [] {
    std::vector<Layout> out;
    std::map<std::string, std::unique_ptr<PlanPricer>> pricers;
    for (const TableRow& row : read_table("hagemann_2023.csv")) {
      std::unique_ptr<PlanPricer>& pricer = pricers[row.text("model") + row.text("sequence")];
      if (!pricer) pricer = std::make_unique<PlanPricer>(task_of(row));
      const Plan plan = plan_of(row);
      out.push_back({cat(row.text("model"), " on ", row.text("gpus"), ", ", row.text("sequence"), " tokens"),
                     cat(plan.mesh(), " micro ", row.text("micro"), row.integer("sharded_tokens") ? " sequence" : ""),
                     row.text("model") == "13B" && row.text("gpus") == "32", row.number("seconds"),
                     pricer->price(plan).step_s});
    }
    return out;
  }();
  return layouts;
}

/// One number is fitted to the 16 steps of 13B on 32 GPUs. Of the other 118 all but six are within 15 %, 6.8 % on average. Farthest off
/// are 30B on 256 GPUs without a pipeline (measured up to 45 % slower, and slower with larger micro-batches, which is not explained) and
/// the largest micro-batches of 65B (23 % faster).
TEST(Layouts, StepsAreWithinFifteenPercent) {
  double sum = 0;
  int predicted = 0, close = 0;
  for (const Layout& one : all_layouts()) {
    record_row(cat(one.task, ": ", one.name), one.measured, one.predicted);
    const double off = std::abs(one.predicted / one.measured - 1);
    EXPECT_LT(off, one.fitted ? 0.15 : 0.35)
        << one.task << ": " << one.name << ": " << one.predicted << " s of " << one.measured;
    if (one.fitted) continue;
    ++predicted;
    close += off < 0.15;
    sum += off;
  }
  EXPECT_EQ(predicted, 118);
  EXPECT_GE(close, 110);
  EXPECT_LT(sum / predicted, 0.075);
}

/// What a planner is for: of the layouts that were measured, the one that is predicted as the fastest is the fastest; and of two that are
/// measured more than a tenth apart, the order is the predicted one in 95 of 100.
TEST(Layouts, TheFastestIsTheFastest) {
  std::map<std::string, std::vector<Layout>> tasks;
  for (const Layout& one : all_layouts()) tasks[one.task].push_back(one);
  ASSERT_EQ(tasks.size(), 10u);
  int same = 0, pairs = 0, ordered = 0;
  for (const auto& [task, found] : tasks) {
    const std::vector<Layout>& layouts = found;  // which a lambda may capture
    const auto least = [&](double Layout::*seconds) {
      return *std::min_element(layouts.begin(), layouts.end(),
                               [&](const Layout& a, const Layout& b) { return a.*seconds < b.*seconds; });
    };
    const Layout chosen = least(&Layout::predicted), best = least(&Layout::measured);
    same += chosen.name == best.name;
    EXPECT_LT(chosen.measured, 1.06 * best.measured) << task << ": chosen " << chosen.name << ", best " << best.name;
    for (const Layout& a : layouts)
      for (const Layout& b : layouts) {
        if (a.measured * 1.10 > b.measured) continue;
        ++pairs;
        ordered += a.predicted < b.predicted;
      }
  }
  EXPECT_GE(same, 9);
  EXPECT_GT(pairs, 600);
  EXPECT_GE(ordered, 0.945 * pairs);
}

}  // namespace
}  // namespace plait::test
