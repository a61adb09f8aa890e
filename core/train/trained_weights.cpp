#include "core/train/trained_weights.h"

#include <cstring>
#include <filesystem>
#include <set>

#include "core/base/block.h"
#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/module_names.h"
#include "core/train/trainer.h"

namespace plait {
namespace {

namespace fs = std::filesystem;

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
    if (!parameter.name.ends_with(lora_b)) continue;
    const std::string module = module_of(parameter.name);
    if (!parameter.base)
      throw Error(Code::unsupported,
                  cat("the weight of ", quote(module),
                      " cannot take in its adapter: it is quantised, or read by others, too"),
                  "keep the adapter apart (plait export --apart, plait_trainer_save_adapter)");
    const Tensor a = array_of(keys.at(cat(module, lora_a))), b = array_of(parameter.key);
    write_back(*parameter.base, merged(*parameter.base, a, b, lora.alpha / static_cast<double>(lora.rank), pool), out,
               pool);
  }
  return out;
}

constexpr const char* wrong_adapter = "the adapter is of another model, or of other targets";

std::vector<AdaptedLinear> products_of(const std::vector<TrainedParameter>& parameters) {
  std::map<std::string, AdaptedLinear> out;
  for (const TrainedParameter& one : parameters) {
    AdaptedLinear& product = out[module_of(one.name)];
    product.module = module_of(one.name);
    (one.name.ends_with(lora_a) ? product.k : product.n) = one.shape[one.name.ends_with(lora_a) ? 1 : 0];
  }
  std::vector<AdaptedLinear> all;
  for (const auto& [module, product] : out) all.push_back(product);
  return all;
}

/// The file's arrays by the keys of the parameters that they are of. Throws unless they are the same.
std::map<std::string, Tensor> low_rank_arrays(const std::vector<TrainedParameter>& parameters,
                                              const AdapterWeights& given) {
  const AdapterWeights file = as_products(given, products_of(parameters));
  if (file.rank != given.rank)
    throw Error(Code::unsupported,
                cat("the adapter's queries, keys and values are one product of the model, whose rank would be ",
                    file.rank, ", others have ", given.rank),
                "generators take it, with that adapter_rank");
  std::map<std::string, Tensor> out;
  std::set<std::string> taken;
  for (const TrainedParameter& parameter : parameters) {
    const std::string module = module_of(parameter.name);
    auto found = file.modules.find(module);
    if (found == file.modules.end())
      throw Error(Code::invalid_argument, cat("the adapter has no ", quote(parameter.name)), wrong_adapter);
    const Tensor& there = parameter.name.ends_with(lora_a) ? found->second.a : found->second.b;
    if (there.shape() != parameter.shape)
      throw Error(Code::invalid_argument,
                  cat("the adapter's ", quote(parameter.name), " is ", there.shape().text(), ", the model's is ",
                      parameter.shape.text()),
                  wrong_adapter);
    out[parameter.key] = there;
    taken.insert(module);
  }
  for (const auto& [module, pair] : file.modules)
    if (!taken.contains(module))
      throw Error(Code::invalid_argument, cat("the adapter's ", quote(module), " fits no weight of the model"),
                  wrong_adapter);
  return out;
}

/// Calls visit(parameter, where it begins in the whole prefix).
template <class Visit>
void each_part_of_prefix(const TrainingModel& model, const Visit& visit) {
  std::map<std::string, const TrainedParameter*> named;
  for (const TrainedParameter& parameter : model.parameters) named[parameter.name] = &parameter;
  const PrefixShape shape = prefix_shape(model.decoder);
  for (int64_t layer = 0; layer < shape.layers; ++layer)
    for (const bool values : {false, true})
      if (auto found = named.find(prefix_name(static_cast<size_t>(layer), values)); found != named.end())
        visit(*found->second, Shape{0, (2 * layer + values) * shape.width()});
}

std::map<std::string, Tensor> prefix_arrays(const TrainingModel& model, const AdapterWeights& file) {
  check_prefix(file, model.decoder);
  std::map<std::string, Tensor> out;
  each_part_of_prefix(model, [&](const TrainedParameter& parameter, const Shape& begin) {
    Tensor part(DType::f32, parameter.shape);
    take_block(file.prefix.view(), begin, part.view());
    out[parameter.key] = std::move(part);
  });
  return out;
}

std::map<std::string, Tensor> adapter_arrays(const TrainingModel& model, const AdapterWeights& file) {
  return file.prefix_tokens() ? prefix_arrays(model, file) : low_rank_arrays(model.parameters, file);
}

/// What a run of these options trains, without one.
TrainingModel model_of(const Graph& graph, const CompileOptions& options, TrainingOptions training) {
  constexpr int64_t few = 8;
  training.row_tokens = few;  // nothing is run
  return compile_training(graph, options, training);
}

/// The directory of a step: itself, or the newest of a run's.
std::string step_directory(const std::string& path) {
  if (!fs::exists(path + "/manifest.json"))
    for (const std::string& of_run : {path, path + "/checkpoints"})
      if (const auto there = list_checkpoints(of_run); !there.empty()) return there.back();
  return path;
}

}  // namespace

FileTensors trained_tensors(const std::vector<TrainedParameter>& parameters, const TrainingOptions& training,
                            const ArrayOf& array_of, ThreadPool* pool) {
  if (training.prefix.tokens)
    throw Error(
        Code::unsupported, "a prefix is keys and values beside the weights, which cannot take it in",
        "keep it apart, as an adapter (plait export --apart, plait_trainer_save_adapter): generators and PEFT load "
        "its directory beside the model as it is");
  if (training.lora.rank) return merged_tensors(parameters, training.lora, array_of, pool);
  FileTensors out;
  for (const TrainedParameter& parameter : parameters) {
    const Tensor value = array_of(parameter.key);
    write_back(*parameter.origin, value, out, pool);
    for (const auto& copy : parameter.copies) write_back(*copy, value, out, pool);
  }
  return out;
}

FileTensors trained_tensors(const TrainingEngine& engine, ThreadPool* pool) {
  return trained_tensors(
      engine.parameters(), engine.training(), [&](const std::string& key) { return engine.array(key); }, pool);
}

FoundCheckpoint find_checkpoint(const Graph& graph, const std::string& path) {
  const std::string step = step_directory(path);
  const Checkpoint checkpoint = Checkpoint::open(step);
  checkpoint.check_model(fingerprint(graph, checkpoint.info()));
  return {step, trained_by(checkpoint.info())};
}

FileTensors tensors_of_checkpoint(const Graph& graph, const CompileOptions& options, const std::string& path,
                                  ThreadPool* pool) {
  const FoundCheckpoint found = find_checkpoint(graph, path);
  const Checkpoint checkpoint = Checkpoint::open(found.path);
  return trained_tensors(
      model_of(graph, options, found.training).parameters, found.training,
      [&](const std::string& key) { return checkpoint.read(key); }, pool);
}

FileTensors tensors_of_adapter(const Graph& graph, const CompileOptions& options, const std::string& directory,
                               ThreadPool* pool) {
  const AdapterWeights file = read_adapter(directory);
  TrainingOptions training;
  training.begin_with(file);
  const TrainingModel model = model_of(graph, options, training);
  const std::map<std::string, Tensor> arrays = adapter_arrays(model, file);
  return trained_tensors(
      model.parameters, training, [&](const std::string& key) { return arrays.at(key); }, pool);
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

AdapterWeights adapter_of(const TrainingEngine& engine) {
  const TrainingOptions& training = engine.training();
  if (!training.has_adapters())
    throw Error(Code::invalid_argument, "the run has no adapters to save", "train with a LoRA rank, or a prefix");
  AdapterWeights out{.rank = training.lora.rank, .alpha = training.lora.alpha};
  if (const int64_t tokens = training.prefix.tokens) {
    out.prefix_shape = prefix_shape(engine.model().decoder);
    out.prefix = Tensor(DType::f32, out.prefix_shape.dims(tokens));
    std::memset(out.prefix.data(), 0, static_cast<size_t>(out.prefix.bytes()));
    each_part_of_prefix(engine.model(), [&](const TrainedParameter& parameter, const Shape& begin) {
      put_block(out.prefix.view(), begin, engine.array(parameter.key).view());
    });
    return out;
  }
  for (const TrainedParameter& parameter : engine.parameters()) {
    AdapterWeights::Pair& pair = out.modules[module_of(parameter.name)];
    (parameter.name.ends_with(lora_a) ? pair.a : pair.b) = engine.array(parameter.key);
  }
  return out;
}

void save_adapter(const TrainingEngine& engine, const std::string& directory, const std::string& base) {
  write_adapter(as_modules(adapter_of(engine), engine.model().decoder), directory, base);
}

void load_adapter(TrainingEngine& engine, const std::string& directory) {
  const AdapterWeights file = read_adapter(directory);
  const TrainingOptions& training = engine.training();
  if (file.rank != training.lora.rank || (file.rank && file.alpha != training.lora.alpha))
    throw Error(Code::invalid_argument,
                cat(quote(directory, 4096), ": r is ", file.rank, " and lora_alpha ", file.alpha,
                    ", the model's adapters have ", training.lora.rank, " and ", training.lora.alpha),
                "give the rank and alpha of the adapter");
  if (file.prefix_tokens() != training.prefix.tokens)
    throw Error(Code::invalid_argument,
                cat(quote(directory, 4096), " is a prefix of ", file.prefix_tokens(), " tokens, the run's has ",
                    training.prefix.tokens),
                "give the prefix of the adapter");
  for (const auto& [key, value] : adapter_arrays(engine.model(), file)) engine.set_array(key, value.view());
}

}  // namespace plait
