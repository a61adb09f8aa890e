#pragma once
// Exports trained parameters: as tensors of the model's file, or as adapters.
#include <functional>
#include <map>
#include <string>

#include "core/train/adapters/adapter_file.h"
#include "core/train/training_engine.h"

namespace plait {

/// Tensors of the model's file by name, in its dtype and layout.
using FileTensors = std::map<std::string, Tensor>;

/// Returns a parameter's array by key, from a run's Store or a checkpoint.
using ArrayOf = std::function<Tensor(const std::string& key)>;

/// File tensors after training: parameters replace tensors, adapters are merged, w + alpha / rank b a. Throws
/// Error(unsupported), naming it, for a weight into which its adapter cannot be merged (quantised, or with another
/// reader), and for a prefix.
FileTensors trained_tensors(const std::vector<TrainedParameter>& parameters, const TrainingOptions& training,
                            const ArrayOf& array_of, ThreadPool* pool = nullptr);
FileTensors trained_tensors(const TrainingEngine& engine, ThreadPool* pool = nullptr);

/// A checkpoint of the model, and what its run trained (`trained_by`, trainer.h).
struct FoundCheckpoint {
  std::string path;  ///< of the step
  TrainingOptions training;
};
/// `path`: a step's directory, or a run's, then its newest. Throws Error: those of opening it; invalid_argument for
/// another model.
FoundCheckpoint find_checkpoint(const Graph& graph, const std::string& path);

/// `trained_tensors` of a checkpoint whose run trained with these options (`trained_by`, trainer.h), or of an adapter
/// directory. Loads only these. Throws Error: those of reading; invalid_argument for another model.
FileTensors tensors_of_checkpoint(const Graph& graph, const CompileOptions& options, const std::string& path,
                                  ThreadPool* pool = nullptr);
FileTensors tensors_of_adapter(const Graph& graph, const CompileOptions& options, const std::string& directory,
                               ThreadPool* pool = nullptr);

/// The graph with these tensors of its file replaced. Throws Error(invalid_argument) for an unknown tensor.
Graph with_tensors(Graph graph, const FileTensors& tensors);

/// The adapters that the engine trains. Throws Error(invalid_argument) if there are none.
AdapterWeights adapter_of(const TrainingEngine& engine);
/// Writes them in PEFT's layout (adapter_file.h). Also throws Error(io).
void save_adapter(const TrainingEngine& engine, const std::string& directory, const std::string& base = "");

/// Loads a PEFT directory into the engine's adapters. Throws Error and changes nothing: those of read_adapter;
/// invalid_argument, naming it, if rank, alpha or prefix length differ, a tensor has no weight in the model, or a
/// weight's tensor is missing or has another shape.
void load_adapter(TrainingEngine& engine, const std::string& directory);

}  // namespace plait
