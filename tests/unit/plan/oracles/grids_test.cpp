// Grids of data and tensor ranks: what they send, by Gholami et al. 2018, "Integrated Model, Batch and Domain Parallelism", equation 8.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/plan/simulate/plan_pricer.h"
#include "tests/unit/plan/plan_world.h"

namespace plait::test {
namespace {

/// Computes in no time, so that a step takes what its collectives take.
Machine network(double bytes_per_second) {
  Machine out;
  out.name = "network";
  out.device = {
      .memory_bytes = 1e18, .bandwidth = 1e18, .launch_s = 0, .peak = {{DType::f32, 1e24}, {DType::bf16, 1e24}}};
  out.levels = {{"network", 0, bytes_per_second, 0, false}};
  return out;
}

constexpr int64_t ranks = 16, layers = 6, hidden = 512, sequence = 128, vocabulary = 512;
constexpr double bandwidth = 1e9;

/// Seconds: activations [tokens, hidden] are summed over tensor ranks four times a layer, and once each by embedding and head;
/// gradients over data ranks. A sum of n bytes over p ranks sends 2 n (p - 1) / p.
double by_formula(int64_t tensor, double tokens, double parameters) {
  const auto t = static_cast<double>(tensor), d = static_cast<double>(ranks / tensor);
  const double activations = (4 * layers + 2) * 2 * (t - 1) / t * tokens / d * hidden * 4;
  return (activations + 2 * (d - 1) / d * parameters / t * 4) / bandwidth;
}

TEST(Grids, SendWhatTheFormulaCountsAndAreBestInsideWhereItSaysSo) {
  const DecoderShape shape =
      parse_decoder_shape(cat("family=llama,layers=", layers, ",hidden=", hidden,
                              ",heads=16,feed_forward=2048,vocabulary=", vocabulary, ",sequence=", sequence));
  int inside = 0;
  for (const int64_t batch : {16, 32, 64, 128, 512, 4096}) {
    PlanPricer pricer(
        {.decoder = {PlanWorld::get().options(), shape}, .machine = network(bandwidth), .batch = batch});
    int64_t best = 0, expected = 0;
    double best_s = 1e18, expected_s = 1e18;
    for (int64_t tensor = 1; tensor <= ranks; tensor *= 2) {
      Plan plan{.data = ranks / tensor, .tensor = tensor};
      plan.micro_batch = batch / plan.data * sequence;
      const double priced = pricer.price(plan).step_s;
      const double formula =
          by_formula(tensor, static_cast<double>(batch * sequence), static_cast<double>(shape.parameters()));
      EXPECT_NEAR(priced, formula, 1e-3 * formula) << "batch " << batch << ", tensor=" << tensor;
      if (priced < best_s) best_s = priced, best = tensor;
      if (formula < expected_s) expected_s = formula, expected = tensor;
    }
    EXPECT_EQ(best, expected) << batch;
    inside += expected > 1 && expected < ranks;
  }
  EXPECT_GE(inside, 2);
}

}  // namespace
}  // namespace plait::test
