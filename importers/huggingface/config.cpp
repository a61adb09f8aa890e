#include "importers/huggingface/config.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/huggingface/config_fields.h"
#include "importers/huggingface/ropes.h"

namespace plait::huggingface {
namespace {

using decoder::DecoderSpec;
using decoder::Join;
using decoder::Norm;
using decoder::Rope;
using Json = nlohmann::json;

std::string activation_of(const Fields& config, const char* key) {
  const std::string name = config.text_or(key, "");
  if (name == "silu" || name == "swish") return "silu";
  for (const char* one : {"gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_fast", "gelu_accurate"})
    if (name == one) return "gelu_tanh";
  if (name == "gelu_python") return "gelu";
  for (const char* one : {"gelu", "quick_gelu", "relu", "relu2", "sigmoid", "tanh", "linear"})
    if (name == one) return name;
  throw Error(Code::unsupported, cat("config.json: ", key, ": the activation ", quote(name), " is not known"),
              "those that are: silu, gelu, gelu_new, quick_gelu, relu, relu2, sigmoid, tanh, linear");
}

/// Layers that see a window: by layer_types if the class has them and there are, otherwise by `sees`.
void set_windows(const Fields& config, DecoderSpec& spec, const std::function<bool(int64_t)>& sees,
                 bool windows = true) {
  const Json* types = config.has("layer_types") ? &config.at("layer_types") : nullptr;
  if (types && (!types->is_array() || static_cast<int64_t>(types->size()) != spec.layers()))
    config.fail("layer_types", "one for each layer");
  const int64_t window = windows ? config.size_or("sliding_window", 0) : 0;
  if (!windows) config.pass_over({"sliding_window"});
  for (int64_t layer = 0; layer < spec.layers(); ++layer) {
    bool limited = sees(layer) && window;
    if (types) {
      const Json& type = (*types)[static_cast<size_t>(layer)];
      const auto* kind = type.get_ptr<const std::string*>();  // a comparison with a literal would make a value, and not throw
      limited = kind && *kind == "sliding_attention";
      if (!limited && !(kind && *kind == "full_attention"))
        throw Error(Code::unsupported, cat("config.json: layer_types has ", quote(type.dump())),
                    "those that are known: full_attention, sliding_attention");
      if (limited && !window)
        throw Error(Code::bad_model, "config.json: layer_types has sliding_attention, and there is no sliding_window",
                    "compare it with the model's own page");
    }
    spec.windows[static_cast<size_t>(layer)] = limited ? window : 0;
  }
}

bool all(int64_t) { return true; }

void name(Model& model, const std::string& ours, Part theirs) { model.names.emplace_back(ours, std::move(theirs)); }

void set_ropes(const Fields& config, DecoderSpec& spec) {
  spec.ropes.assign(spec.windows.size(), read_rope(config, spec.head_dim, spec.context));
}

void attention_bias(const Fields& config, Model& model) {
  model.biases.qkv = model.biases.output = config.flag_or("attention_bias", false);
}

// What is of a family, a function each.
void llama(const Fields& config, Model& model) {
  attention_bias(config, model);
  model.biases.mlp = config.flag_or("mlp_bias", false);
}

void mistral(const Fields& config, Model& model) { set_windows(config, model.spec, all); }

void qwen2(const Fields& config, Model& model) {
  const int64_t first = config.integer("max_window_layers", 0, 1 << 24);
  model.biases.qkv = true;
  set_windows(
      config, model.spec, [first](int64_t layer) { return layer >= first; },
      config.flag_or("use_sliding_window", false));
}

void qwen3(const Fields& config, Model& model) {
  qwen2(config, model);
  attention_bias(config, model);
  model.spec.qk_norm = true;
}

void set_experts(const Fields& config, DecoderSpec& spec, const char* count, const char* ffn, bool normalised) {
  decoder::Experts experts{.count = config.size(count, 1 << 16),
                           .used = config.size("num_experts_per_tok", 1 << 16),
                           .ffn = config.size(ffn),
                           .normalised = normalised};
  if (experts.used > experts.count)
    config.fail("num_experts_per_tok", cat("at most ", count, ", which is ", experts.count));
  if (spec.activation != "silu")
    throw Error(Code::unsupported,
                cat("config.json: hidden_act: experts with the activation ", quote(spec.activation)),
                "experts with silu are known");
  const int64_t step = config.size_or("decoder_sparse_step", 1);
  for (int64_t layer = 0; layer < spec.layers(); ++layer) experts.layers.push_back((layer + 1) % step == 0);
  if (config.has("mlp_only_layers")) {
    const Json& only = config.at("mlp_only_layers");
    if (!only.is_array()) config.fail("mlp_only_layers", "a list of layers");
    for (const Json& one : only) {
      if (!one.is_number_integer()) config.fail("mlp_only_layers", "a list of layers");
      if (const auto layer = one.get<int64_t>(); layer >= 0 && layer < spec.layers())
        experts.layers[static_cast<size_t>(layer)] = false;
    }
  }
  spec.experts = std::move(experts);
}

void mixtral(const Fields& config, Model& model) {
  mistral(config, model);
  set_experts(config, model.spec, "num_local_experts", "intermediate_size", true);
  const std::string ours = "model.layers.{}.mlp.", theirs = "model.layers.{}.block_sparse_moe.";
  name(model, ours + "gate", {theirs + "gate"});
  for (int64_t expert = 0; expert < model.spec.experts->count; ++expert)
    for (const auto& [one, other] : {std::pair{"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}})
      name(model, cat(ours, "experts.", expert, ".", one), {cat(theirs, "experts.", expert, ".", other)});
}

void qwen2_moe(const Fields& config, Model& model) {
  model.biases.qkv = config.flag_or("qkv_bias", true);
  const bool windows = config.flag_or("use_sliding_window", false);
  // transformers limits all layers, and those from max_window_layers on with another implementation of attention.
  if (windows && config.integer("max_window_layers", 0, 1 << 24) > 0)
    throw Error(Code::unsupported, "config.json: use_sliding_window with max_window_layers, which is not 0",
                "transformers' own implementations of attention differ here; set max_window_layers to 0");
  config.pass_over({"max_window_layers"});
  set_windows(config, model.spec, all, windows);
  set_experts(config, model.spec, "num_experts", "moe_intermediate_size", config.flag_or("norm_topk_prob", false));
  model.spec.experts->shared_ffn = config.size("shared_expert_intermediate_size");
}

void qwen3_moe(const Fields& config, Model& model) {
  attention_bias(config, model);
  model.spec.qk_norm = true;
  set_windows(config, model.spec, all, config.flag_or("use_sliding_window", false));
  set_experts(config, model.spec, "num_experts", "moe_intermediate_size", config.flag_or("norm_topk_prob", false));
}

void all_gemmas(const Fields& config, Model& model) {
  DecoderSpec& spec = model.spec;
  attention_bias(config, model);
  spec.norm_offset = 1;
  spec.embed_scale = std::sqrt(static_cast<double>(spec.hidden));
}

void gemma(const Fields& config, Model& model) {
  all_gemmas(config, model);
  // Its first files have "gelu" and mean this one, as transformers 5 and vLLM read them; hidden_activation is without effect.
  if (model.spec.activation == "gelu") {
    model.spec.activation = "gelu_tanh";
    config.note("hidden_act (\"gelu\" means gelu_pytorch_tanh in this family)");
  }
  if (config.has("hidden_activation") && config.at("hidden_activation") != config.at("hidden_act"))
    config.note("hidden_activation");
}

void gemma2(const Fields& config, Model& model) {
  all_gemmas(config, model);
  DecoderSpec& spec = model.spec;
  spec.post_norms = true;
  spec.query_scale = 1 / std::sqrt(config.real("query_pre_attn_scalar"));
  spec.attention_cap = config.real_or("attn_logit_softcapping", 0);
  spec.logit_cap = config.real_or("final_logit_softcapping", 0);
  set_windows(config, spec, [](int64_t layer) { return layer % 2 == 0; });
}

void gemma3(const Fields& config, Model& model) {
  const int64_t pattern = config.size_or("sliding_window_pattern", 6);
  gemma2(config, model);
  DecoderSpec& spec = model.spec;
  spec.qk_norm = true;
  set_windows(config, spec, [pattern](int64_t layer) { return (layer + 1) % pattern != 0; });
  const Rope local = local_rope(config, spec.head_dim, spec.context);
  for (size_t layer = 0; layer < spec.windows.size(); ++layer)
    if (spec.windows[layer]) spec.ropes[layer] = local;
}

void phi3(const Fields& config, Model& model) {
  const DecoderSpec& spec = model.spec;
  const int64_t wide = spec.heads * spec.head_dim, narrow = spec.kv_heads * spec.head_dim, all_of = wide + 2 * narrow;
  const std::string qkv = "model.layers.{}.self_attn.qkv_proj", gate_up = "model.layers.{}.mlp.gate_up_proj";
  name(model, "model.layers.{}.self_attn.q_proj", {qkv, 0, wide, all_of});
  name(model, "model.layers.{}.self_attn.k_proj", {qkv, wide, narrow, all_of});
  name(model, "model.layers.{}.self_attn.v_proj", {qkv, wide + narrow, narrow, all_of});
  name(model, "model.layers.{}.mlp.gate_proj", {gate_up, 0, spec.ffn, 2 * spec.ffn});
  name(model, "model.layers.{}.mlp.up_proj", {gate_up, spec.ffn, spec.ffn, 2 * spec.ffn});
  set_windows(config, model.spec, all);
}

void olmo2(const Fields& config, Model& model) {
  attention_bias(config, model);
  model.spec.pre_norms = false;
  model.spec.post_norms = model.spec.qk_norm = model.spec.qk_norm_whole = true;
}

void gpt2(const Fields& config, Model& model) {
  DecoderSpec& spec = model.spec;
  spec.gated = false;
  spec.positions = spec.context;
  model.biases = {.qkv = true, .output = true, .mlp = true};
  if (!config.flag_or("scale_attn_weights", true)) spec.query_scale = 1;
  if (config.flag_or("scale_attn_by_inverse_layer_idx", false))
    for (int64_t layer = 0; layer < spec.layers(); ++layer)
      spec.query_scales.push_back(spec.query_scale / static_cast<double>(layer + 1));
  spec.ropes.resize(spec.windows.size());
  const int64_t h = spec.hidden;
  name(model, "model.embed_tokens", {"transformer.wte"});
  name(model, "model.embed_positions", {"transformer.wpe"});
  name(model, "model.norm", {"transformer.ln_f"});
  name(model, "model.layers.{}.input_layernorm", {"transformer.h.{}.ln_1"});
  name(model, "model.layers.{}.post_attention_layernorm", {"transformer.h.{}.ln_2"});
  const char* const projections[] = {"q", "k", "v"};
  for (int64_t i = 0; i < 3; ++i)
    name(model, cat("model.layers.{}.self_attn.", projections[i], "_proj"),
         {"transformer.h.{}.attn.c_attn", i * h, h, 3 * h, true});
  name(model, "model.layers.{}.self_attn.o_proj", {"transformer.h.{}.attn.c_proj", 0, 0, 0, true});
  name(model, "model.layers.{}.mlp.up_proj", {"transformer.h.{}.mlp.c_fc", 0, 0, 0, true});
  name(model, "model.layers.{}.mlp.down_proj", {"transformer.h.{}.mlp.c_proj", 0, 0, 0, true});
}

void gptj(const Fields& config, Model& model) {
  DecoderSpec& spec = model.spec;
  spec.gated = false;
  spec.join = Join::parallel_one;
  model.biases = {.mlp = true, .head = true};
  spec.ropes.assign(spec.windows.size(), {.dims = config.size("rotary_dim"), .interleaved = true});
  name(model, "model.embed_tokens", {"transformer.wte"});
  name(model, "model.norm", {"transformer.ln_f"});
  name(model, "model.layers.{}.input_layernorm", {"transformer.h.{}.ln_1"});
  for (const char* one : {"q_proj", "k_proj", "v_proj"})
    name(model, cat("model.layers.{}.self_attn.", one), {cat("transformer.h.{}.attn.", one)});
  name(model, "model.layers.{}.self_attn.o_proj", {"transformer.h.{}.attn.out_proj"});
  name(model, "model.layers.{}.mlp.up_proj", {"transformer.h.{}.mlp.fc_in"});
  name(model, "model.layers.{}.mlp.down_proj", {"transformer.h.{}.mlp.fc_out"});
}

void gpt_neox(const Fields& config, Model& model) {
  DecoderSpec& spec = model.spec;
  spec.gated = false;
  model.biases.mlp = true;
  attention_bias(config, model);
  if (spec.head_dim * spec.heads != spec.hidden) config.fail("head_dim", "hidden_size / num_attention_heads");
  if (config.flag_or("use_parallel_residual", true)) spec.join = Join::parallel;
  name(model, "model.embed_tokens", {"gpt_neox.embed_in"});
  name(model, "model.norm", {"gpt_neox.final_layer_norm"});
  name(model, "lm_head", {"embed_out"});
  name(model, "model.layers.{}.input_layernorm", {"gpt_neox.layers.{}.input_layernorm"});
  name(model, "model.layers.{}.post_attention_layernorm", {"gpt_neox.layers.{}.post_attention_layernorm"});
  const char* const projections[] = {"q", "k", "v"};
  for (int64_t i = 0; i < 3; ++i)
    name(model, cat("model.layers.{}.self_attn.", projections[i], "_proj"),
         {"gpt_neox.layers.{}.attention.query_key_value", i, spec.hidden, 3 * spec.hidden, false, true});
  name(model, "model.layers.{}.self_attn.o_proj", {"gpt_neox.layers.{}.attention.dense"});
  name(model, "model.layers.{}.mlp.up_proj", {"gpt_neox.layers.{}.mlp.dense_h_to_4h"});
  name(model, "model.layers.{}.mlp.down_proj", {"gpt_neox.layers.{}.mlp.dense_4h_to_h"});
}

struct Family {
  const char* type;
  void (*adjust)(const Fields&, Model&);
  /// The fields' names, where the class has its own.
  const char* activation = "hidden_act";
  const char* epsilon = "rms_norm_eps";  ///< others: of layer norms
};
constexpr Family families[] = {{"llama", llama},
                               {"mistral", mistral},
                               {"qwen2", qwen2},
                               {"qwen3", qwen3},
                               {"gemma", gemma},
                               {"gemma2", gemma2, "hidden_activation"},
                               {"gemma3_text", gemma3, "hidden_activation"},
                               {"phi3", phi3},
                               {"olmo2", olmo2},
                               {"gpt2", gpt2, "activation_function", "layer_norm_epsilon"},
                               {"gptj", gptj, "activation_function", "layer_norm_epsilon"},
                               {"gpt_neox", gpt_neox, "hidden_act", "layer_norm_eps"},
                               {"mixtral", mixtral},
                               {"qwen2_moe", qwen2_moe},
                               {"qwen3_moe", qwen3_moe}};

/// Sizes, by the names of most classes or those of GPT-2 and GPT-J.
void set_sizes(const Fields& config, const std::set<std::string>& known, DecoderSpec& spec) {
  const auto either = [&](const char* name, const char* old) { return config.size(config.has(old) ? old : name); };
  const bool old = config.has("n_embd");
  spec.hidden = either("hidden_size", "n_embd");
  spec.heads = either("num_attention_heads", "n_head");
  spec.context = either("max_position_embeddings", "n_positions");
  spec.vocabulary = config.size("vocab_size");
  spec.ffn = old ? config.size_or("n_inner", 4 * spec.hidden) : config.size("intermediate_size");
  const int64_t layers = either("num_hidden_layers", "n_layer"), even = spec.hidden / spec.heads;
  spec.kv_heads =
      known.contains("num_key_value_heads") ? config.size_or("num_key_value_heads", spec.heads) : spec.heads;
  spec.head_dim = old ? even : config.size_or("head_dim", even);
  if (spec.head_dim < 1 || layers > 1 << 16)
    throw Error(Code::bad_model, "config.json: its sizes are absurd", "the file is damaged");
  if (spec.heads % spec.kv_heads) config.fail("num_key_value_heads", cat("a divisor of ", spec.heads));
  spec.windows.assign(static_cast<size_t>(layers), 0);
}

}  // namespace

Model read_config(const Json& json) {
  const Completed completed = huggingface::completed(json);
  const Fields config(completed.fields);
  const Family& family = *std::find_if(std::begin(families), std::end(families),
                                       [&](const Family& one) { return completed.type == one.type; });
  Model out;
  DecoderSpec& spec = out.spec;
  set_sizes(config, completed.known, spec);
  spec.norm = family.epsilon == std::string_view("rms_norm_eps") ? Norm::rms : Norm::layer;
  spec.epsilon = config.real(family.epsilon);
  spec.activation = activation_of(config, family.activation);
  spec.query_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  spec.tied = config.flag_or("tie_word_embeddings", false);
  for (const auto& [key, usual] : {std::pair{"is_causal", true}, {"use_bidirectional_attention", false}})
    if (config.flag_or(key, usual) != usual)
      throw Error(Code::unsupported, cat("config.json: ", key, " is ", usual ? "false" : "true"),
                  "attention that sees later tokens is not supported here; export the model to ONNX");
  if (completed.known.contains("rope_theta") || completed.known.contains("rotary_emb_base")) set_ropes(config, spec);
  family.adjust(config, out);
  for (const Rope& rope : spec.ropes)
    if (rope.dims < 0 || rope.dims > spec.head_dim || rope.dims % 2)
      config.fail("rotary_dim", "an even number of the head's elements");
  out.ignored = unknown_fields(completed, config);
  return out;
}

bool Model::has_bias(const std::string& module) const {
  const auto is = [&](std::initializer_list<std::string_view> kinds) {
    return std::any_of(kinds.begin(), kinds.end(), [&](std::string_view kind) { return module.ends_with(kind); });
  };
  if (module == "lm_head") return biases.head;
  if (is({".q_proj", ".k_proj", ".v_proj"})) return biases.qkv;
  if (is({".o_proj"})) return biases.output;
  if (is({".mlp.gate_proj", ".mlp.up_proj", ".mlp.down_proj"})) return biases.mlp;
  return spec.norm == Norm::layer && is({"norm"});
}

std::vector<Part> Model::parts_of(const std::string& wanted) const {
  const size_t dot = wanted.rfind('.');
  const std::string kind = wanted.substr(dot);
  std::string module = wanted.substr(0, dot), number;
  constexpr std::string_view layers = "model.layers.";
  if (module.starts_with(layers)) {
    const size_t end = module.find('.', layers.size());
    number = module.substr(layers.size(), end - layers.size());
    module = cat(layers, "{}", module.substr(end));
  }
  const auto filled = [&](std::string text) {
    if (const size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, number);
    return text + kind;
  };
  for (const auto& [ours, theirs] : names) {
    if (ours != module) continue;
    Part out = theirs;
    out.name = filled(theirs.name);
    return {out};
  }
  // A base model's file has no "model." in front; a model of more than text has names around it.
  if (!wanted.starts_with("model.")) return {{wanted}, {"language_model." + wanted}};
  const std::string base = wanted.substr(6);
  return {{wanted}, {base}, {"language_model." + wanted}, {"model.language_model." + base}};
}

}  // namespace plait::huggingface
