#pragma once
// Activation functions that more than one op computes.
#include <cmath>

#include "core/base/activation.h"

namespace plait::reference {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return activate(Activation::silu, x); }
inline double gelu(double x) { return activate(Activation::gelu, x); }
inline double gelu_tanh(double x) { return activate(Activation::gelu_tanh, x); }

// Their derivatives.
/// Of x sigmoid(alpha x).
inline double swish_slope(double x, double alpha) {
  const double s = sigmoid(alpha * x);
  return s + alpha * x * s * (1 - s);
}
inline double silu_slope(double x) { return swish_slope(x, 1); }
inline double gelu_slope(double x) {
  const double density = 0.39894228040143267794 * std::exp(-0.5 * x * x);
  return 0.5 * (1 + std::erf(x * 0.70710678118654752440)) + x * density;
}
inline double gelu_tanh_slope(double x) {
  const double c = 0.79788456080286535588, t = std::tanh(c * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
}
inline double relu_slope(double x) { return x > 0 ? 1 : 0; }

inline double activation_slope(Activation activation, double x) {
  switch (activation) {
    case Activation::silu: return silu_slope(x);
    case Activation::gelu_tanh: return gelu_tanh_slope(x);
    case Activation::gelu: return gelu_slope(x);
    case Activation::relu: return relu_slope(x);
    case Activation::identity: break;
  }
  return 1;
}

}  // namespace plait::reference
