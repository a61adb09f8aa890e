#pragma once
// Activation functions that more than one op computes.
#include <cmath>

namespace plait::reference {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
/// Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)": exact, and its approximation by tanh.
inline double gelu(double x) { return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440)); }
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

}  // namespace plait::reference
