#pragma once
// Launches of logic.cu.
#include "kernels/cuda/kernels/elementwise.h"

namespace plait::cuda {

enum class IntegerFunction : int32_t { add, sub, mul, minimum, maximum, neg };
enum class Comparison : int32_t { equal, less, less_or_equal, both, either, differ };

/// y = f(a, b), or f(a) if b is null; of one type, y of the same, or bool of a comparison.
struct PairOperands {
  const void *a, *b;
  void* y;
  Nest nest;
  int32_t function;  ///< IntegerFunction or Comparison
  int32_t unused;
};

/// y = x where the condition is `wanted`; otherwise y is left. The nest's operands are the condition and x.
struct SelectOperands {
  const uint8_t* condition;
  const void* x;
  void* y;
  Nest nest;
  int64_t wanted;
};

/// y = x between two numbers, each null for none.
struct ClipOperands {
  const float *x, *low, *high;
  float* y;
  int64_t count;
};

}  // namespace plait::cuda
