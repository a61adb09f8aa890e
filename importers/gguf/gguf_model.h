#pragma once
// A GGUF file as the files of a model directory: model.onnx, its weights, tokenizer and configurations.
#include <memory>
#include <vector>

#include "core/base/load_progress.h"
#include "core/base/named_blob.h"
#include "importers/gguf/gguf_file.h"

namespace plait::gguf {

/// "model.onnx" first. Floats stay in `parts`; quantised weights are laid out as ONNX has them, with the same codes, at the cost of their
/// size in memory; or, with `unpack` f32, f16 or bf16, become floats of that type. Throws Error: bad_model (damaged; what, and where),
/// unsupported (an architecture, a tokenizer, a type of elements or a key, and which ones there are), cancelled. `progress` and `warnings`
/// may be null; these tell what was left aside.
std::vector<NamedBlob> model_files(const Parts& parts, DType unpack = DType::none, LoadProgress* progress = nullptr,
                                   std::vector<std::string>* warnings = nullptr);

/// Of these, the configurations and, if the file has one, the tokenizer.
std::vector<NamedBlob> text_files(const Parts& parts);

}  // namespace plait::gguf
