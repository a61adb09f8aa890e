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

/// The activation of that name (silu, gelu_tanh, gelu, relu or identity); null for others.
inline auto activation_named(std::string_view name) -> double (*)(double) {
  struct Row {
    std::string_view name;
    double (*f)(double);
  };
  static constexpr Row rows[] = {
      {"silu", silu}, {"gelu_tanh", gelu_tanh}, {"gelu", gelu}, {"relu", relu}, {"identity", identity}};
  for (const Row& row : rows)
    if (row.name == name) return row.f;
  return nullptr;
}

}  // namespace plait::reference
