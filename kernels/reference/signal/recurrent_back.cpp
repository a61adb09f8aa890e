// The gradients of LSTM, GRU and RNN: each sequence and direction forwards and then backwards through time (Werbos 1990), and the
// products that sum over all steps at the end.
#include "kernels/reference/signal/recurrent_layers.h"
#include "kernels/reference/signal/register.h"

namespace plait::reference {
namespace {

constexpr size_t first_dy = 8;  ///< operands before are those of the layer

/// What a step began with, and what its gates' activations read.
struct Trace {
  std::vector<double> h, c, sums, recurrent;
};

/// What each step gives to the products, by direction, sequence and time.
struct StepGradients {
  explicit StepGradients(const Layer& n) : n(n), rows(n.a.gates * n.hidden) {
    const int64_t steps = n.directions * n.batch * n.steps;
    of_inputs.resize(static_cast<size_t>(steps * rows));
    before.resize(static_cast<size_t>(steps * n.hidden));
    if (n.a.gates != 3) return;
    if (n.a.linear_first) of_states.resize(of_inputs.size());
    else reset.resize(before.size());
  }
  int64_t step(int64_t d, int64_t b, int64_t t) const { return (d * n.batch + b) * n.steps + t; }
  const std::vector<double>& states() const { return of_states.empty() ? of_inputs : of_states; }
  /// What row `row` of the state's weight multiplies.
  const std::vector<double>& read_by(int64_t row) const {
    return !reset.empty() && row >= 2 * n.hidden ? reset : before;
  }

  const Layer& n;
  int64_t rows;
  std::vector<double> of_inputs;  ///< [.., rows]: of the sums that the inputs' products add to
  std::vector<double> of_states;  ///< the same of the states' products, where it differs
  std::vector<double> before;     ///< [.., hidden]: the state before the step
  std::vector<double> reset;      ///< the same, scaled by the reset gate
};

/// Gradients of what is not summed over steps. [directions, batch, ..]
struct SequenceGradients {
  explicit SequenceGradients(const Layer& n)
      : start_h(static_cast<size_t>(n.directions * n.batch * n.hidden)),
        start_c(start_h.size()),
        peepholes(3 * start_h.size()) {}
  std::vector<double> start_h, start_c;
  std::vector<double> peepholes;  ///< [directions, batch, 3, hidden]
};

struct ResultGradients {
  explicit ResultGradients(const KernelCall& call) {
    std::vector<double>* const all[] = {&y, &last_h, &last_c};
    for (size_t k = 0; k < 3; ++k)
      if (const TensorView view = input(call, first_dy + k); view.present()) *all[k] = load_all<double>(view);
  }
  std::vector<double> y, last_h, last_c;  ///< empty: zeros
};

class BackCell {
 public:
  BackCell(const Layer& n, const ResultGradients& given, int64_t d, int64_t b, StepGradients& steps,
           SequenceGradients& out)
      : n_(n),
        given_(given),
        d_(d),
        b_(b),
        size_(static_cast<size_t>(n.hidden)),
        f_(n.a.functions.data() + static_cast<size_t>(d) * n.a.functions.size() / 2),
        steps_(steps),
        out_(out),
        dh_(size_),
        dc_(size_) {}

  void run() {
    std::vector<Trace> traces;
    Cell cell(n_, d_, b_);
    for (int64_t step = 0; step < n_.length(b_); ++step) {
      Trace trace{cell.h, cell.c, {}, {}};
      cell.step(n_.time(d_, b_, step));
      trace.sums = cell.sums;
      trace.recurrent = cell.recurrent;
      traces.push_back(std::move(trace));
    }
    const int64_t state = n_.state_at(d_, b_);
    if (!given_.last_h.empty()) std::copy_n(given_.last_h.begin() + state, size_, dh_.begin());
    if (!given_.last_c.empty()) std::copy_n(given_.last_c.begin() + state, size_, dc_.begin());
    for (int64_t step = n_.length(b_); step-- > 0;) back(traces[static_cast<size_t>(step)], n_.time(d_, b_, step));
    std::copy(dh_.begin(), dh_.end(), out_.start_h.begin() + state);
    std::copy(dc_.begin(), dc_.end(), out_.start_c.begin() + state);
  }

 private:
  struct Gate {
    double value, slope;
  };
  Gate gate(const Trace& trace, size_t number, size_t i, const CellActivation& f) const {
    const double sum = trace.sums[number * size_ + i], clipped = n_.clipped(sum);
    return {f(clipped), clipped == sum ? f.slope(clipped) : 0};
  }

  void back(const Trace& trace, int64_t t) {
    const int64_t at = steps_.step(d_, b_, t);
    double* sums = steps_.of_inputs.data() + at * steps_.rows;
    std::copy(trace.h.begin(), trace.h.end(), steps_.before.begin() + at * n_.hidden);
    if (!given_.y.empty())
      for (size_t i = 0; i < size_; ++i) dh_[i] += given_.y[static_cast<size_t>(n_.result_at(t, d_, b_)) + i];
    if (n_.a.gates == 4) lstm(trace, sums);
    else if (n_.a.gates == 3) gru(trace, at, sums);
    else rnn(trace, sums);
  }

  /// to += rows [from, to) of the state's weight, transposed, times the rows' gradients.
  void add_transposed(const double* gradients, int64_t from, int64_t to, std::vector<double>& sum) const {
    for (int64_t row = from; row < to; ++row) {
      const double* weights = n_.r.data() + (d_ * steps_.rows + row) * n_.hidden;
      for (size_t i = 0; i < size_; ++i) sum[i] += gradients[row] * weights[i];
    }
  }

  void rnn(const Trace& trace, double* sums) {
    for (size_t i = 0; i < size_; ++i) sums[i] = dh_[i] * gate(trace, 0, i, f_[0]).slope;
    std::fill(dh_.begin(), dh_.end(), 0);
    add_transposed(sums, 0, steps_.rows, dh_);
  }

  void lstm(const Trace& trace, double* sums) {
    double* const peepholes = out_.peepholes.data() + (d_ * n_.batch + b_) * 3 * n_.hidden;
    for (size_t i = 0; i < size_; ++i) {
      auto weight = [&](int64_t number) { return n_.peephole(d_, number, static_cast<int64_t>(i)); };
      const double before = trace.c[i];
      const Gate in = gate(trace, 0, i, f_[0]), result = gate(trace, 1, i, f_[0]), fresh = gate(trace, 3, i, f_[1]),
                 forget = n_.a.coupled ? Gate{1 - in.value, 0} : gate(trace, 2, i, f_[0]);
      const double after = forget.value * before + in.value * fresh.value;
      const double d_result = dh_[i] * f_[2](after) * result.slope;
      const double dc = dc_[i] + dh_[i] * result.value * f_[2].slope(after) + d_result * weight(1);
      const double d_in = dc * (fresh.value - (n_.a.coupled ? before : 0)) * in.slope,
                   d_forget = dc * before * forget.slope;
      sums[i] = d_in;
      sums[size_ + i] = d_result;
      sums[2 * size_ + i] = d_forget;
      sums[3 * size_ + i] = dc * in.value * fresh.slope;
      dc_[i] = dc * forget.value + d_in * weight(0) + d_forget * weight(2);
      peepholes[i] += d_in * before;
      peepholes[size_ + i] += d_result * after;
      peepholes[2 * size_ + i] += d_forget * before;
    }
    std::fill(dh_.begin(), dh_.end(), 0);
    add_transposed(sums, 0, steps_.rows, dh_);
  }

  void gru(const Trace& trace, int64_t at, double* sums) {
    const int64_t last = 2 * n_.hidden;  // the first row of the last gate
    std::vector<double> next(size_), of_reset(size_);
    for (size_t i = 0; i < size_; ++i) {
      const Gate update = gate(trace, 0, i, f_[0]), fresh = gate(trace, 2, i, f_[1]);
      sums[i] = dh_[i] * (trace.h[i] - fresh.value) * update.slope;
      sums[2 * size_ + i] = dh_[i] * (1 - update.value) * fresh.slope;
      next[i] = dh_[i] * update.value;
      if (n_.a.linear_first) of_reset[i] = sums[2 * size_ + i] * trace.recurrent[2 * size_ + i];
    }
    if (!n_.a.linear_first) {  // so far of the state times the gate
      add_transposed(sums, last, steps_.rows, of_reset);
      double* reset = steps_.reset.data() + at * n_.hidden;
      for (size_t i = 0; i < size_; ++i) {
        const double value = gate(trace, 1, i, f_[0]).value;
        reset[i] = value * trace.h[i];
        next[i] += of_reset[i] * value;
        of_reset[i] *= trace.h[i];
      }
    }
    for (size_t i = 0; i < size_; ++i) sums[size_ + i] = of_reset[i] * gate(trace, 1, i, f_[0]).slope;
    add_transposed(sums, 0, last, next);
    if (n_.a.linear_first) {
      double* states = steps_.of_states.data() + at * steps_.rows;
      std::copy_n(sums, last, states);
      for (size_t i = 0; i < size_; ++i) states[2 * size_ + i] = sums[2 * size_ + i] * gate(trace, 1, i, f_[0]).value;
      add_transposed(states, last, steps_.rows, next);
    }
    dh_ = std::move(next);
  }

  const Layer& n_;
  const ResultGradients& given_;
  int64_t d_, b_;
  size_t size_;
  const CellActivation* f_;
  StepGradients& steps_;
  SequenceGradients& out_;
  std::vector<double> dh_, dc_;
};

/// [directions, rows, width]: of each row the sum over sequences and steps of its gradient times what it multiplied.
template <class F>
void store_weight(const KernelCall& call, const TensorView& out, const StepGradients& steps,
                  const std::vector<double>& gradients, F read) {
  const Layer& n = steps.n;
  const int64_t width = out.shape[2];
  std::vector<double> sums(static_cast<size_t>(out.elements()));
  share(call.pool, n.directions * steps.rows, out.elements() * n.batch * n.steps, [&](int64_t row) {
    double* sum = sums.data() + row * width;
    for (int64_t b = 0; b < n.batch; ++b)
      for (int64_t t = 0; t < n.length(b); ++t) {
        const int64_t d = row / steps.rows, at = steps.step(d, b, t);
        const double gradient = gradients[static_cast<size_t>(at * steps.rows + row % steps.rows)];
        const double* from = read(b, t, row % steps.rows, at);
        for (int64_t i = 0; i < width; ++i) sum[i] += gradient * from[i];
      }
  });
  store_all(out, sums);
}

void store_inputs(const KernelCall& call, const TensorView& out, const StepGradients& steps) {
  const Layer& n = steps.n;
  std::vector<double> sums(static_cast<size_t>(out.elements()));
  share(call.pool, n.batch * n.steps, out.elements() * n.directions * steps.rows, [&](int64_t place) {
    const int64_t b = place / n.steps, t = place % n.steps;
    double* sum = sums.data() + (n.x_at(t, b) - n.x.data());
    for (int64_t row = 0; row < n.directions * steps.rows; ++row) {
      const double gradient =
          steps.of_inputs[static_cast<size_t>(steps.step(row / steps.rows, b, t) * steps.rows + row % steps.rows)];
      const double* weights = n.w.data() + row * n.inputs;
      for (int64_t i = 0; i < n.inputs; ++i) sum[i] += gradient * weights[i];
    }
  });
  store_all(out, sums);
}

/// [directions, 2 rows]: the inputs' biases, then the states'.
void store_biases(const TensorView& out, const StepGradients& steps) {
  const Layer& n = steps.n;
  std::vector<double> sums(static_cast<size_t>(out.elements()));
  for (int64_t at = 0; at < n.directions * n.batch * n.steps; ++at)
    for (int64_t row = 0; row < steps.rows; ++row) {
      const auto from = static_cast<size_t>(at * steps.rows + row);
      const int64_t to = at / (n.batch * n.steps) * 2 * steps.rows + row;
      sums[static_cast<size_t>(to)] += steps.of_inputs[from];
      sums[static_cast<size_t>(to + steps.rows)] += steps.states()[from];
    }
  store_all(out, sums);
}

void store_peepholes(const TensorView& out, const Layer& n, const SequenceGradients& sequences) {
  const int64_t each = 3 * n.hidden;
  std::vector<double> sums(static_cast<size_t>(out.elements()));
  for (int64_t i = 0; i < n.directions * n.batch * each; ++i)
    sums[static_cast<size_t>(i / (n.batch * each) * each + i % each)] += sequences.peepholes[static_cast<size_t>(i)];
  store_all(out, sums);
}

/// x, w, r, bias?, lengths?, initial h?, initial c?, peepholes?, and gradients of y?, of the last h?, of the last c? -> those of x?,
/// w?, r?, bias?, initial h?, initial c?, peepholes?
KernelStatus recurrent_back(const KernelCall& call, const LayerAttributes& a) {
  const Layer n(call, a);
  if (const int32_t operand = misfit(call, n); operand >= 0) return {KernelCode::bad_value, operand, 0};
  const ResultGradients given(call);
  const int64_t states = n.directions * n.batch * n.hidden;
  auto fits = [](const std::vector<double>& list, int64_t size) {
    return list.empty() || static_cast<int64_t>(list.size()) == size;
  };
  if (!fits(given.y, n.steps * states)) return {KernelCode::bad_value, first_dy, 0};
  if (!fits(given.last_h, states)) return {KernelCode::bad_value, first_dy + 1, 0};
  if (!fits(given.last_c, states)) return {KernelCode::bad_value, first_dy + 2, 0};
  StepGradients steps(n);
  SequenceGradients sequences(n);
  share(call.pool, n.directions * n.batch, n.steps * states * a.gates * (n.inputs + 2 * n.hidden),
        [&](int64_t row) { BackCell(n, given, row / n.batch, row % n.batch, steps, sequences).run(); });
  const TensorView dx = output(call, 0), dw = output(call, 1), dr = output(call, 2), bias = output(call, 3),
                   start_h = output(call, 4), start_c = output(call, 5), peepholes = output(call, 6);
  if (dx.present()) store_inputs(call, dx, steps);
  if (dw.present())
    store_weight(call, dw, steps, steps.of_inputs,
                 [&](int64_t b, int64_t t, int64_t, int64_t) { return n.x_at(t, b); });
  if (dr.present())
    store_weight(call, dr, steps, steps.states(), [&](int64_t, int64_t, int64_t row, int64_t at) {
      return steps.read_by(row).data() + at * n.hidden;
    });
  if (bias.present()) store_biases(bias, steps);
  if (start_h.present()) store_all(start_h, sequences.start_h);
  if (start_c.present()) store_all(start_c, sequences.start_c);
  if (peepholes.present()) store_peepholes(peepholes, n, sequences);
  return {};
}

}  // namespace

void add_recurrent_back(KernelTable& table) { add<recurrent_back>(table, "plait.RecurrentBack", floats); }

}  // namespace plait::reference
