#pragma once
// What was trained, as files outside of a run have it: tensors of the model's file, and adapters.
#include <functional>
#include <map>
#include <string>

#include "core/train/adapters/adapter_file.h"
#include "core/train/training_engine.h"

namespace plait {

/// Tensors of the model's file, by name, in the file's dtype and layout.
using FileTensors = std::map<std::string, Tensor>;

/// Gives a parameter's array by its key: of a run's Store, or of a checkpoint.
using ArrayOf = std::function<Tensor(const std::string& key)>;

/// What these parameters make of the file: they take the place of its tensors, or adapters are merged into them, as
/// w + alpha / rank b a. Throws Error(unsupported), naming it, for a weight that cannot take its adapter in: it is
/// quantised, or something else reads it, too; and for a prefix, which no weight takes in.
FileTensors trained_tensors(const std::vector<TrainedParameter>& parameters, const TrainingOptions& training,
                            const ArrayOf& array_of, ThreadPool* pool = nullptr);
FileTensors trained_tensors(const TrainingEngine& engine, ThreadPool* pool = nullptr);

/// A checkpoint of the model, and what its run trained (`trained_by`, trainer.h).
struct FoundCheckpoint {
  std::string path;  ///< of the step
  TrainingOptions training;
};
/// `path`: a step's directory, or a run's, whose newest is meant. Throws Error: what opening it throws; invalid_argument for one
/// of another model.
FoundCheckpoint find_checkpoint(const Graph& graph, const std::string& path);

/// The same of a checkpoint, whose run had these options about what is trained (`trained_by`, trainer.h), or of an adapter's
/// directory. Nothing is loaded but these. Throws Error: what reading them throws; invalid_argument for those of another
/// model.
FileTensors tensors_of_checkpoint(const Graph& graph, const CompileOptions& options, const std::string& path,
                                  ThreadPool* pool = nullptr);
FileTensors tensors_of_adapter(const Graph& graph, const CompileOptions& options, const std::string& directory,
                               ThreadPool* pool = nullptr);

/// The graph as the file would give it with these tensors. Throws Error(invalid_argument) for one that it does not have.
Graph with_tensors(Graph graph, const FileTensors& tensors);

/// The adapters that the engine trains. Throws Error(invalid_argument) when there are none.
AdapterWeights adapter_of(const TrainingEngine& engine);
/// Writes them as the library PEFT does (adapter_file.h). Throws Error(io), too.
void save_adapter(const TrainingEngine& engine, const std::string& directory, const std::string& base = "");

/// Fills the engine's adapters with those of a directory of PEFT's. Throws Error: what read_adapter throws;
/// invalid_argument, naming it, when rank, alpha or a prefix's length are not the engine's, or when a tensor fits no weight of the
/// model, a weight has no tensor, or one of other sizes: nothing is changed then.
void load_adapter(TrainingEngine& engine, const std::string& directory);

}  // namespace plait
