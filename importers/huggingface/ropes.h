#pragma once
// The fields of rotary positions.
#include "importers/decoder/decoder_spec.h"
#include "importers/huggingface/config_fields.h"

namespace plait::huggingface {

/// In transformers' words of version 4 (rope_theta, rope_scaling; GPT-NeoX: rotary_emb_base, rotary_pct) or 5 (rope_parameters; also one
/// for each kind of layer: those with full attention). Throws Error(bad_model | unsupported), naming the field.
decoder::Rope read_rope(const Fields& config, int64_t head_dim, int64_t context);
/// Of Gemma 3's layers with a window.
decoder::Rope local_rope(const Fields& config, int64_t head_dim, int64_t context);

}  // namespace plait::huggingface
