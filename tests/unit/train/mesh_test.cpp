// Training on several ranks is training on one: for every family, mesh and level of ZeRO the losses, the norm of the
// gradients and what the weights become.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/train/training_engine.h"
#include "tests/unit/models.h"

namespace plait::test {
namespace {

constexpr int64_t row_tokens = 48;
constexpr int steps = 3;

/// Documents of several lengths, so that rows differ and two micro-batches are needed.
std::vector<std::vector<int32_t>> documents() {
  std::vector<std::vector<int32_t>> out;
  uint32_t state = 7;
  for (const int length : {21, 9, 14, 33, 5, 26, 17, 3}) {
    out.emplace_back();
    for (int i = 0; i < length; ++i)
      out.back().push_back(static_cast<int32_t>((state = state * 1664525 + 1013904223) >> 8) % 97);
  }
  return out;
}

Tensor copy(const Tensor& from) {
  return Tensor::of<float>(DType::f32, from.shape(), {from.as<float>(), static_cast<size_t>(from.elements())});
}

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, Tensor> updates;  ///< of each parameter, by its name
  int64_t state_bytes = 0;                ///< the most of a rank
  std::map<std::string, int> collectives;
};

TrainingOptions training(OptimizerKind kind, int zero) {
  TrainingOptions out;
  out.row_tokens = row_tokens;
  out.zero = zero;
  out.optimizer.kind = kind;
  out.optimizer.momentum = 0.5;
  return out;
}

Outcome run(const std::string& fixture, const std::string& mesh, const TrainingOptions& options,
            const std::vector<std::string>& seeds = {}) {
  CompileOptions compile = World::get().options();
  compile.mesh = Mesh::parse(mesh);
  compile.seeds = seeds;
  ThreadPool pool(2);
  TrainingEngine engine(fixture_graph(fixture), compile, options, pool);
  std::map<std::string, Tensor> before;
  for (const TrainedParameter& one : engine.parameters()) before.emplace(one.key, copy(engine.array(one.key)));
  const auto all = documents();
  std::vector<Sample> samples;
  for (const auto& document : all) samples.push_back({document, {}});
  Outcome out;
  const double rate = options.optimizer.kind == OptimizerKind::sgd ? 0.5 : 1e-3;
  for (int step = 0; step < steps; ++step) {
    const PackedStep packed = pack_step(samples, row_tokens, engine.data_ranks());
    double loss = 0;
    for (const auto& rows : packed.rows) loss += engine.accumulate(rows, 1 / static_cast<double>(packed.targets));
    out.losses.push_back(loss);
    out.norms.push_back(engine.gradient_norm());
    engine.update(1, rate);
  }
  for (const TrainedParameter& one : engine.parameters()) {
    Tensor now = copy(engine.array(one.key));
    const Tensor& then = before.at(one.key);
    for (int64_t i = 0; i < now.elements(); ++i) now.as<float>()[i] -= then.as<float>()[i];
    out.updates.emplace(one.key, std::move(now));
  }
  for (int64_t local = 0; local < engine.local_ranks(); ++local)
    out.state_bytes = std::max(out.state_bytes, engine.state_bytes(local));
  for (const PlannedCollective& one : engine.model().plan.collectives)
    ++out.collectives[std::string(kind_name(one.step.kind))];
  return out;
}

double norm(const Tensor& tensor) {
  double sum = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) sum += std::pow(tensor.as<float>()[i], 2);
  return std::sqrt(sum);
}

void expect_same(const Outcome& got, const Outcome& expected) {
  for (int step = 0; step < steps; ++step) {
    const auto i = static_cast<size_t>(step);
    EXPECT_NEAR(got.losses[i], expected.losses[i], 2e-5 * expected.losses[i]) << "step " << step;
    EXPECT_NEAR(got.norms[i], expected.norms[i], 1e-4 * expected.norms[i]) << "step " << step;
  }
  ASSERT_EQ(got.updates.size(), expected.updates.size());
  double largest = 0;
  for (const auto& [key, update] : expected.updates) largest = std::max(largest, norm(update));
  for (const auto& [key, update] : expected.updates) {
    Tensor difference = copy(got.updates.at(key));
    for (int64_t i = 0; i < difference.elements(); ++i) difference.as<float>()[i] -= update.as<float>()[i];
    EXPECT_LE(norm(difference), 1e-4 * norm(update) + 1e-6 * largest) << key;
  }
}

struct Case {
  std::string fixture, mesh;
};

class MeshTraining : public testing::TestWithParam<Case> {};

TEST_P(MeshTraining, IsTrainingOnOneRank) {
  const auto& [fixture, mesh] = GetParam();
  const TrainingOptions whole = training(OptimizerKind::sgd, 0);
  const Outcome expected = run(fixture, "", whole);
  for (int zero = 0; zero < 4; ++zero) {
    SCOPED_TRACE(zero);
    expect_same(run(fixture, mesh, training(OptimizerKind::sgd, zero)), expected);
  }
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* fixture : {"llama-standard23", "gpt2-optimum18", "gemma3-standard23"})
    for (const char* mesh : {"data=2", "data=4", "tensor=2", "data=2,tensor=2"}) out.push_back({fixture, mesh});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshTraining, testing::ValuesIn(cases()), [](const auto& info) {
  std::string out = info.param.fixture + "_" + info.param.mesh;
  for (char& letter : out)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return out;
});

}  // namespace
}  // namespace plait::test
