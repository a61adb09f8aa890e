#pragma once
// ggml's blocks of quantised elements (block_q4_0 and the like in ggml-common.h of github.com/ggml-org/ggml).
#include "importers/decoder/decoder_spec.h"
#include "importers/gguf/types.h"

namespace plait::gguf {

/// All elements as f32, as ggml computes them.
Tensor dequantised(const Entry& entry);

/// The same codes as MatMulNBits has them: 4 or 8 bits, a scale and a zero point for each block of 16 or 32. Floats are views into the
/// file. What a code stands for differs from ggml's by the rounding of one product at most.
decoder::Weight weight_of(const Entry& entry);

}  // namespace plait::gguf
