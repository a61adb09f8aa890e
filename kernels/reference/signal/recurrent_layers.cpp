// LSTM, GRU and RNN: each sequence and direction step by step.
#include "kernels/reference/signal/recurrent_layers.h"
#include "core/base/thread_pool.h"

#include "kernels/reference/signal/register.h"

namespace plait::reference {

Cell::Cell(const Layer& layer, int64_t d, int64_t b)
    : n_(layer),
      d_(d),
      b_(b),
      size_(static_cast<size_t>(layer.hidden)),
      rows_(layer.a.gates * layer.hidden),
      f_(layer.a.functions.data() + static_cast<size_t>(d) * layer.a.functions.size() / 2),
      h(size_),
      c(size_),
      sums(static_cast<size_t>(rows_)),
      recurrent(static_cast<size_t>(rows_)) {
  const int64_t at = layer.state_at(d, b);
  if (!layer.start_h.empty()) std::copy_n(layer.start_h.begin() + at, size_, h.begin());
  if (!layer.start_c.empty()) std::copy_n(layer.start_c.begin() + at, size_, c.begin());
}

void Cell::step(int64_t t) {
  const double* row = n_.x_at(t, b_);
  for (int64_t i = 0; i < rows_; ++i)
    sums[static_cast<size_t>(i)] = dot(row, n_.w.data() + (d_ * rows_ + i) * n_.inputs, n_.inputs) + bias(i);
  multiply_state(0, rows_, h);
  if (n_.a.gates == 4) lstm();
  else if (n_.a.gates == 3) gru();
  else
    for (size_t i = 0; i < size_; ++i) h[i] = gate(0, i, f_[0]);
}

/// Rows [from, to) of r times a vector, plus their bias.
void Cell::multiply_state(int64_t from, int64_t to, const std::vector<double>& vector) {
  for (int64_t i = from; i < to; ++i)
    recurrent[static_cast<size_t>(i)] =
        dot(vector.data(), n_.r.data() + (d_ * rows_ + i) * n_.hidden, n_.hidden) + bias(rows_ + i);
}

double Cell::gate(size_t number, size_t i, const CellActivation& function, double more) {
  double& sum = sums[number * size_ + i];
  sum = sum + recurrent[number * size_ + i] + more;
  return function(n_.clipped(sum));
}

/// Gates i, o, f, c.
void Cell::lstm() {
  auto peephole = [&](int64_t gate, size_t i) { return n_.peephole(d_, gate, static_cast<int64_t>(i)) * c[i]; };
  for (size_t i = 0; i < size_; ++i) {
    const double in = gate(0, i, f_[0], peephole(0, i));
    const double forget = n_.a.coupled ? 1 - in : gate(2, i, f_[0], peephole(2, i));
    c[i] = forget * c[i] + in * gate(3, i, f_[1]);
    h[i] = gate(1, i, f_[0], peephole(1, i)) * f_[2](c[i]);
  }
}

/// Gates z, r, h: the reset gate scales the state before its product, or the product.
void Cell::gru() {
  std::vector<double> reset(size_), scaled(size_);
  for (size_t i = 0; i < size_; ++i) scaled[i] = (reset[i] = gate(1, i, f_[0])) * h[i];
  if (!n_.a.linear_first) multiply_state(2 * n_.hidden, rows_, scaled);
  for (size_t i = 0; i < size_; ++i) {
    const double update = gate(0, i, f_[0]);
    double& sum = sums[2 * size_ + i];
    sum += recurrent[2 * size_ + i] * (n_.a.linear_first ? reset[i] : 1);
    h[i] = (1 - update) * f_[1](n_.clipped(sum)) + update * h[i];
  }
}

namespace {

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
          Cell cell(n, d, b);
          StopCheck stop;
          for (int64_t step = 0; step < n.length(b); ++step) {
            stop.count(a.gates * n.hidden * (n.inputs + n.hidden));
            const int64_t t = n.time(d, b, step);
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
