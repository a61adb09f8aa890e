// Which of a model's files is the model, and what its configurations give.
#include "core/model/model_source.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/base/error.h"
#include "core/model/model_config.h"

namespace plait {
namespace {

std::vector<NamedBlob> files(const std::vector<std::pair<std::string, std::string>>& contents) {
  std::vector<NamedBlob> out;
  for (const auto& [name, text] : contents)
    out.push_back({name, copy_blob({reinterpret_cast<const std::byte*>(text.data()), text.size()})});
  return out;
}
std::string model_among(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> contents;
  for (const std::string& name : names) contents.emplace_back(name, "{}");
  return find_model(files(contents)).file;
}
Code code_of(const std::vector<std::pair<std::string, std::string>>& contents) {
  try {
    find_model(files(contents));
  } catch (const Error& error) {
    return error.code();
  }
  return Code::internal;
}

TEST(ModelSource, ChoosesTheModelsFile) {
  EXPECT_EQ(model_among({"a.onnx", "model.onnx"}), "model.onnx");
  EXPECT_EQ(model_among({"decoder_model.onnx", "decoder_with_past_model.onnx"}), "decoder_with_past_model.onnx");
  EXPECT_EQ(model_among({"config.json", "only.onnx"}), "only.onnx");
  const std::string named = R"({"model": {"decoder": {"filename": "b.onnx"}}})";
  EXPECT_EQ(find_model(files({{"genai_config.json", named}, {"model.onnx", ""}, {"b.onnx", ""}})).file, "b.onnx");
  EXPECT_EQ(code_of({{"genai_config.json", named}, {"model.onnx", ""}}), Code::not_found);
  EXPECT_EQ(code_of({{"config.json", "{}"}}), Code::not_found);
  EXPECT_EQ(code_of({{"a.onnx", ""}, {"b.onnx", ""}}), Code::invalid_argument);
  EXPECT_EQ(code_of({{"../a.onnx", ""}}), Code::invalid_argument);
  EXPECT_EQ(code_of({{"genai_config.json", "["}, {"model.onnx", ""}}), Code::bad_model);
}

TEST(ModelSource, DefaultsOfRequestsComeFromTheGenerationConfig) {
  auto defaults = [](const std::string& text) {
    std::string out;
    const auto only = memory_files(files({{"generation_config.json", text}}));
    for (const RequestDefault& one : read_model_config(*only).request_defaults)
      out += one.option + "=" + one.value + " ";
    return out;
  };
  EXPECT_EQ(defaults(R"({"do_sample": true, "top_p": 0.9})"), "temperature=1 top_k=50 top_p=0.9 ");
  EXPECT_EQ(defaults(R"({"temperature": 0.6, "max_new_tokens": 7})"), "max_tokens=7 ");
  EXPECT_EQ(read_model_config(*memory_files({})).context, 0);
  const auto sees = memory_files(files({{"config.json", R"({"image_token_index": 7, "audio_token_id": 9})"}}));
  EXPECT_EQ(read_model_config(*sees).input_tokens, (std::vector<int32_t>{7, 9}));
  const auto genai = memory_files(files({{"genai_config.json", R"({"model": {"image_token_id": 5, "vision": {"filename": "v.onnx",
      "spatial_merge_size": 2, "tokens_per_second": 2.0}}})"}}));
  const ModelConfig config = read_model_config(*genai);
  EXPECT_EQ(config.image_tokens, std::vector<int32_t>{5});
  EXPECT_EQ(config.merge, 2);
  EXPECT_EQ(config.tokens_per_second, 2);
  EXPECT_EQ(config.encoder_files, std::vector<std::string>{"v.onnx"});
}

}  // namespace
}  // namespace plait
