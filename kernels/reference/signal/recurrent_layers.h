#pragma once
// What LSTM, GRU, RNN and their gradients share: attributes, operands, and one sequence step by step.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {

struct CellActivation {
  double (*function)(double x, double alpha, double beta);
  double (*derivative)(double x, double alpha, double beta);
  double alpha, beta;
  double operator()(double x) const { return function(x, alpha, beta); }
  double slope(double x) const { return derivative(x, alpha, beta); }
};

/// Throws Error(bad_model) for attributes of another kind, and unknown activations.
struct LayerAttributes {
  explicit LayerAttributes(const NodeInfo& node);

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
  bool backwards(int64_t d) const { return d == 1 || a.direction == "reverse"; }
  int64_t length(int64_t b) const { return lengths.empty() ? steps : lengths[static_cast<size_t>(b)]; }
  /// The time of step `step` of a sequence.
  int64_t time(int64_t d, int64_t b, int64_t step) const { return backwards(d) ? length(b) - 1 - step : step; }
  const double* x_at(int64_t t, int64_t b) const {
    return x.data() + (a.batched ? b * steps + t : t * batch + b) * inputs;
  }
  double peephole(int64_t d, int64_t gate, int64_t i) const {
    return peepholes.empty() ? 0 : peepholes[static_cast<size_t>((d * 3 + gate) * hidden + i)];
  }

  const LayerAttributes& a;
  int64_t steps, batch, inputs, hidden, directions;
  Loaded<double> x, w, r;
  std::vector<double> bias, start_h, start_c, peepholes;  ///< empty: zeros
  std::vector<int64_t> lengths;                           ///< empty: all steps
};

/// A sequence in one direction. After a step, `sums` has what the activations of its gates read, and `recurrent` what the state's
/// products added, before a reset gate scaled it.
class Cell {
 public:
  Cell(const Layer& layer, int64_t d, int64_t b);
  void step(int64_t t);

 private:
  double bias(int64_t i) const { return n_.bias.empty() ? 0 : n_.bias[static_cast<size_t>(d_ * 2 * rows_ + i)]; }
  void multiply_state(int64_t from, int64_t to, const std::vector<double>& vector);
  double gate(size_t number, size_t i, const CellActivation& function, double more = 0);
  void lstm();
  void gru();

  const Layer& n_;
  int64_t d_, b_;
  size_t size_;
  int64_t rows_;
  const CellActivation* f_;

 public:
  std::vector<double> h, c, sums, recurrent;
};

/// The first operand whose sizes do not fit; -1 if all do.
int32_t misfit(const KernelCall& call, const Layer& layer);

}  // namespace plait::reference
