// plait.UnaryBack: the derivatives of ONNX's elementwise functions of one operand. At a kink it is that of the side which
// the function's own comparison takes.
#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/activations.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

/// The attributes of a function, with its own defaults.
struct Parameters {
  double alpha = 0, beta = 0, gamma = 0, lambda = 0;
};

using Derivative = double (*)(double x, const Parameters& p);

double square(double x) { return x * x; }
double mish_slope(double x, const Parameters&) {
  const double t = std::tanh(x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)));
  return t + x * (1 - t * t) * sigmoid(x);
}

struct Row {
  const char* function;
  Derivative derivative;
  Parameters defaults = {};
};

const Row rows[] = {
    {"Tan", [](double x, const Parameters&) { return 1 + square(std::tan(x)); }},
    {"Asin", [](double x, const Parameters&) { return 1 / std::sqrt(1 - x * x); }},
    {"Acos", [](double x, const Parameters&) { return -1 / std::sqrt(1 - x * x); }},
    {"Atan", [](double x, const Parameters&) { return 1 / (1 + x * x); }},
    {"Sinh", [](double x, const Parameters&) { return std::cosh(x); }},
    {"Cosh", [](double x, const Parameters&) { return std::sinh(x); }},
    {"Tanh", [](double x, const Parameters&) { return 1 - square(std::tanh(x)); }},
    {"Asinh", [](double x, const Parameters&) { return 1 / std::sqrt(x * x + 1); }},
    {"Acosh", [](double x, const Parameters&) { return 1 / std::sqrt(x * x - 1); }},
    {"Atanh", [](double x, const Parameters&) { return 1 / (1 - x * x); }},
    {"Erf", [](double x, const Parameters&) { return 1.12837916709551257390 * std::exp(-x * x); }},
    {"Relu", [](double x, const Parameters&) { return relu_slope(x); }},
    {"Sigmoid", [](double x, const Parameters&) { return sigmoid(x) * sigmoid(-x); }},
    {"Softplus", [](double x, const Parameters&) { return sigmoid(x); }},
    {"Softsign", [](double x, const Parameters&) { return 1 / square(1 + std::fabs(x)); }},
    {"Mish", mish_slope},
    {"Gelu", [](double x, const Parameters&) { return gelu_slope(x); }},
    {"Swish", [](double x, const Parameters& p) { return swish_slope(x, p.alpha); }, {.alpha = 1}},
    {"HardSwish", [](double x, const Parameters&) { return x <= -3  ? 0.0
                                                           : x >= 3 ? 1.0
                                                                    : x / 3 + 0.5; }},
    {"HardSigmoid",
     [](double x, const Parameters& p) {
       const double y = p.alpha * x + p.beta;
       return y > 0 && y < 1 ? p.alpha : 0.0;
     },
     {.alpha = 0.2, .beta = 0.5}},
    {"LeakyRelu", [](double x, const Parameters& p) { return x < 0 ? p.alpha : 1.0; }, {.alpha = 0.01}},
    {"Elu", [](double x, const Parameters& p) { return x < 0 ? p.alpha * std::exp(x) : 1.0; }, {.alpha = 1}},
    {"Celu", [](double x, const Parameters& p) { return x < 0 ? std::exp(x / p.alpha) : 1.0; }, {.alpha = 1}},
    {"Selu",
     [](double x, const Parameters& p) { return p.gamma * (x > 0 ? 1 : p.alpha * std::exp(x)); },
     {.alpha = 1.67326319217681884765625, .gamma = 1.05070102214813232421875}},
    {"ThresholdedRelu", [](double x, const Parameters& p) { return x > p.alpha ? 1.0 : 0.0; }, {.alpha = 1}},
    {"Shrink",
     [](double x, const Parameters& p) { return x < -p.lambda || x > p.lambda ? 1.0 : 0.0; },
     {.lambda = 0.5}},
};

struct DerivativeAttributes {
  explicit DerivativeAttributes(const NodeInfo& node) {
    const std::string name = node.attributes.string("function", "");
    for (const Row& row : rows) {
      if (name != row.function) continue;
      derivative = row.derivative;
      parameters = row.defaults;
    }
    if (!derivative) throw Error(Code::bad_model, cat(node.op, ": the derivative of ", quote(name), " is not known"));
    if (name == "Gelu" && node.attributes.string("approximate", "none") == "tanh")
      derivative = [](double x, const Parameters&) { return gelu_tanh_slope(x); };
    parameters.alpha = node.attributes.real("alpha", parameters.alpha);
    parameters.beta = node.attributes.real("beta", parameters.beta);
    parameters.gamma = node.attributes.real("gamma", parameters.gamma);
    parameters.lambda = node.attributes.real("lambd", parameters.lambda);
  }
  Derivative derivative = nullptr;
  Parameters parameters;
};

/// x, dy of one shape -> dy f'(x).
KernelStatus unary_back(const KernelCall& call, const DerivativeAttributes& attributes) {
  std::vector<double> x = load_all<double>(call.inputs[0]), dy = load_all<double>(call.inputs[1]);
  for (size_t i = 0; i < x.size(); ++i) dy[i] *= attributes.derivative(x[i], attributes.parameters);
  store_all(call.outputs[0], dy);
  return {};
}

}  // namespace

void add_derivatives(KernelTable& table) { add<unary_back>(table, "plait.UnaryBack", floats); }

}  // namespace plait::reference
