#pragma once
// The tokenizer of a GGUF file in the form of Hugging Face's tokenizers.
#include <string>

#include "importers/gguf/gguf_file.h"

namespace plait::gguf {

struct TokenizerFiles {
  std::string tokenizer, config, generation;  ///< tokenizer.json, tokenizer_config.json, generation_config.json
};
/// Throws Error: bad_model (lists of different lengths, ids out of range), unsupported (a kind of tokenizer that is not known).
TokenizerFiles tokenizer_files(const File& file, int64_t context);

}  // namespace plait::gguf
