// Directories of transformers: the logits are PyTorch's (tests/fixtures/huggingface/make.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/safetensors.h"
#include "core/base/text.h"
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

/// Each field left out in turn, and set to other values: transformers' logits, or its error (tests/fixtures/huggingface/fields.py).
class HuggingFaceFields : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string from = folder_of(GetParam());
    folder_ = testing::TempDir() + "/fields_" + GetParam();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::filesystem::copy(from + "/model.safetensors", folder_);
    config_ = nlohmann::json::parse(std::ifstream(from + "/config.json"));
    golden_ = nlohmann::json::parse(std::ifstream(from + "/golden.json"));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// The logits of the last id, or the error's text.
  std::vector<float> logits(const nlohmann::json& config, std::string& refused) const {
    std::ofstream(folder_ + "/config.json") << config;
    try {
      std::vector<float> out = logits_of(folder_, golden_.at("ids"));
      out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(golden_.at("logits").size()));
      return out;
    } catch (const Error& error) {
      refused = error.message() + error.hint();
      return {};
    }
  }
  /// Whether these give the decoder of the file as it was, so that nothing has to be computed.
  bool is_same_decoder(const nlohmann::json& config) const {
    const auto text_of = [](const nlohmann::json& json) {
      const huggingface::Model model = huggingface::read_config(json);
      const decoder::DecoderSpec& spec = model.spec;
      std::string out;
      for (const double one :
           {static_cast<double>(spec.hidden), static_cast<double>(spec.heads), static_cast<double>(spec.kv_heads),
            static_cast<double>(spec.head_dim), static_cast<double>(spec.ffn), static_cast<double>(spec.vocabulary),
            static_cast<double>(spec.norm), spec.epsilon, static_cast<double>(spec.gated), spec.query_scale,
            spec.attention_cap, spec.logit_cap, static_cast<double>(spec.tied), static_cast<double>(spec.join),
            static_cast<double>(spec.experts ? spec.experts->used : 0),
            static_cast<double>(spec.experts && spec.experts->normalised), static_cast<double>(model.biases.qkv),
            static_cast<double>(model.biases.output), static_cast<double>(model.biases.mlp)})
        out += cat(one, " ");
      for (const int64_t one : spec.windows) out += cat(one, " ");
      for (const double one : spec.query_scales) out += cat(one, " ");
      if (spec.experts)
        for (const bool one : spec.experts->layers) out += one ? "e" : "d";
      return out + spec.activation;
    };
    const auto ropes_of = [](const nlohmann::json& json) { return huggingface::read_config(json).spec.ropes; };
    try {
      return text_of(config) == text_of(config_) && ropes_of(config) == ropes_of(config_);
    } catch (const Error&) {
      return false;
    }
  }

  std::string folder_;
  nlohmann::json config_, golden_;
};

TEST_P(HuggingFaceFields, AreTransformers) {
  const auto rows = nlohmann::json::parse(std::ifstream(PLAIT_FIXTURES "/huggingface_fields/fields.json")).at(GetParam());
  const auto usual = golden_.at("logits").get<std::vector<float>>();
  int refused_alone = 0;
  for (const nlohmann::json& row : rows) {
    const std::string field = row.at("field");
    // Version 4 leaves a head that the file has aside; version 5 takes it (AHeadOfItsOwnIsTaken).
    if (field == "tie_word_embeddings" && row.value("value", false)) continue;
    // Version 5 reads it as Google meant it.
    if (field == "hidden_act" && std::string(GetParam()) == "gemma" && row.value("value", "") == "gelu") continue;
    // Factors are chosen by the context, not by the prompt's length (docs/convert.md).
    if (field == "original_max_position_embeddings" && row.value("value", 0) == 32) continue;
    nlohmann::json config = config_;
    config.erase(field);
    if (row.contains("value")) config[field] = row.at("value");
    const std::string what = cat(field, row.contains("value") ? row.at("value").dump() : " left out");
    if (row.at("logits") == "same" && is_same_decoder(config)) continue;
    std::string refused;
    const std::vector<float> got = logits(config, refused);
    if (row.at("logits") == "refused") {
      // Some classes of version 4 take only some kinds; a default padding beyond the small vocabulary is no fault here.
      const nlohmann::json value = row.value("value", nlohmann::json());
      const bool known =
          field == "rope_scaling" &&
          (value.size() == 2 ? value.value("type", value.value("rope_type", "")) != "" : value.size() > 2);
      if (refused.empty() && (field == "pad_token_id" || (known && value.value("rope_type", "") != "yes"))) continue;
      EXPECT_NE(refused, "") << what;
      continue;
    }
    if (!refused.empty()) {
      // An odd number of rotated elements follows from the number of heads.
      EXPECT_TRUE(refused.find(field) != std::string::npos || field == "num_attention_heads")
          << what << ": " << refused;
      ++refused_alone;
      continue;
    }
    const auto expected = row.at("logits") == "same" ? usual : row.at("logits").get<std::vector<float>>();
    EXPECT_LT(relative_error(got, expected), 1e-4) << what;
  }
  EXPECT_LE(refused_alone, 13);  // experts with other activations
}

INSTANTIATE_TEST_SUITE_P(Families, HuggingFaceFields,
                         testing::Values("gemma", "gemma2", "gemma3", "gpt2", "gpt_neox", "gpt_neox_serial", "gptj",
                                         "llama", "llama3", "llama_linear", "mistral", "mixtral", "olmo2", "phi3",
                                         "phi3_long", "qwen2", "qwen2_full", "qwen2_moe", "qwen3", "qwen3_moe"),
                         [](const auto& info) { return std::string(info.param); });

/// A model of more than text, with a configuration of its text that leaves out what the class has: Google's files of Gemma 3.
TEST(HuggingFaceConfig, TextWithoutFieldsHasThoseOfItsClass) {
  const auto spec =
      huggingface::read_config(
          nlohmann::json::parse(
              R"({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
                            "num_hidden_layers": 34, "sliding_window": 1024,
                            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})"))
          .spec;
  EXPECT_EQ(spec.heads, 8);
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.head_dim, 256);
  EXPECT_EQ(spec.vocabulary, 262208);
  EXPECT_EQ(spec.norm, decoder::Norm::rms);
  EXPECT_EQ(spec.epsilon, 1e-6);
  EXPECT_EQ(spec.activation, "gelu_tanh");
  EXPECT_EQ(spec.query_scale, 1 / 16.0);
  EXPECT_TRUE(spec.tied);
  EXPECT_EQ(spec.windows[4], 1024);
  EXPECT_EQ(spec.windows[5], 0);
  EXPECT_EQ(spec.ropes[5].factor, 8);
  EXPECT_EQ(spec.ropes[5].base, 1e6);
  EXPECT_EQ(spec.ropes[4].factor, 1);
  EXPECT_EQ(spec.ropes[4].base, 1e4);
  EXPECT_EQ(huggingface::read_config(nlohmann::json::parse(R"({"model_type": "gemma3"})")).spec.layers(), 26);
}

/// In version 5 of transformers the fields of positions are an object, for each kind of layer if these differ.
TEST(HuggingFaceConfig, RopeParametersAreRead) {
  const auto ropes =
      huggingface::read_config(nlohmann::json::parse(R"({"model_type": "gemma3_text", "rope_parameters":
      {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2000000.0},
       "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}}})"))
          .spec.ropes;
  EXPECT_EQ(ropes[5].factor, 8);
  EXPECT_EQ(ropes[5].base, 2e6);
  EXPECT_EQ(ropes[0].factor, 1);
  EXPECT_EQ(ropes[0].base, 2e4);
}

TEST(HuggingFaceFiles, AreThoseThatTransformersReads) {
  const std::string from = folder_of("qwen2_full"), to = testing::TempDir() + "/old_shards";
  const auto golden = nlohmann::json::parse(std::ifstream(from + "/golden.json"));
  const std::vector<int32_t> ids = golden.at("ids");
  std::filesystem::remove_all(to);
  std::filesystem::create_directories(to);
  std::filesystem::copy(from + "/config.json", to);
  const SafeTensors weights = SafeTensors::open(from + "/model.safetensors");
  std::vector<Tensor> kept;
  std::vector<NamedTensor> first, second, zeros;
  for (const auto& [name, entry] : weights.entries()) {
    kept.push_back(weights.tensor(name));
    (name < "model.layers.1" ? first : second).push_back({name, kept.back().view()});
    kept.push_back(Tensor(kept.back().dtype(), kept.back().shape()));
    zeros.push_back({name, kept.back().view()});
  }
  nlohmann::json index = {{"weight_map", nlohmann::json::object()}};
  for (const auto& one : first) index["weight_map"][one.name] = "model-00001-of-00002.safetensors";
  for (const auto& one : second) index["weight_map"][one.name] = "model-00002-of-00002.safetensors";
  write_safetensors(to + "/model-00001-of-00002.safetensors", first);
  write_safetensors(to + "/model-00002-of-00002.safetensors", second);
  write_safetensors(to + "/old-00001-of-00001.safetensors", zeros);
  EXPECT_THROW(logits_of(to, ids), Error);  // nothing tells which of the two
  std::ofstream(to + "/model.safetensors.index.json") << index;
  const std::vector<float> expected = logits_of(from, ids);
  EXPECT_EQ(logits_of(to, ids), expected);
  // A whole file comes first.
  std::filesystem::rename(to + "/old-00001-of-00001.safetensors", to + "/model.safetensors");
  EXPECT_NE(logits_of(to, ids), expected);
  std::filesystem::remove_all(to);
}

/// transformers 5 takes a head that differs from the table, whatever the configuration has.
TEST(HuggingFaceFiles, AHeadOfItsOwnIsTaken) {
  const std::string from = folder_of("qwen2"), to = testing::TempDir() + "/own_head";
  const auto golden = nlohmann::json::parse(std::ifstream(from + "/golden.json"));
  std::filesystem::remove_all(to);
  std::filesystem::create_directories(to);
  std::filesystem::copy(from + "/model.safetensors", to);
  auto config = nlohmann::json::parse(std::ifstream(from + "/config.json"));
  config["tie_word_embeddings"] = true;
  config["made_up"] = 3;
  std::ofstream(to + "/config.json") << config;
  EXPECT_EQ(logits_of(to, golden.at("ids")), logits_of(from, golden.at("ids")));
  const std::vector<std::string> warnings = import_model(find_model(to, false), World::get().ops).warnings;
  ASSERT_EQ(warnings.size(), 2);
  EXPECT_NE(warnings[0].find("made_up"), std::string::npos);
  EXPECT_NE(warnings[1].find("tie_word_embeddings"), std::string::npos);
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
  EXPECT_NE(message(R"({"model_type": "llama", "hidden_size": -1})").find("hidden_size"), std::string::npos);
  EXPECT_NE(message("[]").find("no JSON object"), std::string::npos);
  // Fields that change results.
  for (const auto& [config, name] :
       {std::pair{R"({"model_type": "gpt2", "add_cross_attention": true})", "add_cross_attention"},
        {R"({"model_type": "gpt2", "pruned_heads": {"0": [1]}})", "pruned_heads"},
        {R"({"model_type": "llama", "is_encoder_decoder": true})", "is_encoder_decoder"},
        {R"({"model_type": "gemma3_text", "use_bidirectional_attention": true})", "use_bidirectional_attention"},
        {R"({"model_type": "llama", "hidden_act": "mish"})", "mish"},
        {R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 4.0}})", "low_freq_factor"},
        {R"({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]})", "SequenceClassification"},
        {R"({"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}})", "gptq"},
        {R"({"model_type": "llama", "quantization_config": {"quant_method": "awq"}})", "awq"},
        {R"({"model_type": "llama", "quantization_config": {"quant_method": "fp8"}})", "fp8"},
        {R"({"model_type": "llama", "quantization_config": {"load_in_4bit": true}})", "bitsandbytes"},
        {R"({"model_type": "llama", "compression_config": {}})", "compressed-tensors"},
        {R"({"model_type": "llama", "quantization": {"group_size": 64, "bits": 4}})", "mlx"},
        {R"({"model_type": "gemma3", "text_config": {}, "quantization_config": {"quant_method": "gptq"}})", "gptq"}})
    EXPECT_NE(message(config).find(name), std::string::npos) << message(config);
}

}  // namespace
}  // namespace plait::test
