// Directories of transformers: the logits are PyTorch's (tests/fixtures/huggingface/make.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/safetensors.h"
#include "core/generate/engines.h"
#include "core/model/model_source.h"
#include "importers/huggingface/config.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

std::string folder_of(const std::string& family) { return PLAIT_FIXTURES "/huggingface/" + family; }

std::vector<float> logits_of(const std::string& folder, const std::vector<int32_t>& ids) {
  const Graph graph = import_model(find_model(folder, false), World::get().ops).graph;
  auto engine = make_engine(graph, World::get().options(DType::f32), small_engine());
  EXPECT_TRUE(engine->decoder().recognised) << engine->decoder().why_not;
  return logits(*engine, ids, nullptr, ids.size());
}

class HuggingFace : public testing::TestWithParam<const char*> {};

TEST_P(HuggingFace, LogitsArePyTorchs) {
  const std::string folder = folder_of(GetParam());
  const auto golden = nlohmann::json::parse(std::ifstream(folder + "/golden.json"));
  const auto expected = golden.at("logits").get<std::vector<float>>();
  std::vector<float> got = logits_of(folder, golden.at("ids").get<std::vector<int32_t>>());
  ASSERT_GE(got.size(), expected.size());
  got.erase(got.begin(), got.end() - static_cast<std::ptrdiff_t>(expected.size()));
  EXPECT_LT(relative_error(got, expected), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, HuggingFace,
                         testing::Values("gemma", "gemma2", "gemma3", "gpt2", "gpt_neox", "gpt_neox_serial", "gptj",
                                         "llama", "llama3", "llama_linear", "mistral", "mixtral", "olmo2", "phi3",
                                         "phi3_long", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

/// The text of a model of more than text: its configuration is a part of the file's, its weights have names around theirs.
TEST(HuggingFaceNames, OfAModelWithMoreThanTextAreFound) {
  const std::string from = folder_of("gemma3"), to = testing::TempDir() + "/gemma3_with_images";
  const std::vector<int32_t> some_ids{3, 9, 27, 17, 51, 25, 11, 33, 35, 41};
  for (const auto& [before, drop] :
       {std::pair<std::string, size_t>{"", 6}, {"language_model.", 0}, {"model.language_model.", 6}}) {
    std::filesystem::remove_all(to);
    std::filesystem::create_directories(to);
    const SafeTensors weights = SafeTensors::open(from + "/model.safetensors");
    std::vector<NamedTensor> named;
    std::vector<Tensor> kept;
    for (const auto& [name, entry] : weights.entries()) {
      kept.push_back(weights.tensor(name));
      named.push_back({before + name.substr(drop), kept.back().view()});
    }
    write_safetensors(to + "/model.safetensors", named);
    nlohmann::json config = {{"model_type", "gemma3"}};
    config["text_config"] = nlohmann::json::parse(std::ifstream(from + "/config.json"));
    std::ofstream(to + "/config.json") << config;
    EXPECT_EQ(logits_of(to, some_ids), logits_of(from, some_ids)) << before;
  }
  std::filesystem::remove_all(to);
}

TEST(HuggingFaceConfig, WhatIsNotKnownIsNamed) {
  const auto message = [](const char* text) {
    try {
      huggingface::read_config(nlohmann::json::parse(text));
    } catch (const Error& error) {
      return error.message() + error.hint();
    }
    return std::string();
  };
  EXPECT_NE(message(R"({"model_type": "mamba"})").find("\"mamba\" is not known"), std::string::npos);
  EXPECT_NE(message(R"({"model_type": "mamba"})").find("qwen3"), std::string::npos);
  EXPECT_NE(message(R"({"model_type": "llama"})").find("hidden_size"), std::string::npos);
  EXPECT_NE(message(R"({"model_type": "llama", "hidden_size": -1})").find("hidden_size"), std::string::npos);
  EXPECT_NE(message("[]").find("no JSON object"), std::string::npos);
}

}  // namespace
}  // namespace plait::test
