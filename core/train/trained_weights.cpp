#include "core/train/trained_weights.h"

#include <cstring>

#include "core/base/block.h"
#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/paths.h"
#include "core/base/text.h"
#include "core/passes/adapt/module_names.h"
#include "core/train/adapters/adapter_arrays.h"
#include "core/train/run_state.h"

namespace plait {
namespace {


/// to [n, k] += scale b a: [n, rank], [rank, k].
void add_product(const float* a, const float* b, double scale, int64_t n, int64_t rank, int64_t k, float* to) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 0; r < rank; ++r) {
      const auto factor = static_cast<float>(scale * b[i * rank + r]);
      const float* from = a + r * k;
      for (int64_t j = 0; j < k; ++j) to[i * k + j] += factor * from[j];
    }
}

/// A matrix with its dims exchanged.
Tensor transposed(const Tensor& matrix) { return materialize({{}, matrix, {{RecipeStep::Kind::transpose, {1, 0}}}}); }

/// w + scale b a, per expert; for a table [k, n], w + scale (b a)^T. All f32.
Tensor merged(const Constant& base, const AdapterParameters& adapter, const Tensor& a, const Tensor& b, double scale,
              ThreadPool* pool) {
  Constant wide = base;
  wide.steps.push_back({RecipeStep::Kind::cast, {}, DType::f32});
  const Tensor w = materialize(wide, pool);
  Tensor out(DType::f32, w.shape());
  std::memcpy(out.data(), w.data(), static_cast<size_t>(w.bytes()));
  const int64_t n = adapter.n(), k = adapter.k(), rank = b.shape()[b.shape().rank() - 1];
  if (adapter.of_table) {
    add_product(transposed(b).as<float>(), transposed(a).as<float>(), scale, k, rank, n, out.as<float>());
    return out;
  }
  const int64_t count = out.elements() / (n * k);
  for (int64_t i = 0; i < count; ++i)
    add_product(a.as<float>() + i * rank * k, b.as<float>() + i * n * rank, scale, n, rank, k,
                out.as<float>() + i * n * k);
  return out;
}

FileTensors merged_tensors(const std::vector<TrainedParameter>& parameters, const LoraOptions& lora,
                           const ArrayOf& array_of, ThreadPool* pool) {
  FileTensors out;
  const double scale = lora.alpha / static_cast<double>(lora.rank);
  for (const AdapterParameters& adapter : adapters_among(parameters)) {
    const auto& base = adapter.b->base;
    if (!base)
      throw Error(Code::unsupported,
                  cat("the weight of ", quote(adapter.module),
                      " cannot take in its adapter: it is quantised, or read by others, too"),
                  "keep the adapter apart (plait export --apart, plait_trainer_save_adapter)");
    write_back(*base, merged(*base, adapter, array_of(adapter.a->key), array_of(adapter.b->key), scale, pool), out,
               pool);
  }
  return out;
}

/// Calls visit(parameter, offset in the whole prefix).
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
  return file.prefix_tokens() ? prefix_arrays(model, file) : arrays_of(model.parameters, file);
}

/// What these options train; the graph is not compiled.
TrainingModel model_of(const Graph& graph, const CompileOptions& options, TrainingOptions training) {
  constexpr int64_t few = 8;
  training.row_tokens = few;  // nothing is run
  return compile_training(graph, options, training);
}

/// A step's directory: `path`, or the newest of a run.
std::string step_directory(const std::string& path) {
  if (!exists(path + "/manifest.json"))
    for (const std::string& of_run : {path, path + "/checkpoints"})
      if (const auto there = list_checkpoints(of_run); !there.empty()) return there.back();
  return path;
}

}  // namespace

FileTensors trained_tensors(const std::vector<TrainedParameter>& parameters, const TrainingOptions& training,
                            const ArrayOf& array_of, ThreadPool* pool) {
  if (training.prefix.tokens)
    throw Error(
        Code::unsupported, "a prefix cannot be merged into the weights",
        "keep it apart, as an adapter (plait export --apart, plait_trainer_save_adapter): generators and PEFT load "
        "its directory with the unchanged model");
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

namespace {

/// In the bodies of its nodes, too. `found`: the names of those that it has.
void replace_tensors(Graph& graph, const FileTensors& tensors, std::set<std::string>& found) {
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const auto& constant = graph.value(id).constant;
    auto changed = constant ? tensors.find(constant->initializer) : tensors.end();
    if (changed == tensors.end()) continue;
    Constant now = *constant;
    now.source = changed->second;
    graph.value(id).constant = std::make_shared<Constant>(std::move(now));
    found.insert(changed->first);
  }
  for (Node& node : graph.nodes)
    for (auto& [name, body] : node.bodies) {
      body = std::make_shared<Graph>(*body);  // the graph that this one was copied from has it, too
      replace_tensors(*body, tensors, found);
    }
}

}  // namespace

Graph with_tensors(Graph graph, const FileTensors& tensors) {
  std::set<std::string> found;
  replace_tensors(graph, tensors, found);
  if (found.size() < tensors.size())
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
  for (const AdapterParameters& adapter : adapters_among(engine.parameters()))
    give_pairs(adapter, engine.array(adapter.a->key), engine.array(adapter.b->key), out);
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
