#pragma once
// Activations of gates, by name.
#include "kernels/cuda/kernels/activations.h"
#include "kernels/cuda/kernels/linear.h"

namespace plait::cuda {

PLAIT_DEVICE float activate(Gate gate, float x) {
  switch (gate) {
    case Gate::silu: return silu(x);
    case Gate::gelu: return gelu(x);
    case Gate::gelu_tanh: return gelu_tanh(x);
    case Gate::relu: return fmaxf(x, 0);
    default: return x;
  }
}

}  // namespace plait::cuda
