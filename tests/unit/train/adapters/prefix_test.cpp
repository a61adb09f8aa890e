// Prefix tuning: the results of PEFT and PyTorch, on every mesh, and as files.
#include "tests/unit/support/prefix_goldens.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/train/trained_weights.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

constexpr int64_t prefix_row_tokens = 64;  // of 80 tokens: two micro-batches, with several documents in a row

class Prefixes : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<TrainingEngine> engine(const TrainingOptions& options, const std::string& mesh = "") {
    CompileOptions compile = World::get().options();
    compile.mesh = Mesh::parse(mesh);
    auto out = std::make_unique<TrainingEngine>(fixture_graph(GetParam()), compile, options, pool_);
    load_adapter(*out, directory());
    return out;
  }
  TrainingOptions options() const {
    const auto& said = prefix_goldens()["adamw"];
    TrainingOptions out;
    out.row_tokens = prefix_row_tokens;
    out.begin_with(read_adapter(directory()));
    out.optimizer.beta1 = said["betas"][0];
    out.optimizer.beta2 = said["betas"][1];
    out.optimizer.epsilon = said["eps"];
    out.optimizer.weight_decay = said["weight_decay"];
    return out;
  }
  std::string directory() const { return prefix_directory(GetParam()); }

  double accumulate(TrainingEngine& engine) const {
    std::vector<TrainingSample> samples;
    const std::vector<std::vector<int32_t>> documents = prefix_family(GetParam())["documents"];
    for (const auto& document : documents) samples.push_back({document, {}});
    const PackedStep step = pack_step(samples, prefix_row_tokens, engine.data_ranks());
    double loss = 0;
    for (const auto& rows : step.rows)
      loss += engine.accumulate({.rows = rows, .weight = 1 / static_cast<double>(step.targets)});
    return loss;
  }
  void expect_ten_losses(TrainingEngine& engine) const {
    for (const double expected : prefix_family(GetParam())["adamw_losses"]) {
      EXPECT_NEAR(accumulate(engine), expected, 1e-4 * expected) << "step " << engine.steps();
      engine.update(1, prefix_goldens()["adamw"]["lr"]);
    }
  }

  Folder folder_;
  ThreadPool pool_{2};
};

/// Of the whole prefix: the engine has a part for the keys and one for the values of each layer.
void expect_near_golden(const TrainingEngine& engine, const Tensor& golden) {
  const PrefixShape shape = prefix_shape(engine.model().decoder);
  double norm = 0, error = 0;
  int64_t seen = 0;
  for (int64_t layer = 0; layer < shape.layers; ++layer)
    for (const bool values : {false, true})
      for (const TrainedParameter& one : engine.parameters()) {
        if (one.name != prefix_name(static_cast<size_t>(layer), values)) continue;
        const Tensor got = engine.array(one.key + ".gradient");
        for (int64_t i = 0; i < got.elements(); ++i, ++seen) {
          const int64_t row = i / shape.width(), column = (2 * layer + values) * shape.width() + i % shape.width();
          const float want = golden.as<float>()[row * golden.shape()[1] + column];
          norm += std::pow(want, 2);
          error += std::pow(got.as<float>()[i] - want, 2);
        }
      }
  EXPECT_EQ(seen, golden.elements());
  EXPECT_LE(std::sqrt(error), 1e-4 * std::sqrt(norm));
}

TEST_P(Prefixes, LossAndGradientAreThoseOfPytorch) {
  const auto engine = this->engine(options());
  const double expected = prefix_family(GetParam())["loss"];
  EXPECT_NEAR(accumulate(*engine), expected, 1e-5 * expected);
  expect_near_golden(*engine, prefix_golden(GetParam(), "gradient"));
}

TEST_P(Prefixes, TenLossesAreThoseOfPytorch) {
  const auto engine = this->engine(options());
  expect_ten_losses(*engine);
}

/// The file that is written is the one that PEFT wrote.
TEST_P(Prefixes, FilesAreThoseOfPeft) {
  const auto engine = this->engine(options());
  save_adapter(*engine, folder_.path());
  const AdapterWeights before = read_adapter(directory()), after = read_adapter(folder_.path());
  ASSERT_EQ(after.prefix.shape(), before.prefix.shape());
  EXPECT_EQ(std::memcmp(after.prefix.data(), before.prefix.data(), static_cast<size_t>(before.prefix.bytes())), 0);
  const auto theirs = nlohmann::json::parse(bytes_of(directory() + "/adapter_config.json")),
             ours = nlohmann::json::parse(bytes_of(folder_.path("adapter_config.json")));
  for (const auto& [key, value] : ours.items())
    EXPECT_TRUE(key == "base_model_name_or_path" || value == theirs[key]) << key;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Prefixes, testing::ValuesIn(prefix_fixtures()), name_of_case);

class PrefixesOnMeshes : public Prefixes {};

TEST_P(PrefixesOnMeshes, LearnTheSame) {
  const std::pair<const char*, int> meshes[] = {{"data=2", 0},          {"data=2", 3},
                                                {"tensor=2", 0},        {"data=2,tensor=2", 1},
                                                {"data=2,tensor=2", 2}, {"data=2,tensor=2", 3}};
  for (const auto& [mesh, zero] : meshes) {
    SCOPED_TRACE(testing::Message() << mesh << " zero " << zero);
    TrainingOptions options = this->options();
    options.zero = zero;
    const auto engine = this->engine(options, mesh);
    expect_ten_losses(*engine);
  }
}

TEST_P(PrefixesOnMeshes, AreComputedAgain) {
  TrainingOptions options = this->options();
  const auto kept = this->engine(options);
  options.recompute = Recompute::full;
  const auto again = this->engine(options);
  EXPECT_EQ(accumulate(*kept), accumulate(*again));
  EXPECT_EQ(kept->gradient_norm(), again->gradient_norm());
}

/// Losses of a host's own: the same documents, the same logits, the same gradient.
TEST_P(PrefixesOnMeshes, HaveLossesOfTheHost) {
  TrainingOptions options = this->options();
  options.host_loss = true;
  const auto engine = this->engine(options);
  const std::vector<int32_t> document = prefix_family(GetParam())["documents"][0];
  const std::vector<TrainingSample> samples{{document, {}}};
  const PackedRow row = fill_row(samples, std::vector<int64_t>{0});
  const Tensor got = engine->logits({&row, 1}), want = prefix_golden(GetParam(), "logits");
  float largest = 0, error = 0;
  for (int64_t i = 0; i < got.elements(); ++i) {
    largest = std::max(largest, std::fabs(want.as<float>()[i]));
    error = std::max(error, std::fabs(got.as<float>()[i] - want.as<float>()[i]));
  }
  EXPECT_LE(error, 1e-4F * largest);
}

INSTANTIATE_TEST_SUITE_P(Meshes, PrefixesOnMeshes, testing::Values("llama-standard23", "gemma3-standard23"),
                         name_of_case);

class PrefixFiles : public testing::Test {
 protected:
  TrainingEngine engine(TrainingOptions options, const std::string& fixture = "llama-standard23") {
    options.row_tokens = 32;
    return TrainingEngine(fixture_graph(fixture), World::get().options(), options, pool_);
  }
  static TrainingOptions prefix(int64_t tokens) {
    TrainingOptions out;
    out.prefix.tokens = tokens;
    return out;
  }
  Folder folder_;
  ThreadPool pool_{2};
};

TEST_F(PrefixFiles, ThatDoNotFitAreRefused) {
  TrainingEngine four = engine(prefix(4));
  save_adapter(four, folder_.path("four"));
  TrainingEngine three = engine(prefix(3)), other = engine(prefix(4), "gpt2-optimum18");
  expect_error([&] { load_adapter(three, folder_.path("four")); }, Code::invalid_argument, "prefix of 4", "has 3");
  expect_error([&] { load_adapter(other, folder_.path("four")); }, Code::invalid_argument, "key heads");
  TrainingOptions low_rank;
  low_rank.lora.rank = 4;
  TrainingEngine lora = engine(low_rank);
  expect_error([&] { load_adapter(lora, folder_.path("four")); }, Code::invalid_argument, "r is 0");
  const std::string config = bytes_of(folder_.path("four/adapter_config.json"));
  auto changed = [&](const std::string& from, const std::string& to) {
    std::string out = config;
    out.replace(out.find(from), from.size(), to);
    folder_.write("four/adapter_config.json", out);
    expect_error([&] { read_adapter(folder_.path("four")); }, Code::bad_model, folder_.path("four"));
  };
  changed("\"num_virtual_tokens\": 4", "\"num_virtual_tokens\": 5");
  changed("\"num_virtual_tokens\": 4", "\"num_virtual_tokens\": 0");
  changed("\"num_attention_heads\": 2", "\"num_attention_heads\": 3");
  changed("\"num_layers\": 2", "\"num_layers\": 1000000000");
  changed("\"token_dim\"", "\"token\"");
}

TEST_F(PrefixFiles, AreNoWeightsAndNoLowRank) {
  TrainingEngine four = engine(prefix(4));
  save_adapter(four, folder_.path());
  const Error merge = error_of(
      [&] { tensors_of_adapter(fixture_graph("llama-standard23"), World::get().options(), folder_.path()); });
  EXPECT_EQ(merge.code(), Code::unsupported) << merge.message();
  EXPECT_THAT(merge.hint(), testing::HasSubstr("keep it apart"));
  TrainingOptions both = prefix(4);
  both.lora.rank = 2;
  expect_error([&] { engine(both); }, Code::invalid_argument, "not both");
}

}  // namespace
}  // namespace plait::test
