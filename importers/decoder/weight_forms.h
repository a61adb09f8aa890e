#pragma once
// Weights in the forms that com.microsoft's ops have.
#include <span>
#include <vector>

#include "importers/decoder/decoder_spec.h"

namespace plait::decoder {

/// Zero points as codes, u8 [n, bytes of the blocks' codes], the lowest bits first; nothing if one is no whole number from 0 to 2^bits - 1.
std::optional<Tensor> packed_zeros(const Weight::Blocks& blocks);

/// One projection of all experts, for MoE or QMoE.
struct ExpertStack {
  Tensor weights;                    ///< floats [experts, n, k], or u8 [experts, n, k * bits / 8]
  int64_t bits = 0, block = 0;       ///< 0: floats
  Tensor scales;                     ///< f32 [experts, n, k / block]
  std::optional<Tensor> zeros = {};  ///< u8 [experts, n, k / block * bits / 8]; nothing: 2^(bits - 1)
};

/// `weights`: [n, k] each, `parts` for each expert in turn; rows of an expert's parts are interleaved. Codes stay codes if all have the
/// same bits and blocks, and zero points that are whole numbers; otherwise they become f16, as floats of several types become f32. The
/// bytes are copied. Throws Error(unsupported) for weights with their inputs first.
ExpertStack stack_experts(std::span<const Weight> weights, int64_t parts);

/// The same as floats, whatever it is.
ExpertStack stack_floats(std::span<const Weight> weights, int64_t parts);

}  // namespace plait::decoder
