#pragma once
// Adapters outside of a run: directories in the layout of Hugging Face's library PEFT, of adapter_config.json and
// adapter_model.safetensors, whose tensors are called as "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", or,
// of a prefix, "prompt_embeddings".
#include <string>

#include "core/passes/base/training.h"

namespace plait {

/// Throws Error: not_found, io; bad_model (damaged); unsupported (another kind of adapter, or LoRA of ranks that differ).
AdapterWeights read_adapter(const std::string& directory);

/// The directory is made if absent. `base` is what the adapter belongs to, a name or a path. Throws Error(io).
void write_adapter(const AdapterWeights& adapter, const std::string& directory, const std::string& base);

}  // namespace plait
