// LSTM, GRU and RNN: each sequence and direction step by step.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/activations.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/signal/register.h"

namespace plait::reference {
namespace {

// ---- Activations, by name ----

struct CellActivation {
  double (*function)(double x, double alpha, double beta);
  double alpha, beta;
  double operator()(double x) const { return function(x, alpha, beta); }
};

struct CellActivationRow {
  std::string_view name;
  double (*function)(double x, double alpha, double beta);
  bool takes_alpha, takes_beta;
  double alpha, beta;  ///< by default
};

constexpr CellActivationRow cell_activations[] = {
    {"sigmoid", [](double x, double, double) { return sigmoid(x); }, false, false, 0, 0},
    {"tanh", [](double x, double, double) { return std::tanh(x); }, false, false, 0, 0},
    {"relu", [](double x, double, double) { return std::max(x, 0.0); }, false, false, 0, 0},
    {"affine", [](double x, double alpha, double beta) { return alpha * x + beta; }, true, true, 1, 0},
    {"leakyrelu", [](double x, double alpha, double) { return x >= 0 ? x : alpha * x; }, true, false, 0.01, 0},
    {"thresholdedrelu", [](double x, double alpha, double) { return x >= alpha ? x : 0; }, true, false, 1, 0},
    {"scaledtanh", [](double x, double alpha, double beta) { return alpha * std::tanh(beta * x); }, true, true, 1, 1},
    {"hardsigmoid", [](double x, double alpha, double beta) { return std::clamp(alpha * x + beta, 0.0, 1.0); }, true,
     true, 0.2, 0.5},
    {"elu", [](double x, double alpha, double) { return x >= 0 ? x : alpha * std::expm1(x); }, true, false, 1, 0},
    {"softsign", [](double x, double, double) { return x / (1 + std::fabs(x)); }, false, false, 0, 0},
    {"softplus", [](double x, double, double) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); },
     false, false, 0, 0},
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
    out.push_back({row.function, row.takes_alpha && alpha < alphas.size() ? alphas[alpha++] : row.alpha,
                   row.takes_beta && beta < betas.size() ? betas[beta++] : row.beta});
  }
  return out;
}

// ---- One sequence ----

struct LayerAttributes {
  explicit LayerAttributes(const NodeInfo& node)
      : direction(node.attributes.string("direction", "forward")),
        batched(node.attributes.integer("layout", 0) != 0),
        coupled(node.attributes.integer("input_forget", 0) != 0),
        linear_first(node.attributes.integer("linear_before_reset", 0) != 0),
        clip(node.attributes.has("clip") ? node.attributes.real("clip", 0) : INFINITY) {
    if (node.op == "LSTM") gates = 4, functions = activations_of(node.attributes, {"Sigmoid", "Tanh", "Tanh"});
    else if (node.op == "GRU") gates = 3, functions = activations_of(node.attributes, {"Sigmoid", "Tanh"});
    else functions = activations_of(node.attributes, {"Tanh"});
  }
  std::string direction;
  bool batched, coupled, linear_first;
  double clip;
  int64_t gates = 1;
  std::vector<CellActivation> functions;  ///< f, g, h of the first direction, then of the second
};

/// The operands of one layer, widened; `state` is of c.
struct Layer {
  Layer(const KernelCall& call, const LayerAttributes& a)
      : a(a),
        steps(call.inputs[0].shape[a.batched ? 1 : 0]),
        batch(call.inputs[0].shape[a.batched ? 0 : 1]),
        inputs(call.inputs[0].shape[2]),
        hidden(call.inputs[2].shape[2]),
        directions(call.inputs[2].shape[0]),
        x(call.inputs[0]),
        w(call.inputs[1]),
        r(call.inputs[2]) {
    if (input(call, 3).present()) bias = load_all<double>(call.inputs[3]);
    if (input(call, 4).present()) lengths = to_ints(call.inputs[4]);
    const int64_t last = a.gates == 4 ? 7 : 5;
    if (input(call, 5).present()) start_h = load_all<double>(call.inputs[5]);
    if (last == 7 && input(call, 6).present()) start_c = load_all<double>(call.inputs[6]);
    if (last == 7 && input(call, 7).present()) peepholes = load_all<double>(call.inputs[7]);
  }

  /// Where the state of a sequence and direction begins.
  int64_t state_at(int64_t d, int64_t b) const { return (a.batched ? b * directions + d : d * batch + b) * hidden; }
  int64_t result_at(int64_t t, int64_t d, int64_t b) const {
    return (a.batched ? (b * steps + t) * directions + d : (t * directions + d) * batch + b) * hidden;
  }
  double clipped(double value) const { return std::clamp(value, -a.clip, a.clip); }

  const LayerAttributes& a;
  int64_t steps, batch, inputs, hidden, directions;
  Loaded<double> x, w, r;
  std::vector<double> bias, start_h, start_c, peepholes;  ///< empty: zeros
  std::vector<int64_t> lengths;                           ///< empty: all steps
};

/// A sequence in one direction: its state, and the sums of its gates before their activations.
class Cell {
 public:
  Cell(const Layer& layer, int64_t d, int64_t b)
      : n_(layer),
        d_(d),
        b_(b),
        size_(static_cast<size_t>(layer.hidden)),
        rows_(layer.a.gates * layer.hidden),
        f_(layer.a.functions.data() + static_cast<size_t>(d) * layer.a.functions.size() / 2),
        h(size_),
        c(size_),
        sums_(static_cast<size_t>(rows_)),
        recurrent_(static_cast<size_t>(rows_)) {
    const auto at = static_cast<size_t>(layer.state_at(d, b));
    if (!layer.start_h.empty())
      std::copy_n(layer.start_h.begin() + static_cast<std::ptrdiff_t>(at), size_, h.begin());
    if (!layer.start_c.empty())
      std::copy_n(layer.start_c.begin() + static_cast<std::ptrdiff_t>(at), size_, c.begin());
  }

  void step(int64_t t) {
    const double* row = n_.x.data() + (n_.a.batched ? b_ * n_.steps + t : t * n_.batch + b_) * n_.inputs;
    for (int64_t i = 0; i < rows_; ++i)
      sums_[static_cast<size_t>(i)] = dot(row, n_.w.data() + (d_ * rows_ + i) * n_.inputs, n_.inputs) + bias(i);
    multiply_state(0, rows_, h);
    if (n_.a.gates == 4) lstm();
    else if (n_.a.gates == 3) gru();
    else
      for (size_t i = 0; i < size_; ++i) h[i] = f_[0](n_.clipped(sums_[i] + recurrent_[i]));
  }

 private:
  double bias(int64_t i) const { return n_.bias.empty() ? 0 : n_.bias[static_cast<size_t>(d_ * 2 * rows_ + i)]; }
  double recurrent_bias(int64_t i) const { return bias(rows_ + i); }
  double peephole(size_t gate, size_t i) const {
    return n_.peepholes.empty() ? 0 : n_.peepholes[(static_cast<size_t>(d_) * 3 + gate) * size_ + i];
  }
  /// Rows [from, to) of r times a vector, plus their bias.
  void multiply_state(int64_t from, int64_t to, const std::vector<double>& vector) {
    for (int64_t i = from; i < to; ++i)
      recurrent_[static_cast<size_t>(i)] =
          dot(vector.data(), n_.r.data() + (d_ * rows_ + i) * n_.hidden, n_.hidden) + recurrent_bias(i);
  }
  double sum(size_t gate, size_t i) const { return sums_[gate * size_ + i] + recurrent_[gate * size_ + i]; }

  /// Gates i, o, f, c.
  void lstm() {
    for (size_t i = 0; i < size_; ++i) {
      const double in = f_[0](n_.clipped(sum(0, i) + peephole(0, i) * c[i]));
      const double forget = n_.a.coupled ? 1 - in : f_[0](n_.clipped(sum(2, i) + peephole(2, i) * c[i]));
      c[i] = forget * c[i] + in * f_[1](n_.clipped(sum(3, i)));
      h[i] = f_[0](n_.clipped(sum(1, i) + peephole(1, i) * c[i])) * f_[2](c[i]);
    }
  }

  /// Gates z, r, h: the reset gate scales the state before its product, or the product.
  void gru() {
    std::vector<double> reset(size_);
    for (size_t i = 0; i < size_; ++i) reset[i] = f_[0](n_.clipped(sum(1, i)));
    if (n_.a.linear_first) {
      for (size_t i = 0; i < size_; ++i) recurrent_[2 * size_ + i] *= reset[i];
    } else {
      for (size_t i = 0; i < size_; ++i) reset[i] *= h[i];
      multiply_state(2 * n_.hidden, rows_, reset);
    }
    for (size_t i = 0; i < size_; ++i) {
      const double update = f_[0](n_.clipped(sum(0, i)));
      h[i] = (1 - update) * f_[1](n_.clipped(sum(2, i))) + update * h[i];
    }
  }

  const Layer& n_;
  int64_t d_, b_;
  size_t size_;
  int64_t rows_;
  const CellActivation* f_;

 public:
  std::vector<double> h, c;

 private:
  std::vector<double> sums_, recurrent_;
};

/// The first operand whose sizes do not fit; -1 if all do.
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

/// x, w, r, bias?, lengths?, initial h?, initial c?, peepholes? -> the states of all steps?, the last h?, the last c?. Steps
/// after a sequence's length are zeros.
KernelStatus recurrent_layer(const KernelCall& call, const LayerAttributes& a) {
  const Layer n(call, a);
  if (const int32_t operand = misfit(call, n); operand >= 0) return {KernelCode::bad_value, operand, 0};
  const TensorView y = output(call, 0), y_h = output(call, 1), y_c = output(call, 2);
  std::vector<double> all(y.present() ? static_cast<size_t>(y.elements()) : 0);
  const auto states = static_cast<size_t>(n.directions * n.batch * n.hidden);
  std::vector<double> last_h(states), last_c(states);
  share(call.pool, n.directions * n.batch,
        n.steps * n.directions * n.batch * a.gates * n.hidden * (n.inputs + n.hidden), [&](int64_t row) {
          const int64_t d = row / n.batch, b = row % n.batch;
          const int64_t length = n.lengths.empty() ? n.steps : n.lengths[static_cast<size_t>(b)];
          const bool backwards = d == 1 || a.direction == "reverse";
          Cell cell(n, d, b);
          for (int64_t step = 0; step < length; ++step) {
            const int64_t t = backwards ? length - 1 - step : step;
            cell.step(t);
            if (!all.empty()) std::copy(cell.h.begin(), cell.h.end(), all.begin() + n.result_at(t, d, b));
          }
          std::copy(cell.h.begin(), cell.h.end(), last_h.begin() + n.state_at(d, b));
          std::copy(cell.c.begin(), cell.c.end(), last_c.begin() + n.state_at(d, b));
        });
  if (y.present()) store_all(y, all);
  if (y_h.present()) store_all(y_h, last_h);
  if (y_c.present()) store_all(y_c, last_c);
  return {};
}

}  // namespace

void add_recurrent_layers(KernelTable& table) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) add<recurrent_layer>(table, op, floats);
}

}  // namespace plait::reference
