#include "importers/huggingface/ropes.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/decoder/yarn.h"

namespace plait::huggingface {
namespace {

using decoder::Rope;
using Json = nlohmann::json;

void longrope(Rope& rope, const Fields& scaling, int64_t context, int64_t original) {
  const char* key = context > original ? "long_factor" : "short_factor";
  scaling.pass_over({"long_factor", "short_factor", "factor"});
  if (!scaling.has(key) || !scaling.at(key).is_array()) scaling.fail(key, "a list of factors");
  for (const Json& one : scaling.at(key)) {
    if (!one.is_number()) scaling.fail(key, "a list of numbers");
    rope.factors.push_back(one.get<float>());
  }
  if (static_cast<int64_t>(rope.factors.size()) != rope.dims / 2)
    scaling.fail(key, cat("a list of ", rope.dims / 2, " factors"));
  double by = static_cast<double>(context) / static_cast<double>(original);
  if (original == context) by = scaling.real_or("factor", by);
  rope.amplitude = scaling.real_or(
      "attention_factor", by > 1 ? std::sqrt(1 + std::log(by) / std::log(static_cast<double>(original))) : 1);
}

void yarn(Rope& rope, const Fields& scaling, int64_t context) {
  const double factor = scaling.real("factor");
  if (factor <= 0) scaling.fail("factor", "above 0");
  decoder::set_yarn(rope,
                    {.factor = factor,
                     .context = scaling.real_or("original_max_position_embeddings", static_cast<double>(context)),
                     .fast = scaling.real_or("beta_fast", 32),
                     .slow = scaling.real_or("beta_slow", 1),
                     .truncate = scaling.flag_or("truncate", true)});
  const double some = scaling.real_or("mscale", 0), all = scaling.real_or("mscale_all_dim", 0);
  const double usual = some != 0 && all != 0
                           ? decoder::yarn_amplitude(factor, some) / decoder::yarn_amplitude(factor, all)
                           : decoder::yarn_amplitude(factor);
  rope.amplitude = scaling.real_or("attention_factor", usual);
}

void scale(Rope& rope, const Fields& config, const Fields& scaling, int64_t context) {
  std::string type = scaling.text_or("type", "");
  type = scaling.text_or("rope_type", type);
  if (type.empty()) scaling.fail("rope_type", "given");
  // Phi 3's class reads its older names so.
  if (type == "su" || (type == "yarn" && config.text_or("model_type", "") == "phi3")) type = "longrope";
  const bool by_context = type == "longrope" || type == "llama3" || type == "yarn";
  const int64_t original =
      config.size_or("original_max_position_embeddings",
                     by_context ? scaling.size_or("original_max_position_embeddings", context) : context);
  if (type == "default" || type == "dynamic") {
    // With "dynamic" frequencies change beyond the context only, at which requests end.
    scaling.pass_over({"factor", "original_max_position_embeddings"});
  } else if (type == "linear") {
    rope.factor = scaling.real("factor");
  } else if (type == "llama3") {
    rope.llama3 = Rope::Llama3{scaling.real("factor"), scaling.real("low_freq_factor"),
                               scaling.real("high_freq_factor"), scaling.real("original_max_position_embeddings")};
  } else if (type == "longrope") {
    longrope(rope, scaling, context, original);
  } else if (type == "yarn") {
    yarn(rope, scaling, context);
  } else {
    throw Error(Code::unsupported, cat("config.json: the rope's scaling ", quote(type), " is not known"),
                "those that are: default, linear, dynamic, llama3, yarn, longrope");
  }
  if (rope.factor == 0) scaling.fail("factor", "other than 0");
  for (const std::string& key : scaling.unread()) config.note(scaling.place() + key);
}

/// `own`: the fields of version 5; null: those of version 4.
Rope rope_of(const Fields& config, int64_t head_dim, int64_t context, const Json* own) {
  const bool neox = config.has("rotary_emb_base");
  const double theta = config.real_or(neox ? "rotary_emb_base" : "rope_theta", 10000);
  double part = config.real_or("partial_rotary_factor", 1);
  if (neox) part = config.real_or("rotary_pct", part);
  config.pass_over({"rope_theta", "rotary_emb_base", "rotary_pct", "partial_rotary_factor", "rope_scaling",
                    "original_max_position_embeddings"});
  const Json none = Json::object();
  const Fields parameters(own ? *own : none, "rope_parameters.");
  Rope out{.base = parameters.real_or("rope_theta", theta)};
  part = parameters.real_or("partial_rotary_factor", part);
  out.dims = static_cast<int64_t>(part * static_cast<double>(head_dim));
  if (out.dims < 0 || out.dims > head_dim || out.dims % 2)
    config.fail(neox ? "rotary_pct" : "partial_rotary_factor",
                "a share of the head that is an even number of elements");
  const std::string type = config.text_or("model_type", "");
  if (out.dims != head_dim && type != "phi3" && type != "gpt_neox")
    throw Error(Code::unsupported, cat("config.json: partial_rotary_factor is not 1 for ", type),
                "export the model to ONNX: optimum-cli export onnx");
  if (out.base <= 0) config.fail("rope_theta", "above 0");
  if (const Json* scaling = config.object("rope_scaling"))
    scale(out, config, Fields(*scaling, "rope_scaling."), context);
  else if (own && (parameters.has("rope_type") || parameters.has("type"))) scale(out, config, parameters, context);
  return out;
}

/// rope_parameters, or of them those of a kind of layer.
const Json* parameters_of(const Fields& config, const char* layers) {
  const Json* all = config.object("rope_parameters");
  if (!all) return nullptr;
  const auto own = all->find(layers);
  return own != all->end() && own->is_object() ? &*own : all;
}

}  // namespace

Rope read_rope(const Fields& config, int64_t head_dim, int64_t context) {
  return rope_of(config, head_dim, context, parameters_of(config, "full_attention"));
}

Rope local_rope(const Fields& config, int64_t head_dim, int64_t context) {
  const double theta = config.real_or("rope_local_base_freq", 10000);
  const Json* own = parameters_of(config, "sliding_attention");
  if (!own || own->contains("sliding_attention") || !config.object("rope_parameters")->contains("sliding_attention"))
    return {.base = theta, .dims = head_dim};
  const Json fields = {{"model_type", "gemma3_text"}, {"rope_theta", theta}, {"max_position_embeddings", context}};
  return rope_of(Fields(fields), head_dim, context, own);
}

}  // namespace plait::huggingface
