#pragma once
// A directory of Hugging Face's transformers (config.json, safetensors) as the files of an ONNX model directory.
#include <string>
#include <vector>

#include "core/base/load_progress.h"
#include "core/base/named_blob.h"

namespace plait::huggingface {

/// Whether the directory has a configuration and weights in safetensors.
bool has_model(const std::string& directory);

/// "model.onnx" first, then its weights, which stay in the mapped files, and the directory's tokenizer and configurations; config.json with
/// the defaults of transformers' class. Files of weights are those that transformers reads: model.safetensors, otherwise those that
/// model.safetensors.index.json names, otherwise all. Throws Error: bad_model (damaged, or a weight that is missing; what, and where),
/// unsupported (a model_type, and which ones there are; a field), not_found, io, cancelled. `progress` and `warnings` may be null; these
/// tell what was left aside.
std::vector<NamedBlob> model_files(const std::string& directory, LoadProgress* progress = nullptr,
                                   std::vector<std::string>* warnings = nullptr);

/// Of these, tokenizer and configurations.
std::vector<NamedBlob> text_files(const std::string& directory);

}  // namespace plait::huggingface
