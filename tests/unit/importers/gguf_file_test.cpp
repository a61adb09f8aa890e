// GGUF files: the numbers in blocks are those that the gguf package reads (tests/fixtures/gguf/make_blocks.py), weights for ONNX stand for
// the same ones, and damaged files are refused.
#include "importers/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/base/error.h"
#include "importers/gguf/blocks.h"
#include "importers/gguf/gguf_model.h"
#include "importers/gguf/tokenizer.h"
#include "tests/unit/support/gguf_writer.h"

namespace plait::test {
namespace {

using gguf::Type;

std::shared_ptr<Blob> blob_of(const std::string& bytes) { return copy_blob(std::as_bytes(std::span(bytes))); }

std::string from_hex(const std::string& digits) {
  std::string out;
  for (size_t i = 0; i < digits.size(); i += 2) out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return out;
}

class Blocks : public testing::TestWithParam<std::pair<const char*, Type>> {};

TEST_P(Blocks, AreReadAsTheirAuthorsDo) {
  const auto golden =
      nlohmann::json::parse(std::ifstream(PLAIT_SOURCE_DIR "/tests/fixtures/gguf/blocks.json")).at(GetParam().first);
  const std::string bytes = from_hex(golden.at("bytes"));
  const auto expected = golden.at("values").get<std::vector<float>>();
  EXPECT_EQ(gguf::type_name(GetParam().second), GetParam().first);
  GgufWriter writer;
  writer.tensor("x", GetParam().second, {2, static_cast<int64_t>(expected.size()) / 2}, bytes);
  const gguf::File file(blob_of(writer.bytes()));
  const gguf::Entry& entry = file.tensors().at("x");
  const Tensor read = gguf::dequantised(entry);
  ASSERT_EQ(read.elements(), static_cast<int64_t>(expected.size()));
  const auto* values = reinterpret_cast<const float*>(read.data());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(values[i], expected[i]) << i;

  // What MatMulNBits makes of the codes.
  const decoder::Weight weight = gguf::weight_of(entry);
  ASSERT_TRUE(weight.blocks);
  const auto& [bits, block, scales, zeros] = *weight.blocks;
  const auto* codes = reinterpret_cast<const uint8_t*>(weight.tensor.data());
  for (size_t i = 0; i < expected.size(); ++i) {
    const size_t group = i / static_cast<size_t>(block);
    const int code = bits == 8 ? codes[i] : codes[i / 2] >> i % 2 * 4 & 15;
    const float zero =
        zeros ? reinterpret_cast<const float*>(zeros->data())[group] : static_cast<float>(1 << (bits - 1));
    const float scale = reinterpret_cast<const float*>(scales.data())[group];
    EXPECT_NEAR(scale * (static_cast<float>(code) - zero), expected[i], 1e-5 + 1e-5 * std::abs(scale * zero)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Gguf, Blocks,
                         testing::Values(std::pair{"q4_0", Type::q4_0}, std::pair{"q4_1", Type::q4_1},
                                         std::pair{"q5_0", Type::q5_0}, std::pair{"q5_1", Type::q5_1},
                                         std::pair{"q8_0", Type::q8_0}, std::pair{"q4_k", Type::q4_k},
                                         std::pair{"q5_k", Type::q5_k}, std::pair{"q6_k", Type::q6_k}),
                         [](const auto& info) { return std::string(info.param.first); });

/// A file with each kind of metadata, and two tensors.
std::string some_file() {
  GgufWriter out;
  out.integer("a.integer", 7);
  out.real("a.real", 0.5F);
  out.text("a.text", "hello");
  out.texts("a.texts", {"x", "", "yz"});
  out.numbers<int32_t>("a.numbers", {1, -2, 3});
  out.floats("one", {2, 3}, {1, 2, 3, 4, 5, 6});
  out.floats("two", {1}, {7});
  return out.bytes();
}

TEST(GgufFile, MetadataAndTensorsAreReadBack) {
  const gguf::File file(blob_of(some_file()));
  EXPECT_EQ(file.integer("a.integer"), 7);
  EXPECT_EQ(file.real("a.real"), 0.5);
  EXPECT_EQ(file.real("a.integer"), 7) << "a whole number is a number";
  EXPECT_EQ(file.text("a.text"), "hello");
  EXPECT_EQ(file.texts("a.texts"), (std::vector<std::string>{"x", "", "yz"}));
  EXPECT_EQ(file.integer_or("a.nothing", 3), 3);
  EXPECT_THROW(file.text("a.integer"), Error);
  EXPECT_THROW(file.integer("a.nothing"), Error);
  EXPECT_EQ(file.tensors().at("one").shape, (Shape{2, 3})) << "row-major";
  EXPECT_EQ(reinterpret_cast<const float*>(gguf::dequantised(file.tensors().at("two")).data())[0], 7);
}

TEST(GgufFile, DamageIsRefused) {
  const std::string good = some_file();
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_THROW(gguf::File(blob_of(good.substr(0, length))), Error) << length;
  // Any byte may be any other: an error, or a file that is read within its bounds.
  std::mt19937 random(3);
  for (int round = 0; round < 4000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 3; ++i) bad[random() % bad.size()] = static_cast<char>(random());
    try {
      const gguf::File file(blob_of(bad));
      for (const auto& [name, entry] : file.tensors())
        if (entry.bytes < 1 << 20) gguf::weight_of(entry);
    } catch (const Error&) {
    }
  }
}

/// llama.cpp knows the ends of turns by their names, whatever their kind is; a template for tools stands next to the other.
TEST(GgufFile, EndsOfTurnsAndTemplatesAreFound) {
  const auto files = [](int32_t kind, const std::vector<std::string>& words) {
    GgufWriter out;
    out.text("tokenizer.ggml.model", "gpt2");
    out.texts("tokenizer.ggml.tokens", words);
    out.numbers<int32_t>("tokenizer.ggml.token_type", std::vector<int32_t>(words.size(), kind));
    out.texts("tokenizer.ggml.merges", {});
    out.text("tokenizer.chat_template", "plain");
    out.text("tokenizer.chat_template.tool_use", "tools");
    return gguf::tokenizer_files(gguf::File(blob_of(out.bytes())), 8);
  };
  for (const int32_t kind : {1, 3, 4}) {  // normal, control, user-defined
    const auto made = files(kind, {"a", "<|im_end|>", "b", "<end_of_turn>"});
    EXPECT_EQ(nlohmann::json::parse(made.generation)["eos_token_id"], (nlohmann::json{1, 3})) << kind;
    const auto added = nlohmann::json::parse(made.tokenizer)["added_tokens"];
    ASSERT_GE(added.size(), 2u);
    for (const auto& token : added)
      if (token["id"] == 1 || token["id"] == 3) EXPECT_TRUE(token["special"]) << token;
    const auto templates = nlohmann::json::parse(made.config)["chat_template"];
    EXPECT_THAT(templates.dump(),
                testing::AllOf(testing::HasSubstr(R"("template":"tools")"), testing::HasSubstr("plain")));
  }
  // Harmony's <|end|> only ends a message.
  EXPECT_EQ(nlohmann::json::parse(files(3, {"<|end|>", "<|return|>", "<|call|>"}).generation)["eos_token_id"],
            (nlohmann::json{1, 2}));
}

TEST(GgufFile, WhatIsNotKnownIsNamed) {
  const auto message = [](const GgufWriter& writer) {
    try {
      gguf::model_files({blob_of(writer.bytes())});
    } catch (const Error& error) {
      return error.message() + error.hint();
    }
    return std::string();
  };
  GgufWriter type;
  type.tensor("strange", static_cast<Type>(19), {32}, std::string(32, 'x'));
  EXPECT_THAT(message(type), testing::AllOf(testing::HasSubstr("strange"), testing::HasSubstr("type 19"),
                                            testing::HasSubstr("q4_k")));
  GgufWriter architecture;
  architecture.text("general.architecture", "mamba");
  EXPECT_THAT(message(architecture), testing::AllOf(testing::HasSubstr("mamba"), testing::HasSubstr("llama")));
  GgufWriter incomplete;
  incomplete.text("general.architecture", "llama");
  EXPECT_THAT(message(incomplete), testing::HasSubstr("llama.embedding_length"));
}

}  // namespace
}  // namespace plait::test
