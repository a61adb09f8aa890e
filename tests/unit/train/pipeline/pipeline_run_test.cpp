// Whole runs in pipeline stages: checkpoints that load on any mesh, exports, evaluations, cancelling.
#include <filesystem>
#include <thread>

#include "core/train/data/document_encoder.h"
#include "core/train/trained_weights.h"
#include "core/train/trainer.h"
#include "tests/unit/train/pipeline/deep_decoder.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

struct Layout {
  std::string mesh;
  int zero = 0;
  std::string schedule = "1f1b";
  std::string seats = "";
};

Dataset pipeline_data(int32_t vocabulary) {
  std::vector<Document> out;
  for (const std::vector<int32_t>& ids : documents(vocabulary)) out.push_back({ids, {}});
  return Dataset::of(out, {.seq = 40});
}

class PipelineRun : public testing::Test {
 protected:

  CompileOptions compile(const std::string& mesh) const {
    CompileOptions out = World::get().options(DType::f64);
    out.mesh = Mesh::parse(mesh);
    return out;
  }

  std::unique_ptr<Trainer> trainer(const Layout& layout, const std::string& directory = "", bool resume = false) {
    TrainerOptions out;
    out.training = training(OptimizerKind::adamw, layout.zero);
    out.training.pipeline.schedule = layout.schedule;
    out.training.pipeline.seats = layout.seats;
    out.rate = {.peak = 1e-2, .warmup = 2};
    out.steps = 6;
    out.batch = 4;
    out.seed = 5;
    out.directory = directory;
    out.resume = resume;
    const Dataset data = pipeline_data(11);
    return std::make_unique<Trainer>(graph_, compile(layout.mesh), out, data, data, pool_);
  }

  std::string copy_of(const std::string& run, const std::string& name) {
    const std::string out = folder_.path(name);
    std::filesystem::copy(run, out, std::filesystem::copy_options::recursive);
    return out;
  }

  static std::vector<double> losses(Trainer& trainer, int count) {
    std::vector<double> out;
    for (int i = 0; i < count; ++i) out.push_back(trainer.step()->loss);
    return out;
  }

  static void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-10 * expected[i]) << "step " << i;
  }

  const Graph graph_ = deep_graph(2);
  Folder folder_;
  ThreadPool pool_{2};
};

void expect_equal_tensors(const FileTensors& got, const FileTensors& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_EQ(got.at(name).bytes(), tensor.bytes()) << name;
    EXPECT_EQ(std::memcmp(got.at(name).data(), tensor.data(), static_cast<size_t>(tensor.bytes())), 0) << name;
  }
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> out{{""},
                                       {"pipeline=2"},
                                       {"pipeline=2,data=2", 3},
                                       {"pipeline=2,tensor=2"},
                                       {"pipeline=4", 0, "chimera"},
                                       {"pipeline=3,data=2", 1, "1f1b", "2:1"}};
  return out;
}

TEST_F(PipelineRun, CheckpointsLoadOnAnyMesh) {
  const auto straight = trainer({""});
  const std::vector<double> all = losses(*straight, 4), expected(all.begin() + 2, all.end());
  for (size_t from = 0; from < layouts().size(); ++from) {
    const std::string run = folder_.path(cat("run", from));
    {
      const auto first = trainer(layouts()[from], run);
      expect_near(losses(*first, 2), {all[0], all[1]});
      first->save();
    }
    const FileTensors saved = tensors_of_checkpoint(graph_, compile(""), run);
    EXPECT_FALSE(saved.empty());
    for (size_t to = 0; to < layouts().size(); ++to) {
      SCOPED_TRACE(cat(layouts()[from].mesh, " to ", layouts()[to].mesh));
      const auto second = trainer(layouts()[to], copy_of(run, cat("run", from, "to", to)), true);
      EXPECT_EQ(second->steps_done(), 2);
      expect_equal_tensors(trained_tensors(second->engine()), saved);
      expect_near(losses(*second, 2), expected);
    }
  }
}

TEST_F(PipelineRun, EvaluatesAndEndsAsOneRank) {
  const auto straight = trainer({""});
  straight->run();
  const double expected = straight->evaluate(pipeline_data(11)).loss;
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(layout.mesh);
    const auto one = trainer(layout, folder_.path(cat("whole", layout.mesh)));
    one->run();
    EXPECT_EQ(one->ending(), Trainer::Ending::steps);
    EXPECT_EQ(one->steps_done(), 6);
    EXPECT_NEAR(one->best_loss(), expected, 1e-10 * expected);
    EXPECT_NEAR(one->evaluate(pipeline_data(11)).loss, expected, 1e-10 * expected);
    expect_equal_tensors(tensors_of_checkpoint(graph_, compile(""), folder_.path(cat("whole", layout.mesh))),
                         trained_tensors(one->engine()));
  }
}

TEST_F(PipelineRun, CancelsBetweenStepsAndGoesOn) {
  const std::vector<double> expected = losses(*trainer({""}), 6);
  const std::string run = folder_.path("cancelled");
  std::vector<double> got;
  {
    const auto first = trainer({"pipeline=2"}, run);
    got = losses(*first, 2);
    std::jthread other([&] { first->cancel(); });
    other.join();
    expect_error([&] { first->evaluate(pipeline_data(11)); }, Code::cancelled);
    while (auto report = first->step()) got.push_back(report->loss);
    EXPECT_EQ(first->ending(), Trainer::Ending::cancelled);
    EXPECT_EQ(got.size(), 2u);
  }
  const auto second = trainer({"pipeline=2", 0, "zb-h1"}, run, true);
  while (auto report = second->step()) got.push_back(report->loss);
  expect_near(got, expected);
}

/// Each target's loss, in the order of the rows, on the first rank.
TEST_F(PipelineRun, LossesOfTargets) {
  const auto evaluated = [&](const std::string& mesh, const std::string& schedule) {
    TrainingOptions options = training(OptimizerKind::sgd, 0);
    options.pipeline.schedule = schedule;
    TrainingEngine engine(graph_, compile(mesh), options, pool_);
    const auto all = documents(11);
    std::vector<TrainingSample> samples;
    for (const auto& document : all) samples.push_back({document, {}});
    const PackedStep packed = pack_step(samples, row_tokens, 1, 8);
    std::vector<MicroBatch> batches;
    for (const auto& rows : packed.rows) batches.push_back({.rows = rows});
    std::vector<float> out;
    const double sum = engine.evaluate(batches, &out);
    double again = 0;
    for (float loss : out) again += double{loss};
    EXPECT_EQ(static_cast<int64_t>(out.size()), packed.targets);
    EXPECT_NEAR(again, sum, 1e-5 * sum);
    return out;
  };
  const std::vector<float> expected = evaluated("", "1f1b");
  for (const char* schedule : {"1f1b", "chimera", "zb-v"}) {
    const std::vector<float> got = evaluated("pipeline=2", schedule);
    ASSERT_EQ(got.size(), expected.size()) << schedule;
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << schedule << " " << i;
  }
}

}  // namespace
}  // namespace plait::test
