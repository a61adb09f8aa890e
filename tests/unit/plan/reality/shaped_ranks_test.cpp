// Plans against steps that are run, between ranks whose link is shaped: where the link decides, its time is what is predicted, and
// another link makes another mesh the fastest.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "core/plan/simulate/plan_pricer.h"
#include "core/train/data/document_encoder.h"
#include "core/train/trainer.h"
#include "tests/unit/train/pipeline/deep_decoder.h"

namespace plait::test {
namespace {

constexpr int64_t tokens = 32;  // of a sample
constexpr int deep_layers = 4;

struct ShapedCase {
  const char* what;
  double latency_s, bandwidth;
  int64_t batch, micro_batch;
};

Plan plan_of(const std::string& axis, int64_t micro_batch) {
  return {.pipeline = axis == "pipeline" ? 2 : 1,
          .data = axis == "data" ? 2 : 1,
          .tensor = axis == "tensor" ? 2 : 1,
          .schedule = "1f1b",
          .micro_batch = micro_batch};
}

/// Computing takes no time next to the links.
Machine machine_of(const ShapedCase& one) {
  Machine out{.name = "shaped", .about = "two ranks"};
  out.device = {.memory_bytes = 1e12, .bandwidth = 1e12, .launch_s = 1e-9, .peak = {{DType::f32, 1e12}}};
  out.levels = {{.name = "link", .ranks = 2, .bandwidth = one.bandwidth, .latency_s = one.latency_s}};
  return out;
}

double predicted(const ShapedCase& one, const Plan& plan) {
  const CompileOptions compile = World::get().options();
  PlanPricer pricer({.decoder = planned_decoder(deep_graph(deep_layers), compile, tokens),
                     .machine = machine_of(one),
                     .batch = one.batch});
  return pricer.price(plan).step_s;
}

Dataset samples(int64_t count) {
  std::vector<Document> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < tokens; ++k)
      out[static_cast<size_t>(i)].ids.push_back(static_cast<int32_t>((7 * i + k * k) % DecoderMaker::vocabulary));
  return Dataset::of(out, {.seq = tokens});
}

/// Seconds of the second step; where latency decides, of the fastest of five, since each exchange also waits for a busy machine.
double measured(const ShapedCase& one, const Plan& plan) {
  CommOptions shaped;
  shaped.link = [one](int, int, int64_t bytes) { return one.latency_s + static_cast<double>(bytes) / one.bandwidth; };
  const std::vector<std::unique_ptr<plait::World>> worlds = make_thread_world(2, shaped);
  TrainerOptions options;
  options.steps = one.latency_s > 1e-3 ? 6 : 2;
  options.batch = one.batch;
  options.clip = 0;
  options.training.row_tokens = plan.micro_batch;
  options.training.pipeline.schedule = plan.schedule;
  options.training.pipeline.micro_batches = one.batch * tokens / plan.micro_batch;
  std::jthread other([&] {
    try {
      ThreadPool pool(1);
      serve_training(*worlds[1], deep_graph(deep_layers), on(plan.mesh()), options.training, pool);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::closed) << error.message();
    }
  });
  ThreadPool pool(1);
  Trainer trainer(deep_graph(deep_layers), on(plan.mesh()), options, samples(one.batch), std::nullopt, pool, nullptr,
                  worlds[0].get());
  trainer.step();
  double fastest = 1e9;
  for (int64_t step = 1; step < options.steps; ++step) {
    const double begin = monotonic_s();
    trainer.step();
    fastest = std::min(fastest, monotonic_s() - begin);
  }
  return fastest;
}

/// Predicted and measured seconds of each mesh.
using Times = std::map<std::string, std::pair<double, double>>;

Times times_of(const ShapedCase& one) {
  Times out;
  for (const char* axis : {"data", "tensor", "pipeline"}) {
    const Plan plan = plan_of(axis, one.micro_batch);
    out[axis] = {predicted(one, plan), measured(one, plan)};
  }
  return out;
}

/// From the fastest to the slowest, by what `of` gives of an entry.
template <class Of>
std::string order(const Times& times, Of of) {
  std::vector<std::pair<double, std::string>> out;
  for (const auto& [axis, both] : times) out.emplace_back(of(both), axis);
  std::sort(out.begin(), out.end());
  return cat(out[0].second, " ", out[1].second, " ", out[2].second);
}

// Where latency decides, what ranks tell each other of the step counts, too, which is priced for pipelines; collectives of small arrays
// are one exchange here, and trees in the price: of other meshes only the order is compared.
TEST(ShapedRanks, TheLinkOrdersMeshesAsPredicted) {
  struct Row {
    ShapedCase link;
    const char* order;
  };
  for (const Row& row : {Row{{"a long way", 0.02, 1e9, 8, 128}, "data pipeline tensor"},
                         Row{{"a narrow way, few tokens", 1e-5, 4e4, 2, 32}, "pipeline data tensor"},
                         Row{{"a narrow way, many tokens", 1e-5, 5e5, 32, 512}, "data pipeline tensor"}}) {
    const Times times = times_of(row.link);
    EXPECT_EQ(order(times, [](const auto& both) { return both.first; }), row.order) << row.link.what;
    EXPECT_EQ(order(times, [](const auto& both) { return both.second; }), row.order) << row.link.what;
    for (const auto& [axis, both] : times) {
      if (row.link.latency_s > 1e-3 && axis != "pipeline") continue;
      EXPECT_GT(both.second, 0.85 * both.first) << row.link.what << ", " << axis;
      EXPECT_LT(both.second, 1.15 * both.first + 0.1)
          << row.link.what << ", " << axis;  // 0.1 s: computing on a busy machine
    }
  }
}

}  // namespace
}  // namespace plait::test
