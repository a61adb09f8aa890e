#include "core/train/adapter_file.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/train/file_writer.h"
#include "core/train/safetensors.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "base_model.model.", of_a = ".lora_A.weight", of_b = ".lora_B.weight";
constexpr const char *config_name = "/adapter_config.json", *tensors_name = "/adapter_model.safetensors";

void read_config(const std::string& path, AdapterWeights& out) {
  const auto config = nlohmann::json::parse(read_text_file(path), nullptr, false);
  const std::string file = quote(path, 4096);
  if (!config.is_object()) throw Error(Code::bad_model, cat(file, " is no JSON object"));
  auto is_true = [&](const char* key) {
    auto found = config.find(key);
    return found != config.end() && found->is_boolean() && found->get<bool>();
  };
  auto type = config.find("peft_type");
  const bool is_lora = type == config.end() || (type->is_string() && type->get<std::string>() == "LORA");
  if (!is_lora || is_true("use_dora"))
    throw Error(Code::unsupported, cat(file, " is of another kind of adapter than LoRA"));
  for (const char* key : {"rank_pattern", "alpha_pattern"})
    if (auto found = config.find(key); found != config.end() && !found->empty())
      throw Error(Code::unsupported, cat(file, ": ", key, " gives modules ranks or factors of their own"),
                  "adapters of one rank and alpha are read");
  auto number = [&](const char* key, double least, double most) {
    auto found = config.find(key);
    if (found == config.end() || !found->is_number())
      throw Error(Code::bad_model, cat(file, " has no number ", quote(key)));
    const auto value = found->get<double>();
    if (!(value >= least && value <= most))
      throw Error(Code::bad_model, cat(file, ": ", key, " is ", value, ", expected ", least, " to ", most));
    return value;
  };
  constexpr double most_rank = 65536, most_alpha = 1e9;  // as of the options of training
  out.rank = static_cast<int64_t>(number("r", 1, most_rank));
  out.alpha = number("lora_alpha", 0, most_alpha);
  // alpha / sqrt(rank) (Kalajdzievski 2023).
  if (is_true("use_rslora")) out.alpha *= std::sqrt(static_cast<double>(out.rank));
}

Tensor as_f32(const Tensor& tensor) {
  return materialize({{}, tensor, {{RecipeStep::Kind::cast, {}, DType::f32}}, {}});
}

void check_pair(const std::string& path, const std::string& module, const AdapterWeights::Pair& pair, int64_t rank) {
  if (!pair.a.present() || !pair.b.present())
    throw Error(Code::bad_model, cat(quote(path, 4096), " has half of the adapter of ", quote(module), " alone"));
  if (pair.a.shape().rank() != 2 || pair.b.shape().rank() != 2 || pair.a.shape()[0] != rank ||
      pair.b.shape()[1] != rank)
    throw Error(Code::unsupported, cat(quote(path, 4096), ": the adapter of ", quote(module), " is ",
                                       pair.a.shape().text(), " and ", pair.b.shape().text(), ", its rank ", rank));
}

}  // namespace

AdapterWeights read_adapter(const std::string& directory) {
  AdapterWeights out;
  read_config(directory + config_name, out);
  const SafeTensors file = SafeTensors::open(directory + tensors_name);
  for (const auto& [name, entry] : file.entries()) {
    const bool is_a = name.ends_with(of_a), is_b = name.ends_with(of_b);
    if (!name.starts_with(prefix) || !(is_a || is_b) || !is_float(entry.dtype))
      throw Error(Code::unsupported,
                  cat(quote(file.path(), 4096), ": ", quote(name), " is no part of a LoRA adapter"));
    AdapterWeights::Pair& pair = out.modules[name.substr(prefix.size(), name.size() - prefix.size() - of_a.size())];
    (is_a ? pair.a : pair.b) = as_f32(file.tensor(name));
  }
  for (const auto& [module, pair] : out.modules) check_pair(file.path(), module, pair, out.rank);
  if (out.modules.empty()) throw Error(Code::bad_model, cat(quote(file.path(), 4096), " holds no adapter"));
  return out;
}

void write_adapter(const AdapterWeights& adapter, const std::string& directory, const std::string& base) {
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) throw Error(Code::io, cat("cannot make ", quote(directory, 4096), ": ", failure.message()));
  std::vector<NamedTensor> named;
  std::vector<std::string> modules;
  for (const auto& [module, pair] : adapter.modules) {
    named.push_back({cat(prefix, module, of_a), pair.a.view()});
    named.push_back({cat(prefix, module, of_b), pair.b.view()});
    modules.push_back(module);
  }
  write_safetensors(directory + tensors_name, std::move(named), {{"format", "pt"}});
  const nlohmann::ordered_json config{
      {"peft_type", "LORA"},      {"task_type", "CAUSAL_LM"},    {"base_model_name_or_path", base},
      {"r", adapter.rank},        {"lora_alpha", adapter.alpha}, {"lora_dropout", 0.0},
      {"bias", "none"},           {"fan_in_fan_out", false},     {"inference_mode", true},
      {"target_modules", modules}};
  FileWriter file(directory + config_name);
  file.write(config.dump(2) + "\n");
  file.finish();
  sync_directory(directory);
}

}  // namespace plait
