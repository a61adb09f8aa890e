#pragma once
// Adapters outside of a run: directories in the layout of Hugging Face's library PEFT.
#include <map>
#include <string>

#include "core/base/tensor.h"
#include "core/passes/training.h"

namespace plait {

/// adapter_config.json and adapter_model.safetensors, whose tensors are called as
/// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight".
struct AdapterFile {
  struct Pair {
    Tensor a, b;  ///< f32 [rank, k], [n, rank]
  };
  int64_t rank = 0;
  double alpha = 0;
  std::map<std::string, Pair> modules;  ///< by "model.layers.0.self_attn.q_proj"

  double scale() const { return alpha / static_cast<double>(rank); }
  /// What a run of these adapters is made with.
  LoraOptions options() const;
};

/// Throws Error: not_found, io; bad_model (damaged); unsupported (no LoRA, or one of ranks that differ).
AdapterFile read_adapter(const std::string& directory);

/// The directory is made if absent. `base` is what the adapter belongs to, a name or a path. Throws Error(io).
void write_adapter(const AdapterFile& adapter, const std::string& directory, const std::string& base);

}  // namespace plait
