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
  std::string task, name;              ///< model, GPUs and tokens of a sample; how it is cut
  double measured = 0, predicted = 0;  ///< seconds of a step
};

PlanTask task_of(const TableRow& row, const Machine& machine) {
  static const std::map<std::string, std::string> shapes{
      {"13B", "layers=40,hidden=5120,heads=40,feed_forward=13824"},
      {"30B", "layers=60,hidden=6656,heads=52,feed_forward=17920"},
      {"65B", "layers=80,hidden=8192,heads=64,feed_forward=22016"}};
  const int64_t sequence = row.integer("sequence");
  const std::string shape =
      cat("family=llama,vocabulary=128000,", shapes.at(row.text("model")), ",sequence=", sequence);
  return {.decoder = {PlanWorld::get().options(), parse_decoder_shape(shape)},
          .machine = machine,
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

/// Times only: the engine takes more memory than this software did, and some of these plans would not fit.
std::vector<Layout> layouts_on(const Machine& machine) {
  std::vector<Layout> out;
  std::map<std::string, std::unique_ptr<PlanPricer>> pricers;
  for (const TableRow& row : read_table("hagemann_2023.csv")) {
    std::unique_ptr<PlanPricer>& pricer = pricers[row.text("model") + row.text("sequence")];
    if (!pricer) pricer = std::make_unique<PlanPricer>(task_of(row, machine));
    const Plan plan = plan_of(row);
    out.push_back({cat(row.text("model"), " on ", row.text("gpus"), ", ", row.text("sequence"), " tokens"),
                   cat(plan.mesh(), " micro ", row.text("micro"), row.integer("sharded_tokens") ? " sequence" : ""),
                   row.number("seconds"), pricer->price(plan).step_s});
  }
  return out;
}

struct Accuracy {
  double off = 0;      ///< mean, as a share of what was measured
  int close = 0;       ///< within 15 %
  int best = 0;        ///< tables whose predicted best is the measured best, or within 0.5 %
  double chosen = 1;   ///< of the worst choice, what it takes, times the best
  double ordered = 0;  ///< share of pairs in the measured order, of those that are more than a tenth apart
};

Accuracy accuracy_of(const std::vector<Layout>& layouts) {
  Accuracy out;
  std::map<std::string, std::vector<Layout>> tables;
  for (const Layout& one : layouts) {
    const double off = std::abs(one.predicted / one.measured - 1);
    out.off += off / static_cast<double>(layouts.size());
    out.close += off < 0.15;
    tables[one.task].push_back(one);
  }
  EXPECT_EQ(tables.size(), 10u);
  int pairs = 0, ordered = 0;
  for (const auto& table : tables) {
    const std::vector<Layout>& rows = table.second;
    const auto least = [&](double Layout::*seconds) {
      return *std::min_element(rows.begin(), rows.end(),
                               [&](const Layout& a, const Layout& b) { return a.*seconds < b.*seconds; });
    };
    const double chosen = least(&Layout::predicted).measured / least(&Layout::measured).measured;
    out.best += chosen < 1.005;
    out.chosen = std::max(out.chosen, chosen);
    for (const Layout& a : rows)
      for (const Layout& b : rows) {
        if (a.measured * 1.10 > b.measured) continue;
        ++pairs;
        ordered += a.predicted < b.predicted;
      }
  }
  EXPECT_GT(pairs, 600);
  out.ordered = static_cast<double>(ordered) / pairs;
  return out;
}

/// Predicted: with the machine a100 that comes along, before any of these steps had been looked at. Its times are 18 % off on average, all
/// too short; the order is what a planner needs. In nine tables it chooses the fastest, in the tenth (30B on 256 GPUs) one that takes a
/// quarter longer.
TEST(Layouts, PredictedAreInTheMeasuredOrder) {
  const Accuracy found = accuracy_of(layouts_on(open_machine("a100")));
  EXPECT_LT(found.off, 0.20);
  EXPECT_GE(found.best, 9);
  EXPECT_LT(found.chosen, 1.30);
  EXPECT_GE(found.ordered, 0.88);
}

/// Fitted, with all steps in view, to what aleph_alpha.json names. So it shows that the model can describe them, not that it foretells
/// them: 128 of 134 are within 15 %, 6.5 % on average. Farthest off are 30B on 256 GPUs without a pipeline (measured up to 45 % slower, and
/// slower with larger micro-batches, which is not explained) and the largest micro-batches of 65B (24 % faster).
TEST(Layouts, FittedAreWithinFifteenPercent) {
  const std::vector<Layout> layouts =
      layouts_on(parse_machine(read_text_file(PLAIT_SOURCE_DIR "/tests/unit/plan/oracles/data/aleph_alpha.json")));
  for (const Layout& one : layouts) record_row(cat(one.task, ": ", one.name), one.measured, one.predicted);
  const Accuracy found = accuracy_of(layouts);
  EXPECT_LT(found.off, 0.075);
  EXPECT_GE(found.close, 124);
  EXPECT_GE(found.best, 9);
  EXPECT_LT(found.chosen, 1.07);
  EXPECT_GE(found.ordered, 0.94);
}

}  // namespace
}  // namespace plait::test
