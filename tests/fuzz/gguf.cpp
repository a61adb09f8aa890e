// Whatever the bytes, the reader of GGUF files throws plait::Error or gives the files of a model.
#include "importers/gguf/gguf_model.h"

#include "tests/fuzz/fuzz.h"
#include "tests/unit/support/gguf_writer.h"

namespace {

/// A decoder of one layer and a tokenizer of four tokens.
std::string small_model(const std::string& architecture, plait::gguf::Type type) {
  plait::test::GgufWriter out;
  const std::string prefix = architecture + ".";
  out.text("general.architecture", architecture);
  for (const auto& [key, value] : {std::pair{"embedding_length", 32U},
                                   {"attention.head_count", 2U},
                                   {"attention.head_count_kv", 1U},
                                   {"feed_forward_length", 32U},
                                   {"block_count", 1U},
                                   {"context_length", 64U}})
    out.integer(prefix + key, value);
  if (architecture == "gemma3") out.integer(prefix + "attention.sliding_window", 8U);  // the others have none
  out.real(prefix + (architecture == "gpt2" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
           1e-5F);
  out.text("tokenizer.ggml.model", "llama");
  out.texts("tokenizer.ggml.tokens", {"<unk>", "a", "b", "ab"});
  out.numbers<float>("tokenizer.ggml.scores", {0, -1, -2, -3});
  out.numbers<int32_t>("tokenizer.ggml.token_type", {2, 1, 1, 1});
  out.integer("tokenizer.ggml.eos_token_id", 0);
  out.text("tokenizer.chat_template", "{{ messages }}");
  const auto matrix = [&](const std::string& name, int64_t n) {
    const int64_t bytes = type == plait::gguf::Type::f32 ? 128 : 20;
    out.tensor(name + ".weight", type, {n, 32}, std::string(static_cast<size_t>(n * bytes), '\1'));
  };
  for (const char* norm :
       {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm", "blk.0.post_attention_norm", "blk.0.post_ffw_norm"})
    out.floats(std::string(norm) + ".weight", {32}, std::vector<float>(32, 1));
  for (const char* norm : {"blk.0.attn_q_norm", "blk.0.attn_k_norm"})
    out.floats(std::string(norm) + ".weight", {16}, std::vector<float>(16, 1));
  matrix("token_embd", 4), matrix("position_embd", 64), matrix("blk.0.attn_q", 32), matrix("blk.0.attn_k", 16),
      matrix("blk.0.attn_v", 16);
  matrix("blk.0.attn_output", 32), matrix("blk.0.ffn_gate", 32), matrix("blk.0.ffn_up", 32),
      matrix("blk.0.ffn_down", 32);
  return out.bytes();
}

}  // namespace

std::vector<std::string> plait::fuzz::seeds() {
  std::vector<std::string> out;
  for (const char* architecture : {"llama", "qwen3", "gemma3", "gpt2"})
    for (const gguf::Type type : {gguf::Type::f32, gguf::Type::q4_1}) out.push_back(small_model(architecture, type));
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plait;
  try {
    const auto files = gguf::model_files({copy_blob({reinterpret_cast<const std::byte*>(data), size})});
    if (!files.empty()) ++fuzz::accepted;
  } catch (const Error& error) {
    fuzz::check_error(error);
  }
  return 0;
}
