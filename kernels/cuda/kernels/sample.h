#pragma once
// Launches of sample.cu.
#include "kernels/cuda/kernels/geometry.h"

namespace plait::cuda {

constexpr int sample_threads = 512;

/// A token for each row of logits; see core/base/token_weight.h.
struct SampleOperands {
  const float* logits;   ///< [b, rows, v]
  const void* settings;  ///< ChoiceSettings [b, rows]
  const int32_t* edits;  ///< [b, edits, 5]: a row, and a LogitEdit
  int32_t* tokens;       ///< [b, rows]
  int64_t rows, v, edit_count;
};

/// A block a row, with a bit for each token.
inline Geometry sample_geometry(const SampleOperands& o, int64_t b) {
  return {static_cast<unsigned>(b * o.rows), 1, 1, sample_threads, static_cast<unsigned>(ceil_div(o.v, 32) * 4)};
}

}  // namespace plait::cuda
