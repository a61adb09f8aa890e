// Which of a model's files is the model, and what its configurations give.
#include "core/model/model_source.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/base/error.h"
#include "core/base/text.h"
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

/// GenerationConfig().to_dict() of transformers 4.57.6.
constexpr const char* generation_defaults =
    R"({"max_length": 20, "max_new_tokens": null, "min_length": 0, "min_new_tokens": null, "early_stopping": false,
"max_time": null, "stop_strings": null, "do_sample": false, "num_beams": 1, "use_cache": true,
"cache_implementation": null, "cache_config": null, "return_legacy_cache": null, "prefill_chunk_size": null,
"temperature": 1.0, "top_k": 50, "top_p": 1.0, "min_p": null, "typical_p": 1.0, "epsilon_cutoff": 0.0,
"eta_cutoff": 0.0, "repetition_penalty": 1.0, "encoder_repetition_penalty": 1.0, "length_penalty": 1.0,
"no_repeat_ngram_size": 0, "bad_words_ids": null, "renormalize_logits": false, "forced_bos_token_id": null,
"forced_eos_token_id": null, "remove_invalid_values": false, "exponential_decay_length_penalty": null,
"suppress_tokens": null, "begin_suppress_tokens": null, "sequence_bias": null, "token_healing": false,
"guidance_scale": null, "watermarking_config": null, "num_return_sequences": 1, "output_attentions": false,
"output_hidden_states": false, "output_scores": false, "output_logits": null,
"return_dict_in_generate": false, "pad_token_id": null, "bos_token_id": null, "eos_token_id": null,
"encoder_no_repeat_ngram_size": 0, "decoder_start_token_id": null, "is_assistant": false,
"num_assistant_tokens": 20, "num_assistant_tokens_schedule": "constant",
"assistant_confidence_threshold": 0.4, "prompt_lookup_num_tokens": null, "max_matching_ngram_size": null,
"assistant_early_exit": null, "assistant_lookbehind": 10, "target_lookbehind": 10, "disable_compile": false,
"low_memory": null, "penalty_alpha": null, "dola_layers": null, "diversity_penalty": 0.0,
"num_beam_groups": 1, "constraints": null, "force_words_ids": null, "_from_model_config": false,
"transformers_version": "4.57.6"})";

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
  EXPECT_EQ(defaults(R"({"suppress_tokens": [3], "bad_words_ids": [[5], [6, 7]], "stop_strings": ["a", "b"],
                         "sequence_bias": [[[4], -2.5]]})"),
            "suppress_tokens=3,5 stop=a stop=b logit_bias=4:-2.5 ");
  const auto of_config = memory_files(files({{"config.json", R"({"do_sample": true, "top_k": 7, "num_beams": 2})"}}));
  ASSERT_EQ(read_model_config(*of_config).request_defaults.size(), 2);
  EXPECT_EQ(read_model_config(*of_config).request_defaults[1].value, "7");
  EXPECT_EQ(read_model_config(*of_config).warnings.size(), 1);
  // Each field of transformers' class (4.57) is taken, without effect or told; so is an unknown one.
  const auto warnings = [](const std::string& text) {
    return read_model_config(*memory_files(files({{"generation_config.json", text}}))).warnings;
  };
  for (const char* field : {"num_beams", "no_repeat_ngram_size", "penalty_alpha", "typical_p", "guidance_scale",
                            "num_beam_groups", "diversity_penalty", "epsilon_cutoff", "eta_cutoff", "token_healing",
                            "encoder_repetition_penalty", "encoder_no_repeat_ngram_size", "forced_eos_token_id",
                            "watermarking_config", "constraints", "force_words_ids", "dola_layers",
                            "exponential_decay_length_penalty", "made_up"}) {
    ASSERT_EQ(warnings(cat("{\"", field, "\": 4}")).size(), 1) << field;
    EXPECT_NE(warnings(cat("{\"", field, "\": 4}"))[0].find(field), std::string::npos);
  }
  EXPECT_EQ(warnings(R"({"bad_words_ids": [[6, 7]]})").size(), 1);
  EXPECT_TRUE(warnings(generation_defaults).empty());
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
