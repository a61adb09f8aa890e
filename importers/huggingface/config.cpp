#include "importers/huggingface/config.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::huggingface {
namespace {

using decoder::DecoderSpec;
using decoder::Join;
using decoder::Norm;
using decoder::Rope;
using Json = nlohmann::json;

/// The configuration's fields. All throw Error(bad_model), naming the field.
class Fields {
 public:
  explicit Fields(const Json& json) : json_(json) {}

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const Json& at(const char* key) const { return json_.at(key); }
  int64_t size(const char* key, int64_t most = 1 << 24) const {
    if (!has(key) || !json_.at(key).is_number_integer()) fail(key, "an integer");
    const auto out = json_.at(key).get<int64_t>();
    if (out < 1 || out > most) fail(key, cat("from 1 to ", most));
    return out;
  }
  int64_t size_or(const char* key, int64_t otherwise) const { return has(key) ? size(key) : otherwise; }
  double real_or(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_number()) fail(key, "a number");
    return json_.at(key).get<double>();
  }
  bool flag_or(const char* key, bool otherwise) const {
    return has(key) && json_.at(key).is_boolean() ? json_.at(key).get<bool>() : otherwise;
  }
  std::string text_or(const char* key, const std::string& otherwise) const {
    return has(key) && json_.at(key).is_string() ? json_.at(key).get<std::string>() : otherwise;
  }
  [[noreturn]] static void fail(const char* key, std::string_view what) {
    throw Error(Code::bad_model, cat("config.json: ", key, " is not ", what), "compare it with the model's own page");
  }

 private:
  const Json& json_;
};

std::string activation_of(const std::string& name) {
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return "gelu_tanh";
  if (name == "gelu" || name == "relu") return name;
  throw Error(Code::unsupported, cat("config.json: the activation ", quote(name), " is not known"),
              "those that are: silu, gelu, gelu_new, relu");
}

/// The scaling of a rope, in transformers' words of version 4 (rope_scaling) or 5 (rope_parameters).
void scale(Rope& rope, const Fields& scaling, int64_t context, int64_t original) {
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (type == "default") return;
  if (type == "linear") {
    rope.factor = scaling.real_or("factor", 1);
  } else if (type == "llama3") {
    rope.llama3 = Rope::Llama3{scaling.real_or("factor", 1), scaling.real_or("low_freq_factor", 1),
                               scaling.real_or("high_freq_factor", 4),
                               scaling.real_or("original_max_position_embeddings", 8192)};
  } else if (type == "longrope" || type == "su") {
    const bool longer = context > original;
    const char* key = longer ? "long_factor" : "short_factor";
    if (!scaling.has(key) || !scaling.at(key).is_array()) Fields::fail(key, "a list of factors");
    for (const Json& one : scaling.at(key)) {
      if (!one.is_number()) Fields::fail(key, "a list of numbers");
      rope.factors.push_back(one.get<float>());
    }
    if (static_cast<int64_t>(rope.factors.size()) != rope.dims / 2)
      Fields::fail(key, cat("a list of ", rope.dims / 2, " factors"));
    const double by = static_cast<double>(context) / static_cast<double>(original);
    if (by > 1)
      rope.amplitude =
          scaling.real_or("attention_factor", std::sqrt(1 + std::log(by) / std::log(static_cast<double>(original))));
  } else {
    throw Error(Code::unsupported, cat("config.json: the rope's scaling ", quote(type), " is not known"),
                "those that are: default, linear, llama3, longrope");
  }
}

Rope rope_of(const Fields& config, const DecoderSpec& spec) {
  const Json none = Json::object();
  const Fields parameters(config.has("rope_parameters") ? config.at("rope_parameters") : none);
  Rope out{.base = config.real_or("rope_theta", parameters.real_or("rope_theta", 10000))};
  const double part = config.real_or("partial_rotary_factor",
                                     config.real_or("rotary_pct", parameters.real_or("partial_rotary_factor", 1)));
  out.dims = static_cast<int64_t>(part * static_cast<double>(spec.head_dim)) / 2 * 2;
  const int64_t original = config.size_or("original_max_position_embeddings", spec.context);
  if (config.has("rope_scaling")) scale(out, Fields(config.at("rope_scaling")), spec.context, original);
  else if (config.has("rope_parameters"))
    scale(out, parameters, spec.context, parameters.size_or("original_max_position_embeddings", original));
  return out;
}

/// Layers that see a window: by layer_types if there are, otherwise by `sees`.
void set_windows(const Fields& config, DecoderSpec& spec, const std::function<bool(int64_t)>& sees) {
  const int64_t window = config.size_or("sliding_window", 0);
  for (int64_t layer = 0; layer < spec.layers(); ++layer) {
    bool limited = sees(layer);
    if (config.has("layer_types")) {
      const Json& types = config.at("layer_types");
      if (!types.is_array() || static_cast<int64_t>(types.size()) != spec.layers())
        Fields::fail("layer_types", "one for each layer");
      const Json& type = types[static_cast<size_t>(layer)];
      limited = type.is_string() && type.get_ref<const std::string&>() == "sliding_attention";
    }
    spec.windows[static_cast<size_t>(layer)] = limited ? window : 0;
  }
}

bool all(int64_t) { return true; }
bool none(int64_t) { return false; }

void name(Model& model, const std::string& ours, Part theirs) { model.names.emplace_back(ours, std::move(theirs)); }

// What is not as in Llama, a function a family.
void mistral(const Fields& config, Model& model) { set_windows(config, model.spec, all); }

void qwen2(const Fields& config, Model& model) {
  const int64_t first = config.size_or("max_window_layers", model.spec.layers());
  if (config.flag_or("use_sliding_window", false))
    set_windows(config, model.spec, [first](int64_t layer) { return layer >= first; });
}

void qwen3(const Fields& config, Model& model) {
  qwen2(config, model);
  model.spec.qk_norm = true;
}

void set_experts(const Fields& config, DecoderSpec& spec, const char* count, const char* ffn, bool normalised) {
  decoder::Experts experts{.count = config.size(count, 1 << 16),
                           .used = config.size("num_experts_per_tok", 1 << 16),
                           .ffn = config.size(ffn),
                           .normalised = normalised};
  if (experts.used > experts.count)
    Fields::fail("num_experts_per_tok", cat("at most ", count, ", which is ", experts.count));
  if (spec.activation != "silu")
    throw Error(Code::unsupported, cat("config.json: experts with the activation ", quote(spec.activation)),
                "experts with silu are known");
  const int64_t step = config.size_or("decoder_sparse_step", 1);
  for (int64_t layer = 0; layer < spec.layers(); ++layer) experts.layers.push_back((layer + 1) % step == 0);
  if (config.has("mlp_only_layers") && config.at("mlp_only_layers").is_array())
    for (const Json& one : config.at("mlp_only_layers"))
      if (one.is_number_integer() && one.get<int64_t>() >= 0 && one.get<int64_t>() < spec.layers())
        experts.layers[one.get<size_t>()] = false;
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
  qwen2(config, model);
  set_experts(config, model.spec, "num_experts", "moe_intermediate_size", config.flag_or("norm_topk_prob", false));
  model.spec.experts->shared_ffn = config.size("shared_expert_intermediate_size");
}

void qwen3_moe(const Fields& config, Model& model) {
  qwen3(config, model);
  set_experts(config, model.spec, "num_experts", "moe_intermediate_size", config.flag_or("norm_topk_prob", false));
}

void gemma(const Fields& config, Model& model) {
  DecoderSpec& spec = model.spec;
  spec.norm_offset = 1;
  spec.embed_scale = std::sqrt(static_cast<double>(spec.hidden));
  spec.activation = activation_of(config.text_or("hidden_activation", "gelu_pytorch_tanh"));
  spec.tied = config.flag_or("tie_word_embeddings", true);
}

void gemma2(const Fields& config, Model& model) {
  gemma(config, model);
  DecoderSpec& spec = model.spec;
  spec.post_norms = true;
  spec.query_scale = 1 / std::sqrt(config.real_or("query_pre_attn_scalar", static_cast<double>(spec.head_dim)));
  spec.attention_cap = config.real_or("attn_logit_softcapping", 0);
  spec.logit_cap = config.real_or("final_logit_softcapping", 0);
  set_windows(config, spec, [](int64_t layer) { return layer % 2 == 0; });
}

void gemma3(const Fields& config, Model& model) {
  gemma2(config, model);
  DecoderSpec& spec = model.spec;
  spec.qk_norm = true;
  const int64_t pattern = config.size_or("sliding_window_pattern", 6);
  set_windows(config, spec, [pattern](int64_t layer) { return (layer + 1) % pattern != 0; });
  const Json none_given = Json::object();
  const Fields parameters(config.has("rope_parameters") ? config.at("rope_parameters") : none_given);
  const auto own = [&](const char* key, double otherwise) {
    return parameters.has(key) && parameters.at(key).is_object()
               ? Fields(parameters.at(key)).real_or("rope_theta", otherwise)
               : otherwise;
  };
  for (size_t layer = 0; layer < spec.windows.size(); ++layer) {
    Rope& rope = spec.ropes[layer];
    if (spec.windows[layer])
      rope = {.base = own("sliding_attention", config.real_or("rope_local_base_freq", 10000)), .dims = spec.head_dim};
    else rope.base = own("full_attention", config.real_or("rope_theta", 1000000));
  }
}

void phi3(const Fields& config, Model& model) {
  const DecoderSpec& spec = model.spec;
  const int64_t wide = spec.heads * spec.head_dim, narrow = spec.kv_heads * spec.head_dim;
  name(model, "model.layers.{}.self_attn.q_proj", {"model.layers.{}.self_attn.qkv_proj", 0, wide});
  name(model, "model.layers.{}.self_attn.k_proj", {"model.layers.{}.self_attn.qkv_proj", wide, narrow});
  name(model, "model.layers.{}.self_attn.v_proj", {"model.layers.{}.self_attn.qkv_proj", wide + narrow, narrow});
  name(model, "model.layers.{}.mlp.gate_proj", {"model.layers.{}.mlp.gate_up_proj", 0, spec.ffn});
  name(model, "model.layers.{}.mlp.up_proj", {"model.layers.{}.mlp.gate_up_proj", spec.ffn, spec.ffn});
  if (config.size_or("sliding_window", spec.context) < spec.context) set_windows(config, model.spec, all);
}

void olmo2(const Fields&, Model& model) {
  model.spec.pre_norms = false;
  model.spec.post_norms = model.spec.qk_norm = model.spec.qk_norm_whole = true;
}

void gpt2(const Fields& config, Model& model) {
  DecoderSpec& spec = model.spec;
  spec.gated = false;
  spec.positions = spec.context;
  spec.tied = config.flag_or("tie_word_embeddings", true);
  for (Rope& rope : spec.ropes) rope.dims = 0;
  const int64_t h = spec.hidden;
  name(model, "model.embed_tokens", {"transformer.wte"});
  name(model, "model.embed_positions", {"transformer.wpe"});
  name(model, "model.norm", {"transformer.ln_f"});
  name(model, "model.layers.{}.input_layernorm", {"transformer.h.{}.ln_1"});
  name(model, "model.layers.{}.post_attention_layernorm", {"transformer.h.{}.ln_2"});
  const char* const projections[] = {"q", "k", "v"};
  for (int64_t i = 0; i < 3; ++i)
    name(model, cat("model.layers.{}.self_attn.", projections[i], "_proj"),
         {"transformer.h.{}.attn.c_attn", i * h, h, true});
  name(model, "model.layers.{}.self_attn.o_proj", {"transformer.h.{}.attn.c_proj", 0, 0, true});
  name(model, "model.layers.{}.mlp.up_proj", {"transformer.h.{}.mlp.c_fc", 0, 0, true});
  name(model, "model.layers.{}.mlp.down_proj", {"transformer.h.{}.mlp.c_proj", 0, 0, true});
}

void gptj(const Fields& config, Model& model) {
  DecoderSpec& spec = model.spec;
  spec.gated = false;
  spec.join = Join::parallel_one;
  spec.tied = config.flag_or("tie_word_embeddings", false);
  for (Rope& rope : spec.ropes) rope.dims = config.size_or("rotary_dim", spec.head_dim), rope.interleaved = true;
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
  spec.kv_heads = spec.heads;
  spec.gated = false;
  if (config.flag_or("use_parallel_residual", true)) spec.join = Join::parallel;
  for (Rope& rope : spec.ropes) {
    rope.base = config.real_or("rotary_emb_base", rope.base);
    if (!config.has("rotary_pct") && !config.has("rope_parameters")) rope.dims = spec.head_dim / 4 / 2 * 2;
  }
  name(model, "model.embed_tokens", {"gpt_neox.embed_in"});
  name(model, "model.norm", {"gpt_neox.final_layer_norm"});
  name(model, "lm_head", {"embed_out"});
  name(model, "model.layers.{}.input_layernorm", {"gpt_neox.layers.{}.input_layernorm"});
  name(model, "model.layers.{}.post_attention_layernorm", {"gpt_neox.layers.{}.post_attention_layernorm"});
  const char* const projections[] = {"q", "k", "v"};
  for (int64_t i = 0; i < 3; ++i)
    name(model, cat("model.layers.{}.self_attn.", projections[i], "_proj"),
         {"gpt_neox.layers.{}.attention.query_key_value", i, spec.heads * spec.head_dim, false, true});
  name(model, "model.layers.{}.self_attn.o_proj", {"gpt_neox.layers.{}.attention.dense"});
  name(model, "model.layers.{}.mlp.up_proj", {"gpt_neox.layers.{}.mlp.dense_h_to_4h"});
  name(model, "model.layers.{}.mlp.down_proj", {"gpt_neox.layers.{}.mlp.dense_4h_to_h"});
}

struct Family {
  const char* type;
  void (*adjust)(const Fields&, Model&);
};
constexpr Family families[] = {{"llama", nullptr},      {"mistral", mistral},     {"qwen2", qwen2},
                               {"qwen3", qwen3},        {"gemma", gemma},         {"gemma2", gemma2},
                               {"gemma3_text", gemma3}, {"phi3", phi3},           {"olmo2", olmo2},
                               {"gpt2", gpt2},          {"gptj", gptj},           {"gpt_neox", gpt_neox},
                               {"mixtral", mixtral},    {"qwen2_moe", qwen2_moe}, {"qwen3_moe", qwen3_moe}};

const Family& family_of(const std::string& type) {
  std::string known;
  for (const Family& one : families) {
    if (type == one.type) return one;
    known += cat(known.empty() ? "" : ", ", one.type);
  }
  throw Error(Code::unsupported, cat("config.json: the model_type ", quote(type), " is not known"),
              cat("those that are: ", known, "; others can be exported: optimum-cli export onnx"));
}

/// The first of these names that the configuration has: GPT-2 and GPT-J have their own.
int64_t size_of(const Fields& config, std::initializer_list<const char*> names) {
  for (const char* one : names)
    if (config.has(one)) return config.size(one);
  return config.size(*names.begin());
}

}  // namespace

Model read_config(const Json& json) {
  if (!json.is_object()) throw Error(Code::bad_model, "config.json is no JSON object");
  const Fields config(json);
  const Family& family = family_of(config.text_or("model_type", ""));
  Model out;
  DecoderSpec& spec = out.spec;
  spec.hidden = size_of(config, {"hidden_size", "n_embd"});
  spec.heads = size_of(config, {"num_attention_heads", "n_head"});
  spec.kv_heads = config.size_or("num_key_value_heads", spec.heads);
  spec.head_dim = config.size_or("head_dim", spec.hidden / spec.heads);
  spec.ffn =
      config.has("intermediate_size") ? config.size("intermediate_size") : config.size_or("n_inner", 4 * spec.hidden);
  spec.vocabulary = config.size("vocab_size");
  spec.context = size_of(config, {"max_position_embeddings", "n_positions"});
  const int64_t layers = size_of(config, {"num_hidden_layers", "n_layer"});
  if (spec.head_dim < 1 || layers > 1 << 16)
    throw Error(Code::bad_model, "config.json: its sizes are absurd", "the file is damaged");
  const bool rms = config.has("rms_norm_eps");
  spec.norm = rms ? Norm::rms : Norm::layer;
  spec.epsilon = rms ? config.real_or("rms_norm_eps", 1e-6)
                     : config.real_or("layer_norm_eps", config.real_or("layer_norm_epsilon", 1e-5));
  spec.activation = activation_of(config.text_or("hidden_act", config.text_or("activation_function", "silu")));
  spec.query_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim));
  spec.tied = config.flag_or("tie_word_embeddings", false);
  spec.windows.assign(static_cast<size_t>(layers), 0);
  spec.ropes.assign(static_cast<size_t>(layers), rope_of(config, spec));
  if (config.has("layer_types")) set_windows(config, spec, none);
  if (family.adjust) family.adjust(config, out);
  for (const Rope& rope : spec.ropes)
    if (rope.dims < 0 || rope.dims > spec.head_dim || rope.dims % 2)
      Fields::fail("rotary_dim", "an even number of the head's elements");
  return out;
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
