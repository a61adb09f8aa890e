#include "core/base/activation.h"

#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

std::string_view activation_name(Activation activation) {
  static constexpr std::string_view names[] = {"silu", "gelu_tanh", "gelu", "relu", "identity"};
  return names[static_cast<size_t>(activation)];
}

Activation activation_of(const Attributes& attributes, std::string_view op) {
  const std::string name = attributes.string("activation", "silu");
  for (Activation one : activations)
    if (activation_name(one) == name) return one;
  throw Error(Code::bad_model, cat(op, ": unknown activation ", quote(name)),
              "use silu, gelu_tanh, gelu, relu or identity");
}

double activate(Activation activation, double x) {
  switch (activation) {
    case Activation::silu: return x * (1 / (1 + std::exp(-x)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case Activation::gelu: return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440));
    case Activation::relu: return x < 0 ? 0 : x;
    case Activation::identity: break;
  }
  return x;
}

}  // namespace plait
