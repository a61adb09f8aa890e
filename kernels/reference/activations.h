#pragma once
// Activation functions that more than one op computes.
#include <cmath>
#include <string_view>

namespace plait::reference {

inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
inline double silu(double x) { return x * sigmoid(x); }
/// Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)": exact, and its approximation by tanh.
inline double gelu(double x) { return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440)); }
inline double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

inline double relu(double x) { return x < 0 ? 0 : x; }
inline double identity(double x) { return x; }

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
inline double identity_slope(double) { return 1; }

struct Activation {
  std::string_view name;
  double (*f)(double) = nullptr;
  double (*slope)(double) = nullptr;
};

/// The activation of that name (silu, gelu_tanh, gelu, relu or identity); functions are null for others.
inline Activation activation_named(std::string_view name) {
  static constexpr Activation rows[] = {{"silu", silu, silu_slope},
                                        {"gelu_tanh", gelu_tanh, gelu_tanh_slope},
                                        {"gelu", gelu, gelu_slope},
                                        {"relu", relu, relu_slope},
                                        {"identity", identity, identity_slope}};
  for (const Activation& row : rows)
    if (row.name == name) return row;
  return {};
}

}  // namespace plait::reference
