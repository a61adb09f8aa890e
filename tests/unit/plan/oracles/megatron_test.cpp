// Published steps of Megatron-LM against simulated ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "core/plan/search/plan_search.h"
#include "tests/unit/plan/oracles/tables.h"
#include "tests/unit/plan/plan_world.h"

namespace plait::test {
namespace {

/// The machine and software of these papers: attention keeps its scores in memory, what crosses between stages is cut.
Machine selene() {
  return parse_machine(read_text_file(PLAIT_SOURCE_DIR "/tests/unit/plan/oracles/data/selene.json"));
}

struct Published {
  std::string name;
  double measured = 0, predicted = 0;  ///< seconds of a step
};

DecoderShape shape_of(const TableRow& row) {
  return parse_decoder_shape(cat("family=gpt,layers=", row.text("layers"), ",hidden=", row.text("hidden"),
                                 ",heads=", row.text("heads"), ",vocabulary=51200,sequence=2048"));
}

struct Software {
  int64_t data = 1;
  Recompute recompute = Recompute::full;
  bool cut_rows = false, fused_sums = false;
};

StepPrice step_of(const TableRow& row, const Software& how) {
  const PlanWorld& world = PlanWorld::get();
  Machine machine = selene();
  machine.device.fused_sums = how.fused_sums;
  PlanPricer pricer({.decoder = {world.options(), shape_of(row)},
                     .machine = machine,
                     .batch = row.integer("batch"),
                     .work = DType::f16,
                     .cut_messages = true,
                     .cut_rows = how.cut_rows,
                     .whole_layers_again = true});
  const int64_t pipeline = row.integer("pipeline"), stages = row.integer("stages");
  Plan plan{.pipeline = pipeline,
            .data = how.data,
            .tensor = row.integer("tensor"),
            .schedule = stages > 1 ? cat("interleaved:", stages) : "1f1b",
            .layers = std::vector<int64_t>(static_cast<size_t>(pipeline * stages),
                                           row.integer("layers") / pipeline / stages),
            .micro_batch = row.integer("micro") * 2048,
            .recompute = how.recompute};
  return pricer.price(plan);
}

/// Narayanan et al. 2021, equation 3, by which the paper converts seconds to FLOP/s.
double published_seconds(const TableRow& row) {
  const double h = row.number("hidden"), l = row.number("layers"), s = 2048, v = 51200;
  return 96 * row.number("batch") * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h)) /
         (row.number("gpus") * row.number("tflops") * 1e12);
}

/// The rows that the machine's six numbers are fitted to.
const std::set<std::string> fitted{"2021 1.7B", "2021 18.4B", "2021 145.6B", "2022 175B full", "2022 22B selective"};

std::vector<Published> all_rows() {
  std::vector<Published> out;
  for (const TableRow& row : read_table("megatron_2021.csv")) {
    const int64_t data = row.integer("gpus") / row.integer("tensor") / row.integer("pipeline");
    const StepPrice price = step_of(row, {.data = data, .recompute = Recompute::full});
    out.push_back({"2021 " + row.text("name"), published_seconds(row), price.step_s});
  }
  for (const TableRow& row : read_table("korthikanti_2022.csv")) {
    // Since 2022 products add to the sums of gradients; with selective recomputation norms and sums are cut over tensor ranks.
    const StepPrice full = step_of(row, {.recompute = Recompute::full, .fused_sums = true}),
                    selective = step_of(row, {.recompute = Recompute::off, .cut_rows = true, .fused_sums = true});
    out.push_back({"2022 " + row.text("name") + " full", row.number("full_s"), full.step_s});
    out.push_back({"2022 " + row.text("name") + " selective", row.number("selective_s"), selective.step_s});
  }
  return out;
}

/// Published figures are within 10 %, 5 % on average: calculon's own error on table 5 is 3.7 % on average and 8.9 % at most.
TEST(Megatron, StepsThatNothingIsFittedToAreWithinTenPercent) {
  double sum = 0;
  int rows = 0;
  for (const Published& row : all_rows()) {
    record_row(row.name, row.measured, row.predicted);
    const double off = std::abs(row.predicted / row.measured - 1);
    if (fitted.contains(row.name)) {
      EXPECT_LT(off, 0.03) << row.name << ": " << row.predicted << " s, published " << row.measured;
      continue;
    }
    EXPECT_LT(off, 0.10) << row.name << ": " << row.predicted << " s, published " << row.measured;
    sum += off;
    ++rows;
  }
  EXPECT_EQ(rows, 13);
  EXPECT_LT(sum / rows, 0.05);
}

/// Megatron's way to train: whole layers again, and weights that take 18 bytes a parameter (Korthikanti et al. 2022, figure 1): those of
/// f32, their copy of half precision, gradients and two moments.
PlanTask task_of_megatron(const TableRow& row) {
  return {.decoder = {PlanWorld::get().options(), shape_of(row)},
          .machine = selene(),
          .batch = row.integer("batch"),
          .work = DType::f16,
          .cut_messages = true,
          .whole_layers_again = true,
          .copies_in_work = true};
}

using Cuts = std::map<std::pair<int64_t, int64_t>, StepPrice>;

/// A model's cuts into tensor and pipeline ranks that fit, of equally many layers a stage, each with its best schedule, and its best
/// micro-batch if none (in tokens) is given.
Cuts cuts_of(PlanPricer& pricer, const TableRow& row, std::optional<int64_t> micro_batch) {
  const int64_t gpus = row.integer("gpus"), layers = row.integer("layers");
  Cuts out;
  for (int64_t tensor = 1; tensor <= 8; tensor *= 2)
    for (int64_t pipeline = 1; pipeline <= layers; ++pipeline)
      for (const int64_t stages : {int64_t{1}, row.integer("stages")}) {
        const bool interleaved = stages > 1;
        if (gpus % (tensor * pipeline) || layers % (pipeline * stages) || (interleaved && pipeline == 1)) continue;
        PlanLimits limits{.ranks = gpus,
                          .pipeline = pipeline,
                          .tensor = tensor,
                          .micro_batch = micro_batch,
                          .zero = 0,
                          .recompute = Recompute::full};
        limits.schedule = interleaved ? cat("interleaved:", stages) : "1f1b";
        limits.layers.assign(static_cast<size_t>(pipeline * stages), layers / pipeline / stages);
        limits.seeds = {"tensor"};
        try {
          StepPrice price = search_plan(pricer, limits).best;
          const auto found = out.find({tensor, pipeline});
          if (found == out.end() || price.step_s < found->second.step_s) out[{tensor, pipeline}] = std::move(price);
        } catch (const Error& error) {  // it does not fit, or its data ranks do not divide the batch
          if (error.code() != Code::out_of_memory && error.code() != Code::invalid_argument) throw;
        }
      }
  return out;
}

std::string terms_of(const StepPrice& price) {
  const double lists = price.timeline.makespan_s, idle = price.bubble * lists;
  return cat(price.step_s, " s (computes ", lists - idle - price.collectives_s, ", sums over tensor ranks ",
             price.collectives_s, ", idle ", idle, ", reduction ", price.reduce_s, ", update ", price.update_s, ")");
}

/// How Megatron's own cut compares with all.
struct Place {
  double behind = 1;   ///< its time, times that of the best
  int64_t faster = 0;  ///< cuts that are faster
  size_t fitting = 0;  ///< cuts that fit
  std::string best, terms;
};

Place place_of(PlanPricer& pricer, const TableRow& row, std::optional<int64_t> micro_batch) {
  const Cuts cuts = cuts_of(pricer, row, micro_batch);
  const StepPrice& own = cuts.at({row.integer("tensor"), row.integer("pipeline")});
  const StepPrice& best = std::min_element(cuts.begin(), cuts.end(), [](const auto& a, const auto& b) {
                            return a.second.step_s < b.second.step_s;
                          })->second;
  const auto faster =
      std::count_if(cuts.begin(), cuts.end(), [&](const auto& one) { return one.second.step_s < own.step_s; });
  return {own.step_s / best.step_s, faster, cuts.size(), best.plan.mesh(),
          cat("its ", terms_of(own), ", best ", best.plan.mesh(), " ", terms_of(best), ", faster ", faster, " of ",
              cuts.size())};
}

/// Megatron's own cuts of its ten models against all others. With the micro-batches that it ran they are among the best three and within
/// 5 % of the best (of 76.1B no other cut fits). With the best micro-batch of each cut eight are: of two models, pipelines of fewer tensor
/// ranks and micro-batches of one sample are priced as faster, since sums over eight ranks take an eighth to a sixth of a step, more than
/// the idle time of more stages (docs/planning.md).
TEST(Megatron, ItsCutIsCloseToTheBest) {
  for (const TableRow& row : read_table("megatron_2021.csv")) {
    const std::string name = row.text("name");
    const bool beyond = name == "18.4B" || name == "39.1B";
    PlanPricer pricer(task_of_megatron(row));
    for (const bool published : {true, false}) {
      const std::string title = name + (published ? ", published micro-batch" : ", best micro-batch");
      const Place place =
          place_of(pricer, row, published ? std::optional(row.integer("micro") * 2048) : std::nullopt);
      RecordProperty(title, place.terms);
      EXPECT_GE(place.fitting, name == "76.1B" ? 1u : 3u) << title;
      EXPECT_LT(place.behind, beyond && !published ? 1.12 : 1.05) << title << ": " << place.best;
      if (published || !beyond) {
        EXPECT_LT(place.faster, 3) << title << ": " << place.best;
      }
    }
  }
}

}  // namespace
}  // namespace plait::test
