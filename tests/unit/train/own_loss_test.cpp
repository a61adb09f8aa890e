// Graphs with a loss of their own are trained as they stand: PyTorch's losses, on any mesh, from the host's tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/train/trained_weights.h"
#include "core/train/trainer.h"
#include "tests/unit/support/models.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

class OwnLoss : public testing::TestWithParam<std::string> {
 protected:
  OwnLoss() {
    const nlohmann::json all = said();
    for (const auto& [name, given] : all["inputs"].items()) {
      const Shape shape(given["shape"].get<std::vector<int64_t>>());
      if (given["values"][0].is_number_integer())
        tensors_[name] = Tensor::of_ints(given["values"].get<std::vector<int64_t>>()).reshaped(shape);
      else tensors_[name] = Tensor::of<float>(DType::f32, shape, given["values"].get<std::vector<float>>());
    }
  }

  static nlohmann::json said() {
    return nlohmann::json::parse(read_text_file(PLAIT_FIXTURES "/own_loss/own_loss.json"))[GetParam()];
  }
  NamedInputs inputs() const {
    NamedInputs out;
    for (const auto& [name, tensor] : tensors_) out.emplace(name, tensor.view());
    return out;
  }

  static TrainerOptions options(int zero = 0) {
    TrainerOptions out;
    out.training.loss = "loss";
    out.training.zero = zero;
    out.training.optimizer = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};
    out.rate = {.peak = 3e-3, .schedule = RateSchedule::constant};
    out.clip = 0;
    return out;
  }

  Graph graph() const { return fixture_graph("own_loss/" + GetParam()); }

  std::unique_ptr<Trainer> trainer(const TrainerOptions& options, const std::string& mesh = "") {
    CompileOptions compile = World::get().options();
    compile.mesh = Mesh::parse(mesh);
    return std::make_unique<Trainer>(graph(), compile, options, std::nullopt, std::nullopt, pool_);
  }

  std::vector<double> expected() const { return said()["losses"].get<std::vector<double>>(); }

  void expect_losses(Trainer& trainer) const {
    int step = 0;
    for (double loss : expected()) {
      EXPECT_NEAR(trainer.evaluate(inputs()).loss, loss, 1e-4 * loss) << "step " << step;
      const StepReport report = trainer.step(inputs());
      EXPECT_NEAR(report.loss, loss, 1e-4 * loss) << "step " << step;
      EXPECT_EQ(report.step, ++step);
    }
  }

  std::map<std::string, Tensor> tensors_;
  ThreadPool pool_{2};
};

TEST_P(OwnLoss, IsPyTorchs) { expect_losses(*trainer(options())); }

/// Nodes in order are cut into stages; with several micro-batches the loss is the mean of theirs, which the tagger's is not: it
/// is a mean over the labels that count.
TEST_P(OwnLoss, IsTheSameInPipelineStages) {
  if (GetParam() == "looper") {  // what its loops return has sizes that only a run tells
    try {
      trainer(options(), "pipeline=2");
      FAIL() << "pipelines keep what has a known size";
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("known only when it is computed"), std::string::npos) << error.message();
    }
    return;
  }
  for (const char* mesh : {"pipeline=2", "pipeline=3", "pipeline=2,data=2", "pipeline=2,tensor=2"})
    for (const char* schedule : {"1f1b", "zb-h1", "interleaved:2"})
      for (int64_t micro_batches : {0, 2}) {
        if (micro_batches && GetParam() == "tagger") continue;
        SCOPED_TRACE(cat(mesh, " ", schedule, " ", micro_batches));
        TrainerOptions options = this->options();
        options.training.pipeline.schedule = schedule;
        options.training.pipeline.micro_batches = micro_batches;
        options.training.recompute = micro_batches ? Recompute::selective : Recompute::off;
        expect_losses(*trainer(options, mesh));
      }
}

TEST_P(OwnLoss, IsTheSameOnAMesh) {
  for (const char* mesh : {"data=2", "data=4", "tensor=2", "data=2,tensor=2"})
    for (int zero = 0; zero <= 3; ++zero) {
      SCOPED_TRACE(cat(mesh, " zero ", zero));
      expect_losses(*trainer(options(zero), mesh));
    }
}

TEST_P(OwnLoss, GoesOnFromACheckpointAndOutAsAModel) {
  const Folder folder;
  TrainerOptions with = options();
  with.directory = folder.path("run");
  const auto straight = trainer(options());
  for (int i = 0; i < 3; ++i) straight->step(inputs());
  {
    const auto first = trainer(with);
    for (int i = 0; i < 2; ++i) first->step(inputs());
    first->save();
  }
  with.resume = true;
  const auto second = trainer(with);
  EXPECT_EQ(second->steps_done(), 2);
  second->step(inputs());
  second->save();
  EXPECT_EQ(second->evaluate(inputs()).loss, straight->evaluate(inputs()).loss);
  const FileTensors tuned = tensors_of_checkpoint(graph(), World::get().options(), folder.path("run"), &pool_);
  EXPECT_EQ(tuned.size(), straight->engine().parameters().size());
  Trainer again(with_tensors(graph(), tuned), World::get().options(), options(), std::nullopt, std::nullopt, pool_);
  EXPECT_EQ(again.evaluate(inputs()).loss, straight->evaluate(inputs()).loss);
}

/// A tensor of one element is trained where it is a feature's own, and where it is asked for by its name.
TEST(OwnLossWeights, OfOneElement) {
  const Graph graph = parse_graph(R"(input %0 "x" : f32[4, 2]
const %1 "w" = file "w" : f32[2, 1] = 0.5 -0.25
const %2 "bias" = file "bias" : f32[1] = 0.5
const %3 "scale" = file "scale" : f32[] = 2
const %4 "wide" = file "wide" : f32[1] = 3
node "scaled" : %5 : f32[4, 2] = Mul(%0, %4)
node "product" : %6 : f32[4, 1] = MatMul(%5, %1)
node "sum" : %7 : f32[4, 1] = Add(%6, %2)
node "last" : %8 : f32[4, 1] = Mul(%7, %3)
node "loss" : %9 "loss" : f32[] = ReduceMean(%8) keepdims=0
output %9
)");
  ThreadPool pool(1);
  const auto trained = [&](const std::vector<std::string>& patterns) {
    TrainingOptions options;
    options.loss = "loss";
    options.trained = patterns;
    std::vector<std::string> out;
    const TrainingEngine engine(graph, World::get().options(), options, pool);
    for (const TrainedParameter& one : engine.parameters()) out.push_back(one.name);
    return out;
  };
  EXPECT_THAT(trained({}), testing::UnorderedElementsAre("w", "bias"));
  EXPECT_THAT(trained({"*", "scale"}), testing::UnorderedElementsAre("w", "bias", "scale"));
  EXPECT_THAT(trained({"wide"}), testing::ElementsAre("wide"));
}

TEST_P(OwnLoss, RefusesWhatItCannotTake) {
  const auto alone = trainer(options()), spread = trainer(options(), "data=2");
  const std::string first = tensors_.begin()->first;
  for (Trainer* one : {alone.get(), spread.get()}) {
    const double before = one->evaluate(inputs()).loss;
    NamedInputs given = inputs();
    given.erase(first);
    expect_error([&] { one->step(given); }, Code::invalid_argument, first, "missing");
    given = inputs();
    given["nothing"] = given[first];
    expect_error([&] { one->step(given); }, Code::invalid_argument, "nothing");
    given = inputs();
    given[first].dtype = DType::u8;
    expect_error([&] { one->step(given); }, Code::invalid_argument, first, "dtype");
    given = inputs();
    given[first].shape[0] = 2;
    expect_error([&] { one->step(given); }, Code::invalid_argument);
    const std::vector<int32_t> ids{1, 2, 3};
    const TrainingSample sample{ids, {}};
    expect_error([&] { one->step(pack_step({&sample, 1}, 8, 1)); }, Code::invalid_argument, "own inputs");
    EXPECT_EQ(one->evaluate(inputs()).loss, before) << "nothing has changed, and the ranks live";
  }
  NamedInputs odd = inputs();
  for (auto& [name, view] : odd) view.shape[0] = 3;
  expect_error([&] { spread->step(odd); }, Code::invalid_argument, "2 ranks");
  TrainerOptions wrong = options();
  wrong.training.loss = "losses";
  expect_error([&] { trainer(wrong); }, Code::not_found, "losses");
  wrong.training.loss = first == "ids" ? "logits" : "guess";
  expect_error([&] { trainer(wrong); }, Code::unsupported, "one float");
  wrong = options();
  wrong.training.lora.rank = 2;
  expect_error([&] { trainer(wrong); }, Code::unsupported, "adapters");
}

TEST_P(OwnLoss, NamesWhereANumberThatIsNoneCameFrom) {
  if (GetParam() != "regressor") GTEST_SKIP() << "of one graph";
  const auto one = trainer(options());
  Tensor bad = Tensor::of<float>(DType::f32, tensors_["y"].shape(),
                                 std::vector<float>(static_cast<size_t>(tensors_["y"].elements()), 1e30f));
  NamedInputs given = inputs();
  given["y"] = bad.view();
  expect_error([&] { one->step(given); }, Code::numeric, "square");
  expect_losses(*one);
}

INSTANTIATE_TEST_SUITE_P(Models, OwnLoss, testing::Values("regressor", "tagger", "listener", "viewer", "looper"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plait::test
