// Activations, attributes and operands of LSTM, GRU and RNN.
#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/activations.h"
#include "kernels/reference/signal/recurrent_layers.h"

namespace plait::reference {
namespace {

struct CellActivationRow {
  std::string_view name;
  double (*function)(double x, double alpha, double beta);
  double (*derivative)(double x, double alpha, double beta);
  bool takes_alpha, takes_beta;
  double alpha, beta;  ///< by default
};

constexpr CellActivationRow cell_activations[] = {
    {"sigmoid", [](double x, double, double) { return sigmoid(x); },
     [](double x, double, double) { return sigmoid(x) * sigmoid(-x); }, false, false, 0, 0},
    {"tanh", [](double x, double, double) { return std::tanh(x); },
     [](double x, double, double) { return 1 - std::tanh(x) * std::tanh(x); }, false, false, 0, 0},
    {"relu", [](double x, double, double) { return std::max(x, 0.0); },
     [](double x, double, double) { return x > 0 ? 1.0 : 0.0; }, false, false, 0, 0},
    {"affine", [](double x, double alpha, double beta) { return alpha * x + beta; },
     [](double, double alpha, double) { return alpha; }, true, true, 1, 0},
    {"leakyrelu", [](double x, double alpha, double) { return x >= 0 ? x : alpha * x; },
     [](double x, double alpha, double) { return x >= 0 ? 1 : alpha; }, true, false, 0.01, 0},
    {"thresholdedrelu", [](double x, double alpha, double) { return x >= alpha ? x : 0; },
     [](double x, double alpha, double) { return x >= alpha ? 1.0 : 0.0; }, true, false, 1, 0},
    {"scaledtanh", [](double x, double alpha, double beta) { return alpha * std::tanh(beta * x); },
     [](double x, double alpha, double beta) {
       return alpha * beta * (1 - std::tanh(beta * x) * std::tanh(beta * x));
     },
     true, true, 1, 1},
    {"hardsigmoid", [](double x, double alpha, double beta) { return std::clamp(alpha * x + beta, 0.0, 1.0); },
     [](double x, double alpha, double beta) { return alpha * x + beta > 0 && alpha * x + beta < 1 ? alpha : 0; },
     true, true, 0.2, 0.5},
    {"elu", [](double x, double alpha, double) { return x >= 0 ? x : alpha * std::expm1(x); },
     [](double x, double alpha, double) { return x >= 0 ? 1 : alpha * std::exp(x); }, true, false, 1, 0},
    {"softsign", [](double x, double, double) { return x / (1 + std::fabs(x)); },
     [](double x, double, double) { return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x))); }, false, false, 0, 0},
    {"softplus", [](double x, double, double) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); },
     [](double x, double, double) { return sigmoid(x); }, false, false, 0, 0},
};

const CellActivationRow& activation_row(std::string name) {
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  for (const CellActivationRow& row : cell_activations)
    if (row.name == name) return row;
  throw Error(
      Code::bad_model, cat("the activation ", quote(name), " is unknown"),
      "Sigmoid, Tanh, Relu, Affine, LeakyRelu, ThresholdedRelu, ScaledTanh, HardSigmoid, Elu, Softsign or Softplus");
}

template <class T>
std::vector<T> list_of(const Attributes& attributes, std::string_view name) {
  const Attribute* found = attributes.find(name);
  if (!found) return {};
  if (const auto* list = std::get_if<std::vector<T>>(found)) return *list;
  throw Error(Code::bad_model, cat("attribute ", quote(name), " is of another kind"));
}

/// `count` functions for each of two directions. Parameters are listed only for the functions that have them, in order.
std::vector<CellActivation> activations_of(const Attributes& attributes, std::vector<std::string> fallback) {
  std::vector<std::string> names = list_of<std::string>(attributes, "activations");
  const size_t count = fallback.size();
  if (names.empty()) names = std::move(fallback);
  if (names.size() == count)
    for (size_t i = 0; i < count; ++i) names.push_back(std::string(names[i]));
  if (names.size() != 2 * count)
    throw Error(Code::bad_model,
                cat("attribute \"activations\" has ", names.size(), " entries, expected ", count, " a direction"));
  const std::vector<double> alphas = list_of<double>(attributes, "activation_alpha"),
                            betas = list_of<double>(attributes, "activation_beta");
  std::vector<CellActivation> out;
  size_t alpha = 0, beta = 0;
  for (const std::string& name : names) {
    const CellActivationRow& row = activation_row(name);
    out.push_back({row.function, row.derivative,
                   row.takes_alpha && alpha < alphas.size() ? alphas[alpha++] : row.alpha,
                   row.takes_beta && beta < betas.size() ? betas[beta++] : row.beta});
  }
  return out;
}

}  // namespace

LayerAttributes::LayerAttributes(const NodeInfo& node)
    : direction(node.attributes.string("direction", "forward")),
      batched(node.attributes.integer("layout", 0) != 0),
      coupled(node.attributes.integer("input_forget", 0) != 0),
      linear_first(node.attributes.integer("linear_before_reset", 0) != 0),
      clip(node.attributes.has("clip") ? node.attributes.real("clip", 0) : INFINITY) {
  const std::string layer = node.attributes.string("layer", node.op);  // of a gradient
  if (layer == "LSTM") gates = 4, functions = activations_of(node.attributes, {"Sigmoid", "Tanh", "Tanh"});
  else if (layer == "GRU") gates = 3, functions = activations_of(node.attributes, {"Sigmoid", "Tanh"});
  else functions = activations_of(node.attributes, {"Tanh"});
}

int32_t misfit(const KernelCall& call, const Layer& n) {
  const Shape &w = call.inputs[1].shape, &r = call.inputs[2].shape;
  const int64_t rows = n.a.gates * n.hidden, states = n.directions * n.batch * n.hidden;
  if (n.directions != (n.a.direction == "bidirectional" ? 2 : 1) || r[1] != rows) return 2;
  if (w[0] != n.directions || w[1] != rows || w[2] != n.inputs) return 1;
  auto fits = [](size_t given, int64_t expected) { return given == 0 || static_cast<int64_t>(given) == expected; };
  if (!fits(n.bias.size(), n.directions * 2 * rows)) return 3;
  if (!fits(n.lengths.size(), n.batch)) return 4;
  for (int64_t length : n.lengths)
    if (length < 0 || length > n.steps) return 4;
  if (!fits(n.start_h.size(), states)) return 5;
  if (!fits(n.start_c.size(), states)) return 6;
  return fits(n.peepholes.size(), n.directions * 3 * n.hidden) ? -1 : 7;
}

}  // namespace plait::reference
