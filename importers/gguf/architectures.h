#pragma once
// The architectures of GGUF files, as specs of decoders.
#include <string>

#include "importers/decoder/decoder_spec.h"
#include "importers/gguf/blocks.h"
#include "importers/gguf/gguf_file.h"

namespace plait::gguf {

/// Throws Error: bad_model (missing or absurd metadata), unsupported (an architecture that is not known, or a key of it that changes
/// results). `warnings`: may be null; keys that are not known, which change nothing in llama.cpp either.
decoder::DecoderSpec spec_of(const File& file, std::vector<std::string>* warnings = nullptr);

/// The name in GGUF files of a weight that transformers calls `name`; "" if there is none. "post_attention_layernorm", which is another
/// norm with or without a norm after the attention, is the caller's.
std::string tensor_of(const std::string& name);

}  // namespace plait::gguf
