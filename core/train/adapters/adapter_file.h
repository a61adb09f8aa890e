#pragma once
// Adapter directories of Hugging Face PEFT: adapter_config.json and adapter_model.safetensors. Tensor names are
// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", or "prompt_embeddings" for a prefix.
#include <string>

#include "core/passes/base/training.h"

namespace plait {

/// Throws Error: not_found, io; bad_model (damaged); unsupported (another kind of adapter, or mixed LoRA ranks).
AdapterWeights read_adapter(const std::string& directory);

/// Creates the directory if absent. `base` is the name or path of the base model. Throws Error(io).
void write_adapter(const AdapterWeights& adapter, const std::string& directory, const std::string& base);

}  // namespace plait
