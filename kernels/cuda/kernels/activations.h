#pragma once
// Functions of one number, for products with gates and for maps.
#include "kernels/cuda/kernels/device.h"

namespace plait::cuda {

PLAIT_DEVICE float sigmoid(float x) { return 1 / (1 + __expf(-x)); }
PLAIT_DEVICE float silu(float x) { return x / (1 + __expf(-x)); }
PLAIT_DEVICE float gelu(float x) { return 0.5F * x * (1 + erff(x * 0.70710678F)); }
PLAIT_DEVICE float gelu_tanh(float x) { return 0.5F * x * (1 + tanhf(0.79788456F * (x + 0.044715F * x * x * x))); }

}  // namespace plait::cuda
