// Asynchronous pipelines compute their definitions: compared with one rank that keeps the versions of weights by hand.
#include <algorithm>

#include "core/train/data/document_encoder.h"
#include "core/train/trainer.h"
#include "tests/unit/train/runs.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

constexpr double learning_rate = 0.05;
constexpr int64_t window_steps = 6, windows = 2;

/// Steps of some micro-batches each, of one document a data rank.
std::vector<std::vector<MicroBatch>> window_of(int64_t micro_batches, int64_t first, int64_t data_ranks) {
  const auto all = documents();
  std::vector<std::vector<MicroBatch>> out;
  for (int64_t step = 0; step < window_steps; ++step) {
    auto& batches = out.emplace_back();
    int64_t targets = 0;
    for (int64_t k = 0; k < micro_batches; ++k) {
      MicroBatch& batch = batches.emplace_back();
      for (int64_t data = 0; data < data_ranks; ++data) {
        const auto number = static_cast<size_t>(first + (step * micro_batches + k) * data_ranks + data) % all.size();
        const TrainingSample sample{all[number], {}};
        const std::vector<int64_t> numbers{0};
        batch.rows.push_back(fill_row({&sample, 1}, numbers));
        targets += batch.rows.back().tokens();
      }
    }
    for (MicroBatch& batch : batches) batch.weight = 1 / static_cast<double>(targets);
  }
  return out;
}

using Weights = std::map<std::string, Tensor>;

Weights weights_of(TrainingEngine& engine) {
  Weights out;
  for (const TrainedParameter& one : engine.parameters()) out.emplace(one.key, copy(engine.array(one.key)));
  return out;
}

void expect_near(const Weights& got, const Weights& expected) {
  for (const auto& [key, array] : expected)
    for (int64_t i = 0; i < array.elements(); ++i)
      ASSERT_NEAR(got.at(key).as<double>()[i], array.as<double>()[i], 1e-10) << key << " " << i;
}

TrainingOptions options_of(const char* schedule) {
  TrainingOptions out = training(OptimizerKind::sgd, 0);
  out.pipeline.schedule = schedule;
  return out;
}

/// One rank on which each parameter has versions: what a stage of an asynchronous pipeline keeps.
class ByHand {
 public:
  explicit ByHand(const std::string& fixture)
      : compile_(World::get().options(DType::f64)), pool_(2),
        engine_(fixture_graph(fixture), compile_, training(OptimizerKind::sgd, 0), pool_) {
    versions_.push_back(weights_of(engine_));
  }

  int64_t newest() const { return static_cast<int64_t>(versions_.size()) - 1; }
  /// Adds the gradients at the weights of these versions. Returns the loss.
  double accumulate(const MicroBatch& batch, const std::function<int64_t(const std::string& key)>& version) {
    for (const TrainedParameter& one : engine_.parameters())
      engine_.set_array(one.key, versions_.at(static_cast<size_t>(version(one.key))).at(one.key).view());
    return engine_.accumulate(batch);
  }
  double norm() { return engine_.gradient_norm(); }
  void update(double scale) {
    for (const TrainedParameter& one : engine_.parameters()) engine_.set_array(one.key, versions_.back().at(one.key).view());
    engine_.update(scale, learning_rate);
    versions_.push_back(weights_of(engine_));
  }
  const Weights& weights() const { return versions_.back(); }
  /// A window ends: older versions are forgotten.
  void flush() { versions_.erase(versions_.begin(), versions_.end() - 1); }

 private:
  CompileOptions compile_;
  ThreadPool pool_;
  TrainingEngine engine_;
  std::vector<Weights> versions_;  ///< by number of updates in the window
};

/// A stage's gradients are of the weights of its forward pass: W(t + 1) = W(t) - rate gradient of the weights that each stage
/// had when the micro-batch came.
void expect_pipedream(const std::string& mesh, int64_t data_ranks) {
  const char* fixture = "llama-untied-optimum18";
  CompileOptions compile = World::get().options(DType::f64);
  compile.mesh = Mesh::parse(mesh);
  ThreadPool pool(2);
  TrainingEngine engine(fixture_graph(fixture), compile, options_of("pipedream"), pool);
  const int64_t ranks = compile.mesh.blocks(compile.mesh.parts("pipeline"));
  ByHand expected(fixture);
  const std::vector<double> rates(window_steps, learning_rate);
  for (int64_t window = 0; window < windows; ++window) {
    const auto steps = window_of(1, window * 5, data_ranks);
    const WindowResult result = engine.run_window(steps, rates, 0);
    EXPECT_EQ(result.updates, window_steps);
    for (int64_t step = 0; step < window_steps; ++step) {
      double loss = 0;
      const MicroBatch& batch = steps[static_cast<size_t>(step)][0];
      for (const PackedRow& row : batch.rows)
        loss += expected.accumulate({.rows = {row}, .weight = batch.weight}, [&](const std::string& key) {
          // Stage i is p - 1 - i micro-batches ahead of its updates.
          const int64_t stage = engine.model().holders.at(key).front();
          return std::max<int64_t>(0, step - (ranks - 1 - stage));
        });
      expected.update(1);
      EXPECT_NEAR(result.losses[static_cast<size_t>(step)], loss, 1e-10) << step;
    }
    expected.flush();
    expect_near(weights_of(engine), expected.weights());
  }
}

TEST(AsyncPipeline, PipeDreamReadsTheWeightsOfItsForwardPass) {
  expect_pipedream("pipeline=2", 1);
  expect_pipedream("pipeline=3", 1);
  expect_pipedream("pipeline=3", 1);
  expect_pipedream("pipeline=2,data=2", 2);
}

/// W(t + 1) = W(t) - rate gradient(W(t - 1)), clipped by the norm over all stages; the first two steps of a window read the
/// weights that it begins with.
void expect_two_versions(const std::string& fixture, const std::string& mesh, int64_t micro_batches, int64_t data_ranks,
                         double clip, int zero) {
  SCOPED_TRACE(cat(fixture, " ", mesh, " clip ", clip, " zero ", zero));
  CompileOptions compile = World::get().options(DType::f64);
  compile.mesh = Mesh::parse(mesh);
  ThreadPool pool(2);
  TrainingOptions options = options_of("2bw");
  options.zero = zero;
  TrainingEngine engine(fixture_graph(fixture), compile, options, pool);
  ByHand expected(fixture);
  const std::vector<double> rates(window_steps, learning_rate);
  for (int64_t window = 0; window < windows; ++window) {
    const auto steps = window_of(micro_batches, window * 5, data_ranks);
    const WindowResult result = engine.run_window(steps, rates, clip);
    EXPECT_EQ(result.updates, window_steps);
    for (int64_t step = 0; step < window_steps; ++step) {
      double loss = 0;
      for (const MicroBatch& batch : steps[static_cast<size_t>(step)])
        for (const PackedRow& row : batch.rows)
          loss += expected.accumulate({.rows = {row}, .weight = batch.weight},
                                      [&](const std::string&) { return std::max<int64_t>(0, step - 1); });
      const double norm = expected.norm();
      EXPECT_NEAR(result.norms[static_cast<size_t>(step)], norm, 1e-10) << step;
      expected.update(clip > 0 && norm > clip ? clip / norm : 1);
      EXPECT_NEAR(result.losses[static_cast<size_t>(step)], loss, 1e-10) << step;
    }
    expected.flush();
    expect_near(weights_of(engine), expected.weights());
  }
}

TEST(AsyncPipeline, TwoBuffersOfWeights) {
  expect_two_versions("llama-standard23", "pipeline=2", 2, 1, 0, 0);
  expect_two_versions("llama-standard23", "pipeline=3", 3, 1, 0.5, 0);
  for (int zero : {0, 1, 2, 3}) expect_two_versions("llama-standard23", "pipeline=2,data=2", 2, 2, 0.5, zero);
  expect_two_versions("llama-standard23", "pipeline=2,tensor=2", 2, 1, 0.5, 0);
}

/// A table that the first and the last stage read gets one gradient.
TEST(AsyncPipeline, TiedWeightsOfTwoStages) {
  expect_two_versions("gpt2-optimum18", "pipeline=2", 2, 1, 0.5, 0);
  expect_two_versions("gpt2-optimum18", "pipeline=2,data=2", 2, 2, 0.5, 1);
  CompileOptions compile = World::get().options();
  compile.mesh = Mesh::parse("pipeline=2");
  ThreadPool pool(2);
  try {
    TrainingEngine engine(fixture_graph("gpt2-optimum18"), compile, options_of("pipedream"), pool);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported) << error.message();
  }
}

/// Steps with fewer micro-batches than others, and none.
TEST(AsyncPipeline, StepsOfUnequalSize) {
  CompileOptions compile = World::get().options(DType::f64);
  compile.mesh = Mesh::parse("pipeline=2");
  ThreadPool pool(2);
  TrainingEngine engine(fixture_graph("llama-standard23"), compile, options_of("2bw"), pool);
  ByHand expected("llama-standard23");
  auto steps = window_of(3, 0, 1);
  steps[1].resize(1);
  steps[3].clear();
  const WindowResult result = engine.run_window(steps, std::vector<double>(window_steps, learning_rate), 0);
  EXPECT_EQ(result.updates, window_steps);
  for (int64_t step = 0; step < window_steps; ++step) {
    for (const MicroBatch& batch : steps[static_cast<size_t>(step)])
      expected.accumulate(batch, [&](const std::string&) { return std::max<int64_t>(0, step - 1); });
    expected.update(1);
  }
  expect_near(weights_of(engine), expected.weights());
}

/// A step whose norm is not finite is not applied, nor is any after it.
TEST(AsyncPipeline, AStepThatIsNotFiniteEndsTheWindow) {
  CompileOptions compile = World::get().options(DType::f64);
  compile.mesh = Mesh::parse("pipeline=2");
  ThreadPool pool(2);
  TrainingEngine engine(fixture_graph("llama-standard23"), compile, options_of("2bw"), pool);
  auto steps = window_of(2, 0, 1);
  steps[2][1].weight = std::numeric_limits<double>::infinity();
  const WindowResult result = engine.run_window(steps, std::vector<double>(window_steps, learning_rate), 1);
  EXPECT_EQ(result.updates, 2);
  EXPECT_EQ(engine.steps(), 2);
  for (const auto& [key, array] : weights_of(engine))
    for (int64_t i = 0; i < array.elements(); ++i) ASSERT_TRUE(std::isfinite(array.as<double>()[i])) << key;
}

/// The same bits on processes as on threads.
TEST(AsyncPipeline, OfProcesses) {
  plait::World* const world = processes();
  if (!world) GTEST_SKIP() << "only under mpirun";
  const Graph graph = fixture_graph("gpt2-optimum18");
  CompileOptions compile = World::get().options();
  compile.mesh = Mesh::parse(world->size() == 2 ? "pipeline=2" : "pipeline=2,data=2");
  ThreadPool pool(2);
  const TrainingOptions options = options_of("2bw");
  if (world->rank() != 0) return serve_training(*world, graph, compile, options, pool);
  const std::vector<double> rates(window_steps, learning_rate);
  const auto run_windows = [&](TrainingEngine& engine) {
    for (int64_t window = 0; window < windows; ++window)
      engine.run_window(window_of(2, window * 5, engine.data_ranks()), rates, 0.5);
    return weights_of(engine);
  };
  TrainingEngine of_processes(graph, compile, options, pool, nullptr, world), of_threads(graph, compile, options, pool);
  const Weights got = run_windows(of_processes);
  for (const auto& [key, array] : run_windows(of_threads))
    EXPECT_EQ(std::memcmp(got.at(key).data(), array.data(), static_cast<size_t>(array.bytes())), 0) << key;
}

/// A run of windows: evaluated and saved between them, and the same bits when it is resumed there.
TEST(AsyncPipeline, RunsAndIsResumedAtTheEndOfAWindow) {
  std::vector<Document> documents;
  for (int i = 0; i < 12; ++i) {
    Document& document = documents.emplace_back();
    for (int k = 0; k < 6 + i % 5; ++k) document.ids.push_back(3 + (i * 7 + k) % 40);
  }
  const Dataset data = Dataset::of(documents, {.seq = 32});
  CompileOptions compile = World::get().options();
  compile.mesh = Mesh::parse("pipeline=2,data=2");
  ThreadPool pool(2);
  Folder folder;
  TrainerOptions options;
  options.training = options_of("2bw");
  options.training.optimizer = {};
  options.rate = {.peak = 3e-3, .warmup = 2};
  options.steps = 10;
  options.batch = 6;
  options.evaluate_every = 4;
  options.flush_every = 3;
  const auto make = [&](const char* name, bool resume) {
    options.directory = folder.path(name);
    options.resume = resume;
    return std::make_unique<Trainer>(fixture_graph("gpt2-optimum18"), compile, options, data, data, pool);
  };
  auto straight = make("straight", false);
  std::vector<StepReport> reports;
  while (auto report = straight->step()) reports.push_back(*report);
  ASSERT_EQ(reports.size(), 10u);
  EXPECT_LT(reports.back().loss, reports.front().loss);
  for (const StepReport& report : reports) {
    EXPECT_GT(report.bubble, 0);
    EXPECT_LT(report.bubble, 1);
    EXPECT_EQ(std::isfinite(report.evaluation_loss), report.step % 4 == 0 || report.step == 10) << report.step;
  }
  {
    auto first = make("cut", false);
    for (int i = 0; i < 5; ++i) first->step();  // windows end at 3, 4 and 6
    EXPECT_EQ(first->steps_done(), 6);
    first->save();
  }
  auto second = make("cut", true);
  EXPECT_EQ(second->steps_done(), 6);
  second->run();
  for (const TrainedParameter& one : straight->engine().parameters()) {
    const Tensor a = straight->engine().array(one.key), b = second->engine().array(one.key);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0) << one.key;
  }
  options.training.pipeline.schedule = "pipedream";
  expect_error([&] { make("clipped", false); }, Code::invalid_argument, "clip");
}

}  // namespace
}  // namespace plait::test
