#include "core/train/trained_weights.h"

#include <cstring>
#include <filesystem>
#include <set>

#include "core/base/block.h"
#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/train/trainer.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view of_a = ".lora_A.weight", of_b = ".lora_B.weight";

/// "model.layers.0.self_attn.q_proj" of "model.layers.0.self_attn.q_proj.lora_A.weight".
std::string module_of(const std::string& name) { return name.substr(0, name.rfind(".lora_")); }

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

FileTensors merged_tensors(const std::vector<TrainedParameter>& parameters, const LoraOptions& lora,
                           const ArrayOf& array_of, ThreadPool* pool) {
  FileTensors out;
  std::map<std::string, std::string> keys;
  for (const TrainedParameter& parameter : parameters) keys[parameter.name] = parameter.key;
  for (const TrainedParameter& parameter : parameters) {
    if (!parameter.name.ends_with(of_b)) continue;
    const std::string module = module_of(parameter.name);
    if (!parameter.base)
      throw Error(Code::unsupported,
                  cat("the weight of ", quote(module),
                      " cannot take in its adapter: it is quantised, or read by others, too"),
                  "keep the adapter apart");
    const Tensor a = array_of(keys.at(cat(module, of_a))), b = array_of(parameter.key);
    write_back(*parameter.base, merged(*parameter.base, a, b, lora.alpha / static_cast<double>(lora.rank), pool), out,
               pool);
  }
  return out;
}

/// The file's arrays by the keys of the parameters that they are of. Throws unless they are the same.
std::map<std::string, Tensor> adapter_arrays(const std::vector<TrainedParameter>& parameters,
                                             const AdapterWeights& file) {
  std::map<std::string, Tensor> out;
  std::set<std::string> taken;
  const char* const hint = "the adapter is of another model, or of other targets";
  for (const TrainedParameter& parameter : parameters) {
    const std::string module = module_of(parameter.name);
    auto found = file.modules.find(module);
    if (found == file.modules.end())
      throw Error(Code::invalid_argument, cat("the adapter has no ", quote(parameter.name)), hint);
    const Tensor& there = parameter.name.ends_with(of_a) ? found->second.a : found->second.b;
    if (there.shape() != parameter.shape)
      throw Error(Code::invalid_argument,
                  cat("the adapter's ", quote(parameter.name), " is ", there.shape().text(), ", the model's is ",
                      parameter.shape.text()),
                  hint);
    out[parameter.key] = there;
    taken.insert(module);
  }
  for (const auto& [module, pair] : file.modules)
    if (!taken.contains(module))
      throw Error(Code::invalid_argument, cat("the adapter's ", quote(module), " fits no weight of the model"), hint);
  return out;
}

/// Which parameters a run of these options has, without one.
std::vector<TrainedParameter> parameters_of(const Graph& graph, const CompileOptions& options,
                                            const LoraOptions& lora, const std::vector<std::string>& trained) {
  constexpr int64_t few = 8;
  TrainingOptions training;
  training.lora = lora;
  training.trained = trained;
  training.row_tokens = few;  // nothing is run
  return compile_training(graph, options, training).parameters;
}

/// The directory of a step: itself, or the newest of a run's.
std::string step_directory(const std::string& path) {
  if (!fs::exists(path + "/manifest.json"))
    for (const std::string& of_run : {path, path + "/checkpoints"})
      if (const auto there = list_checkpoints(of_run); !there.empty()) return there.back();
  return path;
}

}  // namespace

FileTensors trained_tensors(const std::vector<TrainedParameter>& parameters, const LoraOptions& lora,
                            const ArrayOf& array_of, ThreadPool* pool) {
  if (lora.rank) return merged_tensors(parameters, lora, array_of, pool);
  FileTensors out;
  for (const TrainedParameter& parameter : parameters) {
    const Tensor value = array_of(parameter.key);
    write_back(*parameter.origin, value, out, pool);
    for (const auto& copy : parameter.copies) write_back(*copy, value, out, pool);
  }
  return out;
}

FileTensors trained_tensors(const TrainingEngine& engine, const LoraOptions& lora, ThreadPool* pool) {
  return trained_tensors(
      engine.parameters(), lora, [&](const std::string& key) { return engine.array(key); }, pool);
}

FileTensors tensors_of_checkpoint(const Graph& graph, const CompileOptions& options, const std::string& path,
                                  ThreadPool* pool) {
  const Checkpoint checkpoint = Checkpoint::open(step_directory(path), fingerprint(graph));
  const TrainingOptions training = trained_by(checkpoint.info());
  return trained_tensors(
      parameters_of(graph, options, training.lora, training.trained), training.lora,
      [&](const std::string& key) { return checkpoint.read(key); }, pool);
}

FileTensors tensors_of_adapter(const Graph& graph, const CompileOptions& options, const std::string& directory,
                               ThreadPool* pool) {
  const AdapterWeights file = read_adapter(directory);
  const LoraOptions lora = LoraOptions::of(file);
  const std::vector<TrainedParameter> parameters = parameters_of(graph, options, lora, {});
  const std::map<std::string, Tensor> arrays = adapter_arrays(parameters, file);
  return trained_tensors(
      parameters, lora, [&](const std::string& key) { return arrays.at(key); }, pool);
}

Graph with_tensors(Graph graph, const FileTensors& tensors) {
  size_t found = 0;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const auto& constant = graph.value(id).constant;
    auto changed = constant ? tensors.find(constant->initializer) : tensors.end();
    if (changed == tensors.end()) continue;
    Constant now = *constant;
    now.source = changed->second;
    graph.value(id).constant = std::make_shared<Constant>(std::move(now));
    ++found;
  }
  if (found < tensors.size())
    throw Error(Code::invalid_argument, "the model does not have all of the tensors that are to be changed");
  return graph;
}

void save_adapter(const TrainingEngine& engine, const LoraOptions& lora, const std::string& directory,
                  const std::string& base) {
  if (!lora.rank) throw Error(Code::invalid_argument, "the run has no adapters to save", "train with a LoRA rank");
  AdapterWeights out{.rank = lora.rank, .alpha = lora.alpha};
  for (const TrainedParameter& parameter : engine.parameters()) {
    AdapterWeights::Pair& pair = out.modules[module_of(parameter.name)];
    (parameter.name.ends_with(of_a) ? pair.a : pair.b) = engine.array(parameter.key);
  }
  write_adapter(out, directory, base);
}

void load_adapter(TrainingEngine& engine, const LoraOptions& lora, const std::string& directory) {
  const AdapterWeights file = read_adapter(directory);
  if (file.rank != lora.rank || file.alpha != lora.alpha)
    throw Error(Code::invalid_argument,
                cat(quote(directory, 4096), ": r is ", file.rank, " and lora_alpha ", file.alpha,
                    ", the model's adapters have ", lora.rank, " and ", lora.alpha),
                "give the rank and alpha of the adapter");
  for (const auto& [key, value] : adapter_arrays(engine.parameters(), file)) engine.set_array(key, value.view());
}

}  // namespace plait
