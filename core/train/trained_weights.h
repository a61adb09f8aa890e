#pragma once
// What was trained, as files outside of a run have it: tensors of the model's file, and adapters.
#include <map>
#include <string>

#include "core/train/training_engine.h"

namespace plait {

/// The file's tensors that were trained, by name, in the file's dtype and layout. None for a run that trains adapters alone.
std::map<std::string, Tensor> trained_tensors(const TrainingEngine& engine, ThreadPool* pool = nullptr);

/// The file's tensors with the adapters merged into them: w + alpha / rank b a. Throws Error(unsupported), naming it, for a
/// weight that cannot take its adapter in: it is quantised, or something else reads it, too.
std::map<std::string, Tensor> merged_tensors(const TrainingEngine& engine, const LoraOptions& lora,
                                             ThreadPool* pool = nullptr);

/// Writes the adapters as the library PEFT does: `directory`/adapter_config.json and adapter_model.safetensors, with names as
/// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight". The directory is made if absent. `base` is what the
/// adapters belong to, a name or a path. Adapters of the parts of a packed weight (".part1", ".part2") are known to Plait alone:
/// PEFT has one for the whole. Throws Error: io; invalid_argument when there are no adapters.
void save_adapter(const TrainingEngine& engine, const LoraOptions& lora, const std::string& directory,
                  const std::string& base = "");

/// Fills the engine's adapters with those of a directory of PEFT's. Throws Error: not_found, io, bad_model (a damaged file);
/// invalid_argument, naming it, when rank or alpha are not `lora`'s, or when a tensor fits no weight of the model, a weight has
/// no tensor, or one of other sizes: nothing is changed then.
void load_adapter(TrainingEngine& engine, const LoraOptions& lora, const std::string& directory);

}  // namespace plait
