// Directories of transformers: the logits are PyTorch's (tests/fixtures/huggingface/make.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/generate/engines.h"
#include "core/model/model_source.h"
#include "importers/huggingface/config.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

std::string folder_of(const std::string& family) { return PLAIT_FIXTURES "/huggingface/" + family; }

class HuggingFace : public testing::TestWithParam<const char*> {};

TEST_P(HuggingFace, LogitsArePyTorchs) {
  const std::string folder = folder_of(GetParam());
  const auto golden = nlohmann::json::parse(std::ifstream(folder + "/golden.json"));
  const auto ids = golden.at("ids").get<std::vector<int32_t>>();
  const auto expected = golden.at("logits").get<std::vector<float>>();
  const Graph graph = import_model(find_model(folder, false), World::get().ops).graph;
  auto engine = make_engine(graph, World::get().options(DType::f32), small_engine());
  EXPECT_TRUE(engine->decoder().recognised) << engine->decoder().why_not;
  std::vector<float> got = logits(*engine, ids, nullptr, ids.size());
  ASSERT_GE(got.size(), expected.size());
  got.erase(got.begin(), got.end() - static_cast<std::ptrdiff_t>(expected.size()));
  EXPECT_LT(relative_error(got, expected), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Families, HuggingFace,
                         testing::Values("gemma", "gemma2", "gemma3", "gpt2", "gpt_neox", "gpt_neox_serial", "gptj", "llama", "llama3",
                                         "llama_linear", "mistral", "olmo2", "phi3", "phi3_long", "qwen2", "qwen3"),
                         [](const auto& info) { return std::string(info.param); });

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
