#include "core/train/adapter_file.h"

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
  if (!config.is_object()) throw Error(Code::bad_model, cat(quote(path, 4096), " is no JSON object"));
  if (config.value("peft_type", "LORA") != "LORA" || config.value("use_dora", false))
    throw Error(Code::unsupported, cat(quote(path, 4096), " is of another kind of adapter than LoRA"));
  auto number = [&](const char* key) {
    auto found = config.find(key);
    if (found == config.end() || !found->is_number())
      throw Error(Code::bad_model, cat(quote(path, 4096), " has no number ", quote(key)));
    return found->get<double>();
  };
  out.rank = static_cast<int64_t>(number("r"));
  out.alpha = number("lora_alpha");
  if (out.rank < 1) throw Error(Code::bad_model, cat(quote(path, 4096), ": r is ", out.rank));
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
