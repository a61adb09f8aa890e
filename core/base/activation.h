#pragma once
// The activation functions of gated layers and of experts: the values of attribute "activation".
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/attributes.h"

namespace plait {

enum class Activation : uint8_t { silu, gelu_tanh, gelu, relu, identity };

/// All, the most frequent first.
constexpr Activation activations[] = {Activation::silu, Activation::gelu_tanh, Activation::gelu, Activation::relu,
                                      Activation::identity};

/// "gelu_tanh".
std::string_view activation_name(Activation activation);
/// Attribute "activation" of a node, silu if absent. Throws Error(bad_model), naming `op`, for other names.
Activation activation_of(const Attributes& attributes, std::string_view op);

/// Their definition. Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)": exact, and its approximation by tanh.
double activate(Activation activation, double x);

}  // namespace plait
