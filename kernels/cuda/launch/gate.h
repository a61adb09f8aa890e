#pragma once
// Activations as kernels take them.
#include "core/base/activation.h"
#include "kernels/cuda/kernels/linear.h"

namespace plait::cuda {

inline Gate gate_of(Activation activation) {
  switch (activation) {
    case Activation::silu: return Gate::silu;
    case Activation::gelu_tanh: return Gate::gelu_tanh;
    case Activation::gelu: return Gate::gelu;
    case Activation::relu: return Gate::relu;
    default: return Gate::identity;
  }
}

}  // namespace plait::cuda
