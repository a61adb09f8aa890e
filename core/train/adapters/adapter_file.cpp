#include "core/train/adapters/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>

#include "core/base/constant.h"
#include "core/base/draft_directory.h"
#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/base/file_writer.h"
#include "core/base/safetensors.h"

namespace plait {
namespace {


constexpr std::string_view of_module = "base_model.model.", of_prefix = "prompt_embeddings";
/// PEFT also writes the tables that have adapters.
constexpr std::string_view of_base = ".base_layer.weight";
constexpr const char *lora_kind = "LORA", *prefix_kind = "PREFIX_TUNING";
constexpr const char *config_name = "/adapter_config.json", *tensors_name = "/adapter_model.safetensors";

/// Suffix of an adapter tensor's name.
struct Half {
  std::string_view name;
  bool is_a, of_table;
};
constexpr Half halves[] = {
    {lora_a, true, false}, {lora_b, false, false}, {table_a, true, true}, {table_b, false, true}};

/// Whether a key of PEFT's patterns fits a module: a regular expression for the end of its name, after a dot; with "^" for its beginning.
bool fits(const std::string& key, const std::string& module) {
  auto flags = std::regex::ECMAScript;
#ifdef __GLIBCXX__
  flags |= std::regex_constants::__polynomial;  // time is bounded, whatever the file has
#endif
  if (key.starts_with('^'))
    return std::regex_search(module, std::regex(key, flags), std::regex_constants::match_continuous);
  return std::regex_match(module, std::regex("(.*\\.)?(" + key + ")", flags));
}

/// An adapter_config.json.
class Config {
 public:
  explicit Config(const std::string& path)
      : file_(quote(path, 4096)), json_(nlohmann::ordered_json::parse(read_text_file(path), nullptr, false)) {
    if (!json_.is_object()) throw Error(Code::bad_model, cat(file_, " is no JSON object"));
  }
  const std::string& file() const { return file_; }

  bool is_true(const char* key) const {
    auto found = json_.find(key);
    return found != json_.end() && found->is_boolean() && found->get<bool>();
  }
  /// The value of the first pattern that fits the module, as in PEFT; otherwise `usual`.
  double of_module(const char* key, const std::string& module, double usual) const {
    auto patterns = json_.find(key);
    if (patterns == json_.end() || patterns->is_null()) return usual;
    if (!patterns->is_object()) throw Error(Code::bad_model, cat(file_, ": ", key, " is no object"));
    for (const auto& [pattern, value] : patterns->items()) {
      constexpr size_t longest = 4096;
      if (!value.is_number() || pattern.size() > longest)
        throw Error(Code::bad_model, cat(file_, ": ", key, " has no number for ", quote(pattern)));
      try {
        if (fits(pattern, module)) return value.get<double>();
      } catch (const std::regex_error&) {
        throw Error(Code::unsupported, cat(file_, ": ", key, ": ", quote(pattern), " is no regular expression that is known"),
                    "write the modules' names");
      }
    }
    return usual;
  }
  double number(const char* key, double least, double most) const {
    auto found = json_.find(key);
    if (found == json_.end() || !found->is_number())
      throw Error(Code::bad_model, cat(file_, " has no number ", quote(key)));
    const auto value = found->get<double>();
    if (!(value >= least && value <= most))
      throw Error(Code::bad_model, cat(file_, ": ", key, " is ", value, ", expected ", least, " to ", most));
    return value;
  }
  int64_t count(const char* key) const {
    constexpr double most = 1 << 30;
    return static_cast<int64_t>(number(key, 1, most));
  }
  /// Default: LoRA.
  std::string kind() const {
    auto type = json_.find("peft_type");
    return type == json_.end() ? "LORA" : type->is_string() ? type->get<std::string>() : "";
  }

 private:
  const std::string file_;
  const nlohmann::ordered_json json_;
};

void read_lora_config(const Config& config, AdapterWeights& out) {
  if (config.is_true("use_dora"))
    throw Error(Code::unsupported, cat(config.file(), " is of DoRA, another kind of adapter"));
  constexpr double most_rank = 65536, most_alpha = 1e9;  // the limits of the training options
  out.rank = static_cast<int64_t>(config.number("r", 1, most_rank));
  out.alpha = config.number("lora_alpha", 0, most_alpha);
  // alpha / sqrt(rank) (Kalajdzievski 2023).
  if (config.is_true("use_rslora")) out.alpha *= std::sqrt(static_cast<double>(out.rank));
}

/// In f32; throws Error(numeric) for NaN or infinity.
Tensor floats_of(const SafeTensors& file, const std::string& name) {
  Tensor out = materialize({{}, file.tensor(name), {{RecipeStep::Kind::cast, {}, DType::f32}}, {}});
  const auto* numbers = out.as<float>();
  if (!std::all_of(numbers, numbers + out.elements(), [](float number) { return std::isfinite(number); }))
    throw Error(Code::numeric, cat(quote(file.path(), 4096), ": ", quote(name), " has NaN, or infinity"),
                "its training did not go well, or the file is damaged");
  return out;
}

/// B times a factor.
Tensor scaled(const Tensor& b, double factor) {
  Tensor out(DType::f32, b.shape());
  const auto* from = b.as<float>();
  auto* to = reinterpret_cast<float*>(out.data());
  for (int64_t i = 0; i < b.elements(); ++i) to[i] = static_cast<float>(static_cast<double>(from[i]) * factor);
  return out;
}

void check_pair(const std::string& path, const std::string& module, const AdapterWeights::Pair& pair, int64_t rank) {
  if (!pair.a.present() || !pair.b.present())
    throw Error(Code::bad_model, cat(quote(path, 4096), " has only half of the adapter of ", quote(module)));
  if (pair.a.shape().rank() != 2 || pair.b.shape().rank() != 2 || pair.a.shape()[0] != rank ||
      pair.b.shape()[1] != rank)
    throw Error(Code::unsupported, cat(quote(path, 4096), ": the adapter of ", quote(module), " is ",
                                       pair.a.shape().text(), " and ", pair.b.shape().text(), ", its rank ", rank));
}

void read_lora(const Config& config, const SafeTensors& file, AdapterWeights& out) {
  read_lora_config(config, out);
  for (const auto& [name, entry] : file.entries()) {
    if (name.ends_with(of_base)) continue;
    const auto* half = std::find_if(std::begin(halves), std::end(halves),
                                    [&name = name](const Half& one) { return name.ends_with(one.name); });
    if (!name.starts_with(of_module) || half == std::end(halves) || !is_float(entry.dtype))
      throw Error(Code::unsupported,
                  cat(quote(file.path(), 4096), ": ", quote(name), " is no part of a LoRA adapter"));
    AdapterWeights::Pair& pair =
        out.modules[name.substr(of_module.size(), name.size() - of_module.size() - half->name.size())];
    (half->is_a ? pair.a : pair.b) = floats_of(file, name);
    pair.of_table = half->of_table;
  }
  for (auto& [module, pair] : out.modules) {
    const auto whole = static_cast<double>(out.rank), own = config.of_module("rank_pattern", module, whole);
    check_pair(file.path(), module, pair, static_cast<int64_t>(own));
    const double alpha = config.of_module("alpha_pattern", module, config.number("lora_alpha", 0, 1e9));
    const double factor = alpha / (config.is_true("use_rslora") ? std::sqrt(own) : own), usual = out.alpha / whole;
    if (factor == usual) continue;
    // A factor of its own is part of B.
    if (usual == 0)
      throw Error(Code::unsupported, cat(config.file(), ": lora_alpha is 0, and alpha_pattern gives ", quote(module), " another"),
                  "give lora_alpha another number");
    pair.b = scaled(pair.b, factor / usual);
  }
  if (out.modules.empty()) throw Error(Code::bad_model, cat(quote(file.path(), 4096), " holds no adapter"));
}

/// The file has the projected prefix, not the projection.
void read_prefix(const Config& config, const SafeTensors& file, AdapterWeights& out) {
  const int64_t tokens = config.count("num_virtual_tokens"), width = config.count("token_dim");
  PrefixShape& shape = out.prefix_shape;
  shape.layers = config.count("num_layers");
  shape.kv_heads = config.count("num_attention_heads");  // KV heads: PEFT stores them here for grouped-query models
  shape.size = width / shape.kv_heads;
  const auto entry = file.entries().find(std::string(of_prefix));
  if (entry == file.entries().end() || !is_float(entry->second.dtype))
    throw Error(Code::bad_model, cat(quote(file.path(), 4096), " has no floats ", quote(of_prefix)));
  if (shape.width() != width || entry->second.shape != shape.dims(tokens))
    throw Error(Code::bad_model,
                cat(quote(file.path(), 4096), ": ", quote(of_prefix), " is ", entry->second.shape.text(), ", for ",
                    tokens, " tokens of ", shape.layers, " layers of ", width, ", in ", shape.kv_heads,
                    " heads, as in adapter_config.json"));
  out.prefix = floats_of(file, entry->first);
}

void write_config(const std::string& directory, const nlohmann::ordered_json& config) {
  FileWriter file(directory + config_name);
  file.write(config.dump(2) + "\n");
  file.finish();
}

}  // namespace

AdapterWeights read_adapter(const std::string& directory) {
  const Config config(directory + config_name);
  const std::string kind = config.kind();
  if (kind != lora_kind && kind != prefix_kind)
    throw Error(Code::unsupported,
                cat(config.file(), " is of another kind of adapter than ", lora_kind, " or ", prefix_kind));
  const SafeTensors file = SafeTensors::open(directory + tensors_name);
  AdapterWeights out;
  (kind == prefix_kind ? read_prefix : read_lora)(config, file, out);
  return out;
}

void write_adapter(const AdapterWeights& adapter, const std::string& directory, const std::string& base) {
  DraftDirectory draft(directory);
  std::vector<NamedTensor> named;
  nlohmann::ordered_json config{{"peft_type", adapter.prefix_tokens() ? prefix_kind : lora_kind},
                                {"task_type", "CAUSAL_LM"},
                                {"base_model_name_or_path", base},
                                {"inference_mode", true}};
  if (const int64_t tokens = adapter.prefix_tokens()) {
    named.push_back({std::string(of_prefix), adapter.prefix.view()});
    const PrefixShape& shape = adapter.prefix_shape;
    config.update({{"num_virtual_tokens", tokens},
                   {"token_dim", shape.width()},
                   {"num_transformer_submodules", 1},
                   {"num_attention_heads", shape.kv_heads},
                   {"num_layers", shape.layers},
                   {"encoder_hidden_size", shape.width()},
                   {"prefix_projection", false}});
  } else {
    std::vector<std::string> modules;
    auto ranks = nlohmann::ordered_json::object(), alphas = nlohmann::ordered_json::object();
    for (const auto& [module, pair] : adapter.modules) {
      if (const int64_t own = pair.a.shape()[0]; own != adapter.rank) {
        ranks[module] = own;
        alphas[module] = adapter.alpha * static_cast<double>(own) / static_cast<double>(adapter.rank);
      }
      for (const Half& half : halves)
        if (half.of_table == pair.of_table)
          named.push_back({cat(of_module, module, half.name), (half.is_a ? pair.a : pair.b).view()});
      modules.push_back(module);
    }
    config.update({{"r", adapter.rank},
                   {"lora_alpha", adapter.alpha},
                   {"lora_dropout", 0.0},
                   {"bias", "none"},
                   {"fan_in_fan_out", false},
                   {"rank_pattern", ranks},
                   {"alpha_pattern", alphas},
                   {"target_modules", modules}});
  }
  write_safetensors(draft.path() + tensors_name, std::move(named), {{"format", "pt"}});
  write_config(draft.path(), config);
  draft.publish(config_name + 1, DraftDirectory::Existing::replaced);
}

}  // namespace plait
