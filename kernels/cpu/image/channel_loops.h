#pragma once
// Per-target loops over windows of images [.., space, c] of f32: lanes are channels.
#include <cstdint>

#include "kernels/cpu/simd/isa.h"

namespace plait::cpu {

/// A run of results along the last space dim, whose windows have the same taps inside the image.
struct WindowRun {
  const float* const* from;     ///< by tap: what the first result reads, [channels]
  const float* const* weights;  ///< by tap, [channels]; null for pools
  int64_t taps;
  int64_t step;      ///< floats from what one result reads to what the next one does
  int64_t results;   ///< of the run
  int64_t channels;  ///< of a result; results are contiguous
  float scale;       ///< of sums
  float* y;
};

struct ChannelLoops {
  void (*depthwise)(const WindowRun& run);  ///< y = sum over taps of weights from
  void (*mean)(const WindowRun& run);       ///< y = scale times the sum over taps of from
  void (*greatest)(const WindowRun& run);   ///< y = the greatest of from; NaN if one is; -infinity without taps
};

const ChannelLoops& channel_loops(Isa isa);

}  // namespace plait::cpu
