#include "importers/gguf/architectures.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/decoder/yarn.h"

namespace plait::gguf {
namespace {

using decoder::DecoderSpec;
using decoder::Rope;

/// What the metadata do not contain: it belongs to the architecture.
struct Architecture {
  const char* name;
  bool interleaved = false;  ///< ggml's "normal" rotary embedding
  void (*adjust)(const File&, const std::string& prefix, DecoderSpec&) = nullptr;
};

int64_t checked(int64_t number, const std::string& key, int64_t most) {
  if (number < 1 || number > most)
    throw Error(Code::bad_model, cat("the metadata ", key, " is ", number), "the file is damaged");
  return number;
}

void adjust_gelu_of_gemma(DecoderSpec& spec) {
  spec.activation = "gelu_tanh";
  spec.embed_scale = std::sqrt(static_cast<double>(spec.hidden));
}

/// All layers but each `every`-th see a window. Files may have a number of their own, or one for each layer.
void set_windows(const File& file, const std::string& prefix, DecoderSpec& spec, int64_t window, int64_t every) {
  const std::string key = prefix + "attention.sliding_window_pattern";
  const auto found = file.metadata().find(key);
  const auto* each = found == file.metadata().end() ? nullptr : std::get_if<std::vector<int64_t>>(&found->second);
  if (!each) every = checked(file.integer_or(key, every), key, 1 << 16);
  else if (each->size() != spec.windows.size())
    throw Error(Code::bad_model, cat("the metadata ", key, " are not one for each layer"));
  for (size_t layer = 0; layer < spec.windows.size(); ++layer) {
    const bool full = each ? (*each)[layer] == 0 : (static_cast<int64_t>(layer) + 1) % every == 0;
    spec.windows[layer] = full ? 0 : window;
  }
}

void gemma(const File&, const std::string&, DecoderSpec& spec) { adjust_gelu_of_gemma(spec); }

void gemma2(const File& file, const std::string& prefix, DecoderSpec& spec) {
  adjust_gelu_of_gemma(spec);
  spec.post_norms = true;
  spec.attention_cap = file.real_or(prefix + "attn_logit_softcapping", 50);
  spec.logit_cap = file.real_or(prefix + "final_logit_softcapping", 30);
  set_windows(file, prefix, spec, file.integer_or(prefix + "attention.sliding_window", 4096), 2);
  // The 27B model divides by its own number.
  if (spec.layers() == 46)
    spec.query_scale = 1 / std::sqrt(static_cast<double>(spec.hidden) / static_cast<double>(spec.heads));
}

void gemma3(const File& file, const std::string& prefix, DecoderSpec& spec) {
  adjust_gelu_of_gemma(spec);
  spec.post_norms = spec.qk_norm = true;
  set_windows(file, prefix, spec, file.integer(prefix + "attention.sliding_window"), 6);
  for (size_t layer = 0; layer < spec.windows.size(); ++layer) {
    if (!spec.windows[layer]) continue;
    spec.ropes[layer] = {.base = file.real_or(prefix + "rope.freq_base_swa", 10000), .dims = spec.ropes[layer].dims};
  }
  if (spec.layers() == 62)
    spec.query_scale = 1 / std::sqrt(static_cast<double>(spec.hidden) / static_cast<double>(spec.heads));
}

void qwen3(const File&, const std::string&, DecoderSpec& spec) { spec.qk_norm = true; }

void qwen2_moe(const File& file, const std::string& prefix, DecoderSpec& spec) {
  if (!spec.experts) return;
  spec.experts->normalised = file.integer_or(prefix + "expert_weights_norm", 0) != 0;
  spec.experts->shared_ffn = checked(file.integer_or(prefix + "expert_shared_feed_forward_length", spec.ffn),
                                     prefix + "expert_shared_feed_forward_length", 1 << 24);
}

void olmo2(const File&, const std::string&, DecoderSpec& spec) {
  spec.pre_norms = false;
  spec.post_norms = spec.qk_norm = spec.qk_norm_whole = true;
}

void phi3(const File& file, const std::string& prefix, DecoderSpec& spec) {
  const int64_t window = file.integer_or(prefix + "attention.sliding_window", 0);
  if (window > 0 && window < spec.context) std::fill(spec.windows.begin(), spec.windows.end(), window);
}

void gpt2(const File&, const std::string&, DecoderSpec& spec) {
  spec.activation = "gelu_tanh";
  spec.gated = false;
  spec.positions = spec.context;
  for (Rope& rope : spec.ropes) rope.dims = 0;
}

constexpr Architecture architectures[] = {
    {"llama", true},
    {"qwen2"},
    {"qwen3", false, qwen3},
    {"gemma", false, gemma},
    {"gemma2", false, gemma2},
    {"gemma3", false, gemma3},
    {"phi3", false, phi3},
    {"olmo2", false, olmo2},
    {"gpt2", false, gpt2},
    {"qwen2moe", false, qwen2_moe},
    {"qwen3moe", false, qwen3},
};

const Architecture& architecture_of(const std::string& name) {
  std::string known;
  for (const Architecture& one : architectures) {
    if (name == one.name) return one;
    known += cat(known.empty() ? "" : ", ", one.name);
  }
  throw Error(Code::unsupported, cat("the architecture ", quote(name), " is not known"),
              cat("those of GGUF files that are: ", known, "; others can be exported to ONNX"));
}

/// The file stores epsilon in f32: 1e-6 is what was meant.
double rounded(double number) {
  double out = number;
  parse_double(cat(static_cast<float>(number)), out);
  return out;
}

std::vector<float> factors_of(const Entry& entry, const std::string& name, int64_t dims) {
  const Tensor factors = dequantised(entry);
  if (factors.elements() != dims / 2)
    throw Error(Code::bad_model,
                cat("the tensor ", name, " is ", factors.shape().text(), ", expected ", dims / 2, " factors"));
  const auto* first = reinterpret_cast<const float*>(factors.data());
  return {first, first + factors.elements()};
}

/// The scaling by metadata; factors of each frequency, which are tensors, are the caller's.
void scale(const File& file, const std::string& prefix, Rope& rope) {
  const auto key = [&](const char* name) { return cat(prefix, "rope.scaling.", name); };
  const double old = file.real_or(prefix + "rope.scale_linear", 1);
  const double factor = file.real_or(key("factor"), old);
  // As llama.cpp reads it: a factor without a kind is linear.
  const std::string type = file.has(key("type")) ? file.text(key("type")) : "linear";
  if (type == "none" || type == "longrope" || factor == 0) return;
  if (type == "linear") {
    rope.factor = factor;
  } else if (type == "yarn") {
    const double context = file.real_or(key("original_context_length"), file.real(prefix + "context_length"));
    decoder::set_yarn(rope, {.factor = factor,
                             .context = context,
                             .fast = file.real_or(key("yarn_beta_fast"), 32),
                             .slow = file.real_or(key("yarn_beta_slow"), 1)});
    rope.amplitude =
        file.real_or(key("attn_factor"), file.real_or(key("yarn_attn_factor"), 1)) * decoder::yarn_amplitude(factor);
  } else {
    throw Error(Code::unsupported, cat("the metadata ", key("type"), " is ", quote(type)),
                "those that are known: none, linear, yarn, longrope; export the model to ONNX");
  }
}

Rope rope_of(const File& file, const std::string& prefix, const Architecture& architecture, int64_t head_dim) {
  Rope out{.base = file.real_or(prefix + "rope.freq_base", 10000),
           .dims = file.integer_or(prefix + "rope.dimension_count", head_dim),
           .interleaved = architecture.interleaved};
  if (out.dims < 0 || out.dims > head_dim || out.dims % 2)
    throw Error(Code::bad_model,
                cat("the metadata ", prefix, "rope.dimension_count is ", out.dims, ", and heads have ", head_dim,
                    " elements"),
                "the file is damaged");
  scale(file, prefix, out);
  if (const auto found = file.tensors().find("rope_freqs.weight"); found != file.tensors().end()) {
    out.factors = factors_of(found->second, found->first, out.dims);
  }
  // LongRoPE: factors of short contexts, and of those beyond the original one.
  const int64_t original = file.integer_or(prefix + "rope.scaling.original_context_length", 0);
  const bool longer = file.integer(prefix + "context_length") > original;
  if (const auto found = file.tensors().find(longer ? "rope_factors_long.weight" : "rope_factors_short.weight");
      found != file.tensors().end()) {
    out.factors = factors_of(found->second, found->first, out.dims);
    out.amplitude = file.real_or(prefix + "rope.scaling.attn_factor", 1);
  }
  return out;
}

decoder::Experts experts_of(const File& file, const std::string& prefix, const DecoderSpec& spec) {
  const auto size = [&](const char* key, int64_t otherwise, int64_t most) {
    return checked(file.integer_or(prefix + key, otherwise), prefix + key, most);
  };
  decoder::Experts out;
  out.count = size("expert_count", 0, 1 << 16);
  out.used = size("expert_used_count", 0, out.count);
  out.ffn = size("expert_feed_forward_length", spec.ffn, 1 << 24);
  constexpr int64_t softmax = 1;
  const int64_t gate = file.integer_or(prefix + "expert_gating_func", softmax);
  if (gate != softmax && gate != 0)
    throw Error(Code::unsupported,
                cat("the metadata ", prefix, "expert_gating_func is ", gate, ", expected 1 (softmax)"),
                "export the model to ONNX");
  for (int64_t layer = 0; layer < spec.layers(); ++layer)
    out.layers.push_back(file.tensors().contains(cat("blk.", layer, ".ffn_gate_inp.weight")));
  return out;
}

/// Keys of an architecture in llama.cpp that change results there, and the values with which they do not.
struct Key {
  const char* name;
  std::vector<double> neutral;
};
const std::vector<Key>& keys() {
  static const std::vector<Key> table{
      {"attention.causal", {1}},
      {"attention.clamp_kqv", {0}},
      {"attention.group_norm_epsilon", {}},
      {"attention.group_norm_groups", {}},
      {"attention.kv_lora_rank", {0}},
      {"attention.max_alibi_bias", {0}},
      {"attention.output_scale", {0, 1}},
      {"attention.q_lora_rank", {0}},
      {"attention.scale", {0}},
      {"attention.sliding_window", {0}},
      {"attention.temperature_length", {0}},
      {"attention.temperature_scale", {0}},
      {"attn_logit_softcapping", {0}},
      {"embedding_scale", {0, 1}},
      {"expert_chunk_feed_forward_length", {0}},
      {"expert_group_count", {0, 1}},
      {"expert_group_used_count", {0, 1}},
      {"expert_shared_count", {0}},
      {"expert_weights_scale", {0, 1}},
      {"final_logit_softcapping", {0}},
      {"full_attention_interval", {1}},
      {"interleave_moe_layer_step", {0, 1}},
      {"leading_dense_block_count", {0}},
      {"logit_scale", {0, 1}},
      {"moe_every_n_layers", {0, 1}},
      {"nextn_predict_layers", {0}},
      {"rescale_every_n_layers", {0}},
      {"residual_scale", {0, 1}},
      {"rope.dimension_sections", {}},
      {"rope.scaling.yarn_ext_factor", {1}},
      {"rope.scaling.yarn_log_multiplier", {0}},
      {"router_logit_softcapping", {0}},
      {"swin_norm", {0}},
  };
  return table;
}
/// Those without effect there: sizes that follow from the tensors, how a file was made, what is not a decoder's.
constexpr std::string_view harmless[] = {"vocab_size",
                                         "tensor_data_layout",
                                         "use_parallel_residual",
                                         "rope.scaling.finetuned",
                                         "rope.scaling.attn_factor",
                                         "rope.scaling.factor",
                                         "rope.scaling.original_context_length",
                                         "rope.freq_base_swa",
                                         "expert_weights_norm",
                                         "expert_shared_feed_forward_length",
                                         "expert_feed_forward_length",
                                         "expert_used_count",
                                         "expert_gating_func",
                                         "expert_count",
                                         "pooling_type",
                                         "decoder_start_token_id"};

/// Tells which keys of the architecture nothing read.
void check_unread(const File& file, const std::string& prefix, std::vector<std::string>* warnings) {
  std::vector<std::string> unknown;
  for (const std::string& key : file.unread(prefix)) {
    const std::string own = key.substr(prefix.size());
    if (std::find(std::begin(harmless), std::end(harmless), own) != std::end(harmless)) continue;
    const auto known = std::find_if(keys().begin(), keys().end(), [&](const Key& one) { return own == one.name; });
    if (known == keys().end()) {
      unknown.push_back(key);
      continue;
    }
    const Value& value = file.metadata().at(key);
    const auto* whole = std::get_if<int64_t>(&value);
    const auto* number = std::get_if<double>(&value);
    const double given = whole ? static_cast<double>(*whole) : number ? *number : NAN;
    if (std::find(known->neutral.begin(), known->neutral.end(), given) == known->neutral.end())
      throw Error(Code::unsupported,
                  cat("the metadata ", key, whole || number ? cat(" is ", given) : "",
                      ", which is not supported for this architecture"),
                  "export the model to ONNX");
  }
  if (!unknown.empty() && warnings)
    warnings->push_back(cat("metadata that are not known, without effect: ", join(unknown, ", ")));
}

/// Heads whose values have another size than their keys are not known.
void check_value_length(const File& file, const std::string& prefix, int64_t head_dim) {
  const std::string key = prefix + "attention.value_length";
  if (const int64_t given = file.integer_or(key, head_dim); given != head_dim)
    throw Error(Code::unsupported,
                cat("the metadata ", key, " is ", given, ", and keys have ", head_dim, " elements"),
                "export the model to ONNX");
}

}  // namespace

decoder::DecoderSpec spec_of(const File& file, std::vector<std::string>* warnings) {
  const std::string& name = file.text("general.architecture");
  const Architecture& architecture = architecture_of(name);
  const std::string prefix = name + ".";
  const auto size = [&](const char* key, int64_t most) {
    return checked(file.integer(prefix + key), prefix + key, most);
  };
  DecoderSpec out;
  constexpr int64_t most = 1 << 24;
  out.hidden = size("embedding_length", most);
  out.heads = size("attention.head_count", 1 << 20);
  out.kv_heads = checked(file.integer_or(prefix + "attention.head_count_kv", out.heads),
                         prefix + "attention.head_count_kv", out.heads);
  out.head_dim = checked(file.integer_or(prefix + "attention.key_length", out.hidden / out.heads),
                         prefix + "attention.key_length", most);
  out.ffn = size("feed_forward_length", most);
  out.context = size("context_length", int64_t{1} << 40);
  const int64_t layers = size("block_count", 1 << 16);
  const auto table = file.tensors().find("token_embd.weight");
  if (table == file.tensors().end() || table->second.shape.rank() != 2)
    throw Error(Code::bad_model, "the file has no table token_embd.weight", "it is incomplete");
  out.vocabulary = table->second.shape[0];
  const bool rms = file.has(prefix + "attention.layer_norm_rms_epsilon");
  out.norm = rms ? decoder::Norm::rms : decoder::Norm::layer;
  out.epsilon =
      rounded(file.real(prefix + (rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon")));
  out.query_scale = 1 / std::sqrt(static_cast<double>(out.head_dim));
  out.windows.assign(static_cast<size_t>(layers), 0);
  out.ropes.assign(static_cast<size_t>(layers), rope_of(file, prefix, architecture, out.head_dim));
  out.tied = !file.tensors().contains("output.weight");
  if (file.integer_or(prefix + "expert_count", 0) > 0) out.experts = experts_of(file, prefix, out);
  check_value_length(file, prefix, out.head_dim);
  if (architecture.adjust) architecture.adjust(file, prefix, out);
  check_unread(file, prefix, warnings);
  return out;
}

std::string tensor_of(const std::string& name) {
  static const std::pair<const char*, const char*> whole[] = {{"model.embed_tokens", "token_embd"},
                                                              {"model.embed_positions", "position_embd"},
                                                              {"model.norm", "output_norm"},
                                                              {"lm_head", "output"}};
  static const std::pair<const char*, const char*> parts[] = {{"self_attn.q_proj", "attn_q"},
                                                              {"self_attn.k_proj", "attn_k"},
                                                              {"self_attn.v_proj", "attn_v"},
                                                              {"self_attn.qkv_proj", "attn_qkv"},
                                                              {"self_attn.o_proj", "attn_output"},
                                                              {"self_attn.q_norm", "attn_q_norm"},
                                                              {"self_attn.k_norm", "attn_k_norm"},
                                                              {"input_layernorm", "attn_norm"},
                                                              {"post_feedforward_layernorm", "post_ffw_norm"},
                                                              {"pre_feedforward_layernorm", "ffn_norm"},
                                                              {"mlp.gate", "ffn_gate_inp"},
                                                              {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                                              {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                                              {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                                              {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
                                                              {"mlp.gate_proj", "ffn_gate"},
                                                              {"mlp.up_proj", "ffn_up"},
                                                              {"mlp.down_proj", "ffn_down"}};
  const size_t dot = name.rfind('.');
  const std::string module = name.substr(0, dot), kind = name.substr(dot);
  for (const auto& [ours, theirs] : whole)
    if (module == ours) return theirs + kind;
  constexpr std::string_view layers = "model.layers.";
  if (!module.starts_with(layers)) return {};
  const size_t end = module.find('.', layers.size());
  const std::string number = module.substr(layers.size(), end - layers.size()), part = module.substr(end + 1);
  for (const auto& [ours, theirs] : parts)
    if (part == ours) return cat("blk.", number, ".", theirs, kind);
  return {};
}

}  // namespace plait::gguf
