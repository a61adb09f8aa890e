#include "importers/huggingface/config_fields.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::huggingface {
namespace {

using Json = nlohmann::json;

const Json& defaults() {
  static const Json table = Json::parse(defaults_json);
  return table;
}

/// Fields of the classes that change no logits: training, dropout, heads of other tasks, forms of what is returned, names.
constexpr std::string_view harmless[] = {"architectures",
                                         "attention_dropout",
                                         "attn_pdrop",
                                         "bos_token_id",
                                         "chunk_size_feed_forward",
                                         "classifier_dropout",
                                         "decoder_start_token_id",
                                         "dtype",
                                         "embd_pdrop",
                                         "eos_token_id",
                                         "finetuning_task",
                                         "hidden_dropout",
                                         "id2label",
                                         "initializer_range",
                                         "is_decoder",
                                         "label2id",
                                         "model_type",
                                         "num_labels",
                                         "output_attentions",
                                         "output_hidden_states",
                                         "output_router_logits",
                                         "pad_token_id",
                                         "prefix",
                                         "pretraining_tp",
                                         "problem_type",
                                         "reorder_and_upcast_attn",
                                         "resid_pdrop",
                                         "return_dict",
                                         "router_aux_loss_coef",
                                         "router_jitter_noise",
                                         "sep_token_id",
                                         "summary_activation",
                                         "summary_first_dropout",
                                         "summary_proj_to_labels",
                                         "summary_type",
                                         "summary_use_proj",
                                         "task_specific_params",
                                         "tie_encoder_decoder",
                                         "tokenizer_class",
                                         "torch_dtype",
                                         "torchscript",
                                         "transformers_version",
                                         "use_cache"};

template <class List>
bool contains(const List& list, std::string_view key) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

/// The names that programs give their field for quantised weights: transformers, compressed-tensors once, MLX.
void refuse_quantised(const Json& config) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    const auto found = config.find(key);
    if (found == config.end() || !found->is_object()) continue;
    std::string method = key == std::string_view("quantization") ? "mlx" : "compressed-tensors";
    if (const auto named = found->find("quant_method"); named != found->end() && named->is_string()) method = *named;
    else if (key == std::string_view("quantization_config"))
      for (const char* bits : {"load_in_4bit", "load_in_8bit"})
        if (found->contains(bits) && found->at(bits) == true) method = "bitsandbytes";
    std::string bits;
    for (const char* one : {"bits", "w_bit", "nbits"})
      if (found->contains(one) && found->at(one).is_number_integer())
        bits = cat(", ", found->at(one).dump(), " bits");
    throw Error(Code::unsupported,
                cat("config.json: ", key, ": the weights are quantised (", quote(method), bits, ")"),
                "take the model in bf16 or f16, a GGUF file of it, or one that was exported to ONNX");
  }
}

/// A head that gives classes, or the like, gives no tokens.
void refuse_other_heads(const Json& config) {
  const auto found = config.find("architectures");
  if (found == config.end() || !found->is_array()) return;
  for (const Json& one : *found) {
    if (!one.is_string()) continue;
    const auto& name = one.get_ref<const std::string&>();
    const size_t at = name.rfind("For");
    if (at == std::string::npos || name.ends_with("ForCausalLM") || name.ends_with("ForConditionalGeneration"))
      continue;
    throw Error(Code::unsupported,
                cat("config.json: architectures is ", quote(name), ", whose outputs are no tokens"),
                "export it to ONNX: optimum-cli export onnx");
  }
}

/// The part for text, and its kind.
std::pair<Json, std::string> text_of(const Json& config) {
  const auto type_of = [](const Json& json) {
    const auto found = json.find("model_type");
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const std::string whole = type_of(config);
  const Json& texts = defaults().at("text");
  const auto text = config.find("text_config");
  const bool has_text = text != config.end() && text->is_object();
  if (!has_text && !texts.contains(whole)) return {config, whole};
  Json part = has_text ? *text : Json::object();
  std::string type = type_of(part);
  if (type.empty() && texts.contains(whole)) type = texts.at(whole);
  return {std::move(part), type};
}

}  // namespace

Completed completed(const Json& config) {
  if (!config.is_object()) throw Error(Code::bad_model, "config.json is no JSON object");
  refuse_quantised(config);
  refuse_other_heads(config);
  auto [text, type] = text_of(config);
  refuse_quantised(text);
  Completed out{.type = type};
  const Json& types = defaults().at("types");
  if (!types.contains(type)) {
    std::vector<std::string> known;
    for (const auto& [name, fields] : types.items()) known.push_back(name);
    throw Error(Code::unsupported, cat("config.json: the model_type ", quote(type), " is not known"),
                cat("those that are: ", join(known, ", "), "; others can be exported: optimum-cli export onnx"));
  }
  out.fields = defaults().at("base");
  out.fields.update(types.at(type));
  for (const auto& [key, value] : out.fields.items()) out.known.insert(key);
  const Json& names = defaults().at("names");
  const Json& own = names.contains(type) ? names.at(type) : Json::object();
  // As in transformers, a field by another name is taken after those by its own.
  for (const bool renamed : {false, true})
    for (const auto& [key, value] : text.items()) {
      if (own.contains(key) != renamed) continue;
      const std::string name = renamed ? own.at(key).get<std::string>() : key;
      out.fields[name] = value;
      out.given.insert(name);
    }
  out.fields["model_type"] = type;
  return out;
}

Json with_defaults(const Json& config, bool has_generation_config) {
  const Completed text = completed(config);
  Json out = config;
  // The base's defaults are left out: programs that read this file have them, too.
  const auto complete = [&](Json& part) {
    for (const auto& [key, value] : defaults().at("types").at(text.type).items())
      if (!part.contains(key) && !text.given.contains(key) && !value.is_null() &&
          !(has_generation_config && key.ends_with("_token_id")))
        part[key] = value;
    part["model_type"] = text.type;
    part["tie_word_embeddings"] = text.fields.at("tie_word_embeddings");
  };
  if (defaults().at("text").contains(out.value("model_type", "")) && !out.contains("text_config"))
    out["text_config"] = Json::object();
  complete(out.contains("text_config") ? out["text_config"] : out);
  return out;
}

bool Fields::has(const char* key) const {
  read_.emplace(key);
  return json_.contains(key) && !json_.at(key).is_null();
}

int64_t Fields::integer(const char* key, int64_t least, int64_t most) const {
  if (!has(key) || !json_.at(key).is_number_integer()) fail(key, "an integer");
  const Json& value = json_.at(key);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most))
    fail(key, cat("from ", least, " to ", most));
  const auto out = value.get<int64_t>();
  if (out < least || out > most) fail(key, cat("from ", least, " to ", most));
  return out;
}

double Fields::real(const char* key) const {
  if (!has(key) || !json_.at(key).is_number()) fail(key, "a number");
  return json_.at(key).get<double>();
}

bool Fields::flag_or(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_boolean()) fail(key, "true or false");
  return json_.at(key).get<bool>();
}

std::string Fields::text_or(const char* key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_string()) fail(key, "text");
  return json_.at(key).get<std::string>();
}

const Json* Fields::object(const char* key) const {
  if (!has(key)) return nullptr;
  if (!json_.at(key).is_object()) fail(key, "an object");
  return &json_.at(key);
}

void Fields::pass_over(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) read_.emplace(key);
}

std::vector<std::string> Fields::unread() const {
  std::vector<std::string> out;
  for (const auto& [key, value] : json_.items())
    if (!read_.contains(key)) out.push_back(key);
  return out;
}

void Fields::fail(const char* key, std::string_view what) const {
  throw Error(Code::bad_model, cat("config.json: ", place_, key, " is not ", what),
              "compare it with the model's own page");
}

std::vector<std::string> unknown_fields(const Completed& config, const Fields& fields) {
  std::vector<std::string> out = fields.notes();
  for (const std::string& key : fields.unread()) {
    if (!config.given.contains(key) || contains(harmless, key) || key.starts_with('_')) continue;
    if (contains(defaults().at("generation"), key)) continue;
    if (!config.known.contains(key)) {
      out.push_back(key);
      continue;
    }
    const Json& base = defaults().at("base");
    const Json& own = defaults().at("types").at(config.type);
    const Json& value = config.fields.at(key);
    const Json& usual = own.contains(key) ? own.at(key) : base.at(key);
    const bool empty = usual.is_null() && (value.is_null() || value.empty());
    if (value != usual && !empty)
      throw Error(Code::unsupported,
                  cat("config.json: ", key, " is ", quote(value.dump()), ", which is not supported for ", config.type,
                      ", expected ", usual.dump()),
                  "export the model to ONNX: optimum-cli export onnx");
  }
  return out;
}

}  // namespace plait::huggingface
