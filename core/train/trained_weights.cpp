#include "core/train/trained_weights.h"

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/mapped_file.h"
#include "core/base/text.h"
#include "core/train/file_writer.h"
#include "core/train/safetensors.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "base_model.model.";
constexpr const char *config_name = "/adapter_config.json", *tensors_name = "/adapter_model.safetensors";

/// "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.lora_A.weight".
std::string module_of(const std::string& name) { return name.substr(0, name.rfind(".lora_")); }

void write_file(const std::string& path, std::string_view text) {
  FileWriter file(path);
  file.write(text);
  file.finish();
}

/// w + scale b a: [n, k], [n, rank], [rank, k], all f32.
Tensor merged(const Constant& base, const Tensor& a, const Tensor& b, double scale, ThreadPool* pool) {
  Constant wide = base;
  wide.steps.push_back({RecipeStep::Kind::cast, {}, DType::f32});
  const Tensor w = materialize(wide, pool);
  Tensor out(DType::f32, w.shape());
  const int64_t n = out.shape()[0], k = out.shape()[1], rank = a.shape()[0];
  std::memcpy(out.data(), w.data(), static_cast<size_t>(w.bytes()));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 0; r < rank; ++r) {
      const auto factor = static_cast<float>(scale * b.as<float>()[i * rank + r]);
      const float* from = a.as<float>() + r * k;
      float* to = out.as<float>() + i * k;
      for (int64_t j = 0; j < k; ++j) to[j] += factor * from[j];
    }
  return out;
}

/// Throws unless the directory's configuration says the same of the adapters.
void check_config(const std::string& path, const LoraOptions& lora) {
  const auto config = nlohmann::json::parse(read_text_file(path), nullptr, false);
  if (!config.is_object()) throw Error(Code::bad_model, cat(quote(path, 4096), " is no JSON object"));
  auto check = [&](const char* key, double wanted) {
    auto found = config.find(key);
    if (found == config.end() || !found->is_number())
      throw Error(Code::bad_model, cat(quote(path, 4096), " has no number ", quote(key)));
    if (found->get<double>() != wanted)
      throw Error(
          Code::invalid_argument,
          cat(quote(path, 4096), ": ", key, " is ", found->get<double>(), ", the model's adapters have ", wanted),
          "give the rank and alpha of the adapter");
  };
  check("r", static_cast<double>(lora.rank));
  check("lora_alpha", lora.alpha);
}

}  // namespace

std::map<std::string, Tensor> trained_tensors(const TrainingEngine& engine, ThreadPool* pool) {
  std::map<std::string, Tensor> out;
  for (const TrainedParameter& parameter : engine.parameters()) {
    const Constant& origin = *parameter.origin;
    if (origin.initializer.empty() && origin.parts.empty()) continue;  // an adapter
    const Tensor value = engine.array(parameter.key);
    write_back(origin, value, out, pool);
    for (const auto& copy : parameter.copies) write_back(*copy, value, out, pool);
  }
  return out;
}

std::map<std::string, Tensor> merged_tensors(const TrainingEngine& engine, const LoraOptions& lora,
                                             ThreadPool* pool) {
  std::map<std::string, Tensor> out;
  std::map<std::string, Tensor> halves;
  for (const TrainedParameter& parameter : engine.parameters()) halves[parameter.name] = engine.array(parameter.key);
  for (const TrainedParameter& parameter : engine.parameters()) {
    const std::string module = module_of(parameter.name);
    if (parameter.name != module + ".lora_B.weight") continue;
    if (!parameter.base)
      throw Error(Code::unsupported,
                  cat("the weight of ", quote(module),
                      " cannot take in its adapter: it is quantised, or read by others, too"),
                  "keep the adapter apart");
    const double scale = lora.alpha / static_cast<double>(lora.rank);
    const Tensor value =
        merged(*parameter.base, halves.at(module + ".lora_A.weight"), halves.at(parameter.name), scale, pool);
    write_back(*parameter.base, value, out, pool);
  }
  return out;
}

void save_adapter(const TrainingEngine& engine, const LoraOptions& lora, const std::string& directory,
                  const std::string& base) {
  if (!lora.rank) throw Error(Code::invalid_argument, "the run has no adapters to save", "train with a LoRA rank");
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) throw Error(Code::io, cat("cannot make ", quote(directory, 4096), ": ", failure.message()));
  std::vector<Tensor> tensors;
  std::vector<NamedTensor> named;
  std::set<std::string> modules;
  for (const TrainedParameter& parameter : engine.parameters()) {
    tensors.push_back(engine.array(parameter.key));
    named.push_back({cat(prefix, parameter.name), tensors.back().view()});
    modules.insert(module_of(parameter.name));
  }
  write_safetensors(directory + tensors_name, std::move(named), {{"format", "pt"}});
  const nlohmann::ordered_json config{
      {"peft_type", "LORA"},      {"task_type", "CAUSAL_LM"}, {"base_model_name_or_path", base},
      {"r", lora.rank},           {"lora_alpha", lora.alpha}, {"lora_dropout", 0.0},
      {"bias", "none"},           {"fan_in_fan_out", false},  {"inference_mode", true},
      {"target_modules", modules}};
  write_file(directory + config_name, config.dump(2) + "\n");
  sync_directory(directory);
}

void load_adapter(TrainingEngine& engine, const LoraOptions& lora, const std::string& directory) {
  check_config(directory + config_name, lora);
  const SafeTensors file = SafeTensors::open(directory + tensors_name);
  std::map<std::string, Tensor> values;
  for (const TrainedParameter& parameter : engine.parameters()) {
    const std::string name = cat(prefix, parameter.name);
    if (!file.has(name))
      throw Error(Code::invalid_argument, cat(quote(file.path(), 4096), " has no ", quote(name)),
                  "the adapter is of another model, or of other targets");
    const Tensor there = file.tensor(name);
    if (there.shape() != parameter.shape)
      throw Error(Code::invalid_argument, cat(quote(file.path(), 4096), ": ", quote(name), " is ",
                                              there.shape().text(), ", the model's is ", parameter.shape.text()));
    values[name] = materialize({{}, there, {{RecipeStep::Kind::cast, {}, DType::f32}}, {}});
  }
  for (const auto& [name, entry] : file.entries())
    if (!values.contains(name))
      throw Error(Code::invalid_argument,
                  cat(quote(file.path(), 4096), ": ", quote(name), " fits no weight of the model"),
                  "the adapter is of another model, or of other targets");
  for (const TrainedParameter& parameter : engine.parameters()) {
    const Tensor& value = values[cat(prefix, parameter.name)];
    std::memcpy(engine.array(parameter.key).data(), value.data(), static_cast<size_t>(value.bytes()));
  }
}

}  // namespace plait
