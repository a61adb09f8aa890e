// plait.RecurrentBack of LSTM and GRU in f32 with the usual activations: products over all steps at once where a step does not wait for
// another, and step by step what the state's products give.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/linear/matmul_tile.h"
#include "kernels/cpu/recurrent/layer_products.h"
#include "kernels/cpu/training/register.h"

namespace plait::cpu {
namespace {

enum Operand : size_t { of_x, of_w, of_r, of_b, of_lengths, of_h, of_c, of_p, of_dy, of_dy_h, of_dy_c };

struct LayerBackState : KernelState {
  explicit LayerBackState(const NodeInfo& node)
      : gates(node.attributes.string("layer", "") == "LSTM" ? 4 : 3),
        batched(node.attributes.integer("layout", 0) != 0),
        reversed(node.attributes.string("direction", "forward") == "reverse"),
        both(node.attributes.string("direction", "forward") == "bidirectional"),
        linear_first(node.attributes.integer("linear_before_reset", 0) != 0) {}
  int64_t gates;
  bool batched, reversed, both, linear_first;
};

std::shared_ptr<const KernelState> prepare_layer_back(const NodeInfo& node) {
  return std::make_shared<LayerBackState>(node);
}

bool accepts_layer_back(const NodeInfo& node) {
  const std::string layer = node.attributes.string("layer", "");
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i < 3 ? !is_f32(node, i) : !is_f32_or_absent(node, i)) return false;
    if ((i == of_lengths || i == of_p) && node.inputs[i].dtype != DType::none) return false;
  }
  return (layer == "LSTM" || layer == "GRU") && usual_activations(node, layer) && !node.attributes.has("clip") &&
         node.attributes.integer("input_forget", 0) == 0;
}

/// x [steps, batch, inputs] or, batched, [batch, steps, inputs], w [directions, gates hidden, inputs], r [.., hidden]. Arrays over all
/// steps have a row for each of x, in its order.
struct LayerBackShape {
  LayerBackShape(const LayerBackState& a, std::span<const TensorView> in)
      : batched(a.batched),
        steps(in[of_x].shape[a.batched ? 1 : 0]),
        batch(in[of_x].shape[a.batched ? 0 : 1]),
        inputs(in[of_x].shape[2]),
        hidden(in[of_r].shape[2]),
        directions(in[of_r].shape[0]),
        rows(a.gates * hidden),
        count(steps * batch) {}
  int64_t at(int64_t t, int64_t b) const { return batched ? b * steps + t : t * batch + b; }
  int64_t pitch() const { return batched ? steps : 1; }  ///< rows from one sequence to the next
  bool batched;
  int64_t steps, batch, inputs, hidden, directions, rows, count;

  int64_t gates_bytes() const { return align(count * rows * 4); }
  int64_t states_bytes() const { return align(count * hidden * 4); }
  int64_t step_bytes() const { return align(batch * rows * 4); }
  int64_t state_bytes() const { return align(batch * hidden * 4); }
};

template <Isa isa>
int64_t layer_back_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                           int threads) {
  const LayerBackShape n(*static_cast<const LayerBackState*>(state), inputs);
  int64_t workspace = 0;
  const std::pair<int64_t, int64_t> products[] = {
      {n.count, n.inputs}, {n.batch, n.hidden}, {n.rows, n.count}, {n.count, n.rows}};
  for (const auto& [m, k] : products)
    workspace = std::max(workspace, GemmWorkspace(f32_gemm_tiles(isa), m, k).bytes(threads));
  return n.gates_bytes() + 3 * n.states_bytes() + n.step_bytes() + 4 * n.state_bytes() +
         threads * align(matmul_panel * 4) + workspace;
}

/// The first operand whose sizes do not fit; -1 if all do.
int32_t misfit_back(const KernelCall& call, const LayerBackState& a, const LayerBackShape& n) {
  const Shape &w = call.inputs[of_w].shape, &r = call.inputs[of_r].shape;
  if (n.directions != (a.both ? 2 : 1) || r[1] != n.rows) return of_r;
  if (w[0] != n.directions || w[1] != n.rows || w[2] != n.inputs) return of_w;
  const int64_t states = n.directions * n.batch * n.hidden;
  const std::pair<size_t, int64_t> sizes[] = {
      {of_b, n.directions * 2 * n.rows}, {of_h, states},    {of_c, states},
      {of_dy, n.steps * states},         {of_dy_h, states}, {of_dy_c, states}};
  for (const auto& [i, size] : sizes)
    if (i < call.inputs.size() && call.inputs[i].present() && call.inputs[i].elements() != size)
      return static_cast<int32_t>(i);
  return -1;
}

/// One direction of a layer.
template <Isa isa>
class DirectionBack {
 public:
  DirectionBack(const KernelCall& call, const LayerBackState& a, const LayerBackShape& n, int64_t d)
      : call_(call), a_(a), n_(n), d_(d), loops_(elementwise_loops(isa)) {
    std::byte* at = call.scratch.data();
    auto take = [&](int64_t bytes) {
      auto* out = reinterpret_cast<float*>(at);
      at += bytes;
      return out;
    };
    gates_ = take(n.gates_bytes());
    before_ = take(n.states_bytes());
    cells_ = take(n.states_bytes());
    kept_ = take(n.states_bytes());
    step_ = take(n.step_bytes());
    for (float** one : {&h_, &c_, &dh_, &dc_}) *one = take(n.state_bytes());
    panels_ = take(call.pool.size() * align(matmul_panel * 4));
    workspace_ = at;
  }

  void run() {
    forwards();
    load_state(of_dy_h, dh_);
    load_state(of_dy_c, dc_);
    for (int64_t step = n_.steps; step-- > 0;) {
      const int64_t t = time(step);
      for (int64_t b = 0; b < n_.batch; ++b) {
        if (const float* dy = operand(of_dy)) add(dy + result_at(t, b), dh_ + b * n_.hidden, n_.hidden);
        if (a_.gates == 4) lstm(n_.at(t, b), b);
        else gru(n_.at(t, b), b);
      }
      if (a_.gates == 3) return_to_states(t);
      else transposed(gates_ + n_.at(t, 0) * n_.rows, n_.rows, state_weight(), n_.rows, dh_, false);
    }
    store_state(4, dh_);
    store_state(5, dc_);
    products();
  }

 private:
  const float* operand(size_t i) const {
    return i < call_.inputs.size() && call_.inputs[i].present() ? call_.inputs[i].as<float>() : nullptr;
  }
  float* output(size_t i) const {
    return i < call_.outputs.size() && call_.outputs[i].present() ? call_.outputs[i].as<float>() : nullptr;
  }
  int64_t state_at(int64_t b) const { return (a_.batched ? b * n_.directions + d_ : d_ * n_.batch + b) * n_.hidden; }
  int64_t result_at(int64_t t, int64_t b) const {
    return (a_.batched ? (b * n_.steps + t) * n_.directions + d_ : (t * n_.directions + d_) * n_.batch + b) *
           n_.hidden;
  }
  int64_t time(int64_t step) const { return d_ == 1 || a_.reversed ? n_.steps - 1 - step : step; }
  void load_state(size_t i, float* to) const {
    const float* from = operand(i);
    for (int64_t b = 0; b < n_.batch; ++b)
      if (from) std::memcpy(to + b * n_.hidden, from + state_at(b), static_cast<size_t>(n_.hidden) * 4);
      else std::fill_n(to + b * n_.hidden, n_.hidden, 0.0f);
  }
  void store_state(size_t i, const float* from) const {
    float* to = output(i);
    for (int64_t b = 0; b < n_.batch && to; ++b)
      std::memcpy(to + state_at(b), from + b * n_.hidden, static_cast<size_t>(n_.hidden) * 4);
  }
  void add(const float* from, float* to, int64_t count) const {
    loops_.binary[static_cast<int>(Binary::add)](to, 1, from, 1, to, count);
  }
  void apply(Unary f, const float* x, float* y, int64_t count) const {
    loops_.unary[static_cast<int>(f)](x, y, count);
  }
  const float* weight() const { return operand(of_w) + d_ * n_.rows * n_.inputs; }
  const float* state_weight() const { return operand(of_r) + d_ * n_.rows * n_.hidden; }

  /// All gates after their activations, the state before each step, and of each step of an LSTM c before and tanh c after, of a GRU the
  /// state's part of the last gate, or what its product read.
  void forwards() {
    const float* bias = operand(of_b) ? operand(of_b) + d_ * 2 * n_.rows : nullptr;
    layer_product<isa>(call_.pool, operand(of_x), n_.count, weight(), n_.rows, n_.inputs, gates_, n_.rows,
                       workspace_);
    const int64_t joined = a_.gates == 4 ? n_.rows : 2 * n_.hidden;  // a GRU's last gate adds the state's bias itself
    for (int64_t row = 0; row < n_.count && bias; ++row) {
      add(bias, gates_ + row * n_.rows, n_.rows);
      add(bias + n_.rows, gates_ + row * n_.rows, joined);
    }
    load_state(of_h, h_);
    load_state(a_.gates == 4 ? size_t{of_c} : call_.inputs.size(), c_);
    for (int64_t step = 0; step < n_.steps; ++step) {
      const int64_t t = time(step);
      for (int64_t b = 0; b < n_.batch; ++b) {
        std::memcpy(before_ + n_.at(t, b) * n_.hidden, h_ + b * n_.hidden, static_cast<size_t>(n_.hidden) * 4);
        std::memcpy(cells_ + n_.at(t, b) * n_.hidden, c_ + b * n_.hidden, static_cast<size_t>(n_.hidden) * 4);
      }
      if (a_.gates == 4) lstm_forwards(t);
      else gru_forwards(t, bias ? bias + n_.rows + 2 * n_.hidden : nullptr);
    }
  }

  void lstm_forwards(int64_t t) {
    const int64_t h = n_.hidden;
    layer_product<isa>(call_.pool, h_, n_.batch, state_weight(), n_.rows, h, step_, n_.rows, workspace_);
    for (int64_t b = 0; b < n_.batch; ++b) {
      float *row = gates_ + n_.at(t, b) * n_.rows, *c = c_ + b * h, *tanh = kept_ + n_.at(t, b) * h;
      add(step_ + b * n_.rows, row, n_.rows);
      apply(Unary::sigmoid, row, row, 3 * h);
      apply(Unary::tanh, row + 3 * h, row + 3 * h, h);
      for (int64_t j = 0; j < h; ++j) c[j] = row[2 * h + j] * c[j] + row[j] * row[3 * h + j];
      apply(Unary::tanh, c, tanh, h);
      for (int64_t j = 0; j < h; ++j) h_[b * h + j] = tanh[j] * row[h + j];
    }
  }

  void gru_forwards(int64_t t, const float* bias) {
    const int64_t h = n_.hidden;
    layer_product<isa>(call_.pool, h_, n_.batch, state_weight(), a_.linear_first ? n_.rows : 2 * h, h, step_, n_.rows,
                       workspace_);
    for (int64_t b = 0; b < n_.batch; ++b) {
      float *row = gates_ + n_.at(t, b) * n_.rows, *reset = dh_ + b * h;
      add(step_ + b * n_.rows, row, 2 * h);
      apply(Unary::sigmoid, row, row, 2 * h);
      for (int64_t j = 0; j < h; ++j) reset[j] = row[h + j] * h_[b * h + j];
    }
    if (!a_.linear_first)
      layer_product<isa>(call_.pool, dh_, n_.batch, state_weight() + 2 * h * h, h, h, step_ + 2 * h, n_.rows,
                         workspace_);
    for (int64_t b = 0; b < n_.batch; ++b) {
      float *row = gates_ + n_.at(t, b) * n_.rows, *from = step_ + b * n_.rows + 2 * h, *state = h_ + b * h,
            *kept = kept_ + n_.at(t, b) * h;
      if (bias) add(bias, from, h);
      for (int64_t j = 0; j < h; ++j) {
        kept[j] = a_.linear_first ? from[j] : dh_[b * h + j];
        row[2 * h + j] += a_.linear_first ? row[h + j] * from[j] : from[j];
      }
      apply(Unary::tanh, row + 2 * h, row + 2 * h, h);
      for (int64_t j = 0; j < h; ++j) state[j] = (1 - row[j]) * row[2 * h + j] + row[j] * state[j];
    }
  }

  /// Replaces the gates i, o, f, c of a step by the gradients of their sums, and dc by that before the step.
  void lstm(int64_t at, int64_t b) {
    const int64_t h = n_.hidden;
    float *row = gates_ + at * n_.rows, *dc = dc_ + b * h;
    const float *before = cells_ + at * h, *tanh = kept_ + at * h, *dh = dh_ + b * h;
    for (int64_t j = 0; j < h; ++j) {
      const float in = row[j], result = row[h + j], forget = row[2 * h + j], fresh = row[3 * h + j];
      const float own = dc[j] + dh[j] * result * (1 - tanh[j] * tanh[j]);
      row[j] = own * fresh * in * (1 - in);
      row[h + j] = dh[j] * tanh[j] * result * (1 - result);
      row[2 * h + j] = own * before[j] * forget * (1 - forget);
      row[3 * h + j] = own * in * (1 - fresh * fresh);
      dc[j] = own * forget;
    }
  }

  /// The same of the gates z and h of a GRU; the gradient of the state so far goes to `c_`, and the reset gate waits for that of its
  /// product, but where it scales the product itself.
  void gru(int64_t at, int64_t b) {
    const int64_t h = n_.hidden;
    float *row = gates_ + at * n_.rows, *kept = kept_ + at * h, *next = c_ + b * h;
    const float *before = before_ + at * h, *dh = dh_ + b * h;
    for (int64_t j = 0; j < h; ++j) {
      const float update = row[j], fresh = row[2 * h + j];
      next[j] = dh[j] * update;
      row[j] = dh[j] * (before[j] - fresh) * update * (1 - update);
      row[2 * h + j] = dh[j] * (1 - update) * (1 - fresh * fresh);
      if (!a_.linear_first) continue;
      const float reset = row[h + j], part = kept[j];
      row[h + j] = row[2 * h + j] * part * reset * (1 - reset);
      kept[j] = row[2 * h + j] * reset;  // of the state's part of the last gate
    }
  }

  /// dh before the step: through the products of the state.
  void return_to_states(int64_t t) {
    const int64_t h = n_.hidden, first = n_.at(t, 0);
    if (a_.linear_first) transposed(kept_ + first * h, h, state_weight() + 2 * h * h, h, c_, true);
    else {
      transposed(gates_ + first * n_.rows + 2 * h, n_.rows, state_weight() + 2 * h * h, h, dc_, false);
      for (int64_t b = 0; b < n_.batch; ++b) {
        float *row = gates_ + n_.at(t, b) * n_.rows + h, *next = c_ + b * h;
        const float *before = before_ + n_.at(t, b) * h, *of_reset = dc_ + b * h;
        for (int64_t j = 0; j < h; ++j) {
          next[j] += of_reset[j] * row[j];
          row[j] = of_reset[j] * before[j] * row[j] * (1 - row[j]);
        }
      }
    }
    transposed(gates_ + first * n_.rows, n_.rows, state_weight(), 2 * h, c_, true);
    std::swap(c_, dh_);
  }

  /// y [batch, hidden] (+)= a [batch, k], of a step's rows `ld` apart, times k rows of the state's weight.
  void transposed(const float* a, int64_t ld, const float* weights, int64_t k, float* y, bool adds) const {
    const int64_t h = n_.hidden;
    share_ranges(call_.pool, h, 16, (n_.batch * k + 7) / 8, [&](int64_t begin, int64_t end, int worker) {
      multiply(isa, {a, ld * n_.pitch(), n_.batch, weights + begin, h, end - begin, k, y + begin, h,
                     panels_ + worker * (align(matmul_panel * 4) / 4), adds});
    });
  }

  void gemm(GemmLeft a, const float* b, int64_t ldb, int64_t m, int64_t n, int64_t k, float* y, int64_t ldy,
            bool adds = false) const {
    if (m == 0 || n == 0) return;
    run_gemm(call_.pool, f32_gemm_tiles(isa),
             {.a = a,
              .b = {reinterpret_cast<const uint8_t*>(b), DType::f32, ldb},
              .m = m,
              .n = n,
              .k = k,
              .y = y,
              .ldy = ldy,
              .adds = adds},
             workspace_);
  }

  /// What is a sum over steps, or of each step by itself.
  void products() const {
    const int64_t h = n_.hidden, i = n_.inputs;
    const bool own = a_.gates == 3;  // of the last gate the state's product read, or gives, something else
    if (float* dx = output(0)) gemm({gates_, n_.rows, false}, weight(), i, n_.count, i, n_.rows, dx, i, d_ > 0);
    if (float* dw = output(1))
      gemm({gates_, n_.rows, true}, operand(of_x), i, n_.rows, i, n_.count, dw + d_ * n_.rows * i, i);
    if (float* dr = output(2)) {
      dr += d_ * n_.rows * h;
      gemm({gates_, n_.rows, true}, before_, h, own ? 2 * h : n_.rows, h, n_.count, dr, h);
      if (own && a_.linear_first) gemm({kept_, h, true}, before_, h, h, h, n_.count, dr + 2 * h * h, h);
      else if (own) gemm({gates_ + 2 * h, n_.rows, true}, kept_, h, h, h, n_.count, dr + 2 * h * h, h);
    }
    if (float* db = output(3)) {
      db += d_ * 2 * n_.rows;
      std::fill_n(db, 2 * n_.rows, 0.0f);
      for (int64_t row = 0; row < n_.count; ++row) {
        add(gates_ + row * n_.rows, db, n_.rows);
        add(gates_ + row * n_.rows, db + n_.rows, own && a_.linear_first ? 2 * h : n_.rows);
        if (own && a_.linear_first) add(kept_ + row * h, db + n_.rows + 2 * h, h);
      }
    }
  }

  const KernelCall& call_;
  const LayerBackState& a_;
  const LayerBackShape& n_;
  int64_t d_;
  const ElementwiseLoops& loops_;
  float *gates_, *before_, *cells_, *kept_, *step_, *h_, *c_, *dh_, *dc_, *panels_;
  std::byte* workspace_;
};

template <Isa isa>
KernelStatus run_layer_back(const KernelCall& call) {
  const auto& a = *static_cast<const LayerBackState*>(call.state);
  const LayerBackShape n(a, call.inputs);
  if (const int32_t operand = misfit_back(call, a, n); operand >= 0) return {KernelCode::bad_value, operand, 0};
  for (int64_t d = 0; d < n.directions; ++d) DirectionBack<isa>(call, a, n, d).run();
  return {};
}

template <Isa isa>
void add_layers_back_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.RecurrentBack",
              .dtypes = "f32",
              .accepts = accepts_layer_back,
              .prepare = prepare_layer_back,
              .scratch_bytes = layer_back_scratch<isa>,
              .run = run_layer_back<isa>});
}

}  // namespace

void add_layers_back(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_layers_back_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_layers_back_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
