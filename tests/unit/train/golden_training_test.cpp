// Training the fixtures against PyTorch: the loss, every gradient, and ten losses under each optimizer
// (tests/fixtures/training_goldens.py).
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/safetensors.h"
#include "core/train/training_engine.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

const nlohmann::json& goldens() {
  static const nlohmann::json all = [] {
    std::ifstream file(PLAIT_FIXTURES "/training/training.json");
    return nlohmann::json::parse(file);
  }();
  return all;
}

std::vector<std::string> fixtures() {
  std::vector<std::string> out;
  for (const auto& [name, what] : goldens()["fixtures"].items()) out.push_back(name);
  return out;
}

class GoldenTraining : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int64_t row_tokens = 64;  // of 80 tokens: two micro-batches

  const nlohmann::json& fixture() const { return goldens()["fixtures"][GetParam()]; }
  const nlohmann::json& family() const { return goldens()["families"][fixture()["family"].get<std::string>()]; }

  TrainingEngine engine(const OptimizerOptions& optimizer = {}, DType dtype = DType::f32) {
    TrainingOptions options;
    options.row_tokens = row_tokens;
    options.optimizer = optimizer;
    CompileOptions compile = World::get().options();
    compile.dtype = dtype;
    return TrainingEngine(fixture_graph(GetParam()), compile, options, pool_);
  }

  double accumulate(TrainingEngine& engine) const {
    std::vector<std::vector<int32_t>> documents = family()["documents"];
    std::vector<TrainingSample> samples;
    for (const auto& document : documents) samples.push_back({document, {}});
    const PackedStep step = pack_step(samples, row_tokens, 1);
    double loss = 0;
    for (const auto& rows : step.rows)
      loss += engine.accumulate({.rows = {rows[0]}, .weight = 1 / static_cast<double>(step.targets)});
    return loss;
  }

  void expect_losses(const OptimizerOptions& optimizer, double rate, const std::string& which) {
    TrainingEngine engine = this->engine(optimizer);
    for (const double expected : family()[which]) {
      const double loss = accumulate(engine);
      EXPECT_NEAR(loss, expected, 1e-4 * expected) << "step " << engine.steps();
      engine.update(1, rate);
    }
  }

  ThreadPool pool_{2};
};

/// PyTorch's gradient of a weight of the file as that of a parameter, which the same steps lead to.
Tensor as_parameter(Tensor there, bool file_is_transposed, const Constant& origin) {
  if (file_is_transposed) there = materialize({{}, std::move(there), {{RecipeStep::Kind::transpose, {1, 0}}}});
  return materialize({{}, std::move(there), origin.steps});
}

double norm_of(const Tensor& tensor) {
  double sum = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) sum += std::pow(tensor.as<float>()[i], 2);
  return std::sqrt(sum);
}

/// With the vocabulary whole on this rank, losses and gradients come of one pass over the head; an evaluation makes
/// none.
TEST_P(GoldenTraining, TheHeadIsMultipliedByOnce) {
  const TrainingEngine engine = this->engine();
  auto count = [](const Program& program, std::string_view op) {
    return std::count_if(program.instructions.begin(), program.instructions.end(),
                         [&](const Instruction& one) { return one.kernel && one.kernel->op == op; });
  };
  const TrainingModel& model = engine.model();
  EXPECT_EQ(count(model.program(TrainingProgram::accumulate), "plait.HeadLoss"), 1);
  EXPECT_EQ(count(model.program(TrainingProgram::accumulate), "plait.HeadStatistics") +
                count(model.program(TrainingProgram::accumulate), "plait.HeadBack"),
            0);
  EXPECT_EQ(count(model.program(TrainingProgram::evaluate), "plait.HeadStatistics"), 1);
  EXPECT_EQ(count(model.program(TrainingProgram::evaluate), "plait.HeadLoss"), 0);
}

TEST_P(GoldenTraining, LossAndEveryGradient) {
  TrainingEngine engine = this->engine();
  EXPECT_NEAR(accumulate(engine), family()["loss"].get<double>(), 1e-5 * family()["loss"].get<double>());
  const SafeTensors expected =
      SafeTensors::open(PLAIT_FIXTURES "/training/" + fixture()["family"].get<std::string>() + ".safetensors");
  std::map<std::string, int64_t> seen;
  double largest = 0;
  for (const auto& [name, entry] : expected.entries()) largest = std::max(largest, norm_of(expected.tensor(name)));
  for (const TrainedParameter& parameter : engine.parameters()) {
    const auto& known = fixture()["weights"];
    ASSERT_TRUE(known.contains(parameter.name)) << parameter.name;
    const std::string name = known[parameter.name][0];
    const Tensor got = engine.array(parameter.key + ".gradient");
    const Tensor want = as_parameter(expected.tensor(name), known[parameter.name][1], *parameter.origin);
    ASSERT_EQ(got.shape(), want.shape()) << name;
    seen[name] += got.elements();
    Tensor difference(DType::f32, got.shape());
    for (int64_t i = 0; i < got.elements(); ++i) difference.as<float>()[i] = got.as<float>()[i] - want.as<float>()[i];
    EXPECT_LE(norm_of(difference), 1e-4 * norm_of(want) + 1e-7 * largest) << name;
  }
  for (const auto& [name, entry] : expected.entries())
    EXPECT_EQ(seen[name], entry.shape.elements()) << name << " is trained in whole";
}

TEST_P(GoldenTraining, TenLossesOfAdamW) {
  const auto& said = goldens()["adamw"];
  OptimizerOptions optimizer;
  optimizer.beta1 = said["betas"][0];
  optimizer.beta2 = said["betas"][1];
  optimizer.epsilon = said["eps"];
  optimizer.weight_decay = said["weight_decay"];
  expect_losses(optimizer, said["lr"], "adamw_losses");
}

TEST_P(GoldenTraining, TenLossesOfSgd) {
  const auto& said = goldens()["sgd"];
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::sgd;
  optimizer.momentum = said["momentum"];
  optimizer.weight_decay = said["weight_decay"];
  expect_losses(optimizer, said["lr"], "sgd_losses");
}

/// Of families whose weights are the same arrays there (training_goldens.py explains why).
TEST_P(GoldenTraining, TenLossesOfAdafactor) {
  if (!family().contains("adafactor_losses")) GTEST_SKIP() << "PyTorch has other arrays";
  const auto& said = goldens()["adafactor"];
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::adafactor;
  optimizer.weight_decay = said["weight_decay"];
  expect_losses(optimizer, said["lr"], "adafactor_losses");
}

/// Products of bf16 numbers, weights in f32: these begin as they do without, and learn as fast. The first loss is off
/// by what rounding by 2^-9 costs, those after it by what ten large steps make of that.
TEST_P(GoldenTraining, RoundedProductsLearnToo) {
  const auto& said = goldens()["adamw"];
  OptimizerOptions optimizer;
  optimizer.beta1 = said["betas"][0];
  optimizer.beta2 = said["betas"][1];
  optimizer.epsilon = said["eps"];
  optimizer.weight_decay = said["weight_decay"];
  TrainingEngine rounding = engine(optimizer, DType::bf16);
  const TrainingEngine whole = engine(optimizer);
  ASSERT_EQ(rounding.parameters().size(), whole.parameters().size());
  for (size_t i = 0; i < whole.parameters().size(); ++i) {
    const Tensor mine = rounding.array(rounding.parameters()[i].key), other = whole.array(whole.parameters()[i].key);
    ASSERT_EQ(mine.shape(), other.shape());
    EXPECT_EQ(std::memcmp(mine.data(), other.data(), static_cast<size_t>(mine.bytes())), 0)
        << whole.parameters()[i].name;
  }
  for (const double expected : family()["adamw_losses"]) {
    EXPECT_NEAR(accumulate(rounding), expected, (rounding.steps() ? 1e-1 : 5e-3) * expected)
        << "step " << rounding.steps();
    rounding.update(1, said["lr"]);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenTraining, testing::ValuesIn(fixtures()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace plait::test
