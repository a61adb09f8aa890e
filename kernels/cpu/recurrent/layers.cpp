// LSTM and GRU of f32 with the usual activations: the inputs' products of many steps at once, then step by step the state's.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/recurrent/layer_products.h"
#include "kernels/cpu/recurrent/register.h"

namespace plait::cpu {
namespace {

struct LayerState : KernelState {
  explicit LayerState(const NodeInfo& node)
      : gates(node.op == "LSTM" ? 4 : 3),
        batched(node.attributes.integer("layout", 0) != 0),
        reversed(node.attributes.string("direction", "forward") == "reverse"),
        both(node.attributes.string("direction", "forward") == "bidirectional"),
        linear_first(node.attributes.integer("linear_before_reset", 0) != 0) {}
  int64_t gates;
  bool batched, reversed, both, linear_first;
};

std::shared_ptr<const KernelState> prepare_layer(const NodeInfo& node) { return std::make_shared<LayerState>(node); }

bool accepts_layer(const NodeInfo& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i < 3 ? !is_f32(node, i) : !is_f32_or_absent(node, i)) return false;
    if ((i == 4 || i == 7) && node.inputs[i].dtype != DType::none) return false;  // lengths, peepholes
  }
  return usual_activations(node, node.op) && !node.attributes.has("clip") &&
         node.attributes.integer("input_forget", 0) == 0;
}

/// x [steps, batch, inputs] or, batched, [batch, steps, inputs], w [directions, gates hidden, inputs], r [.., hidden].
struct LayerShape {
  LayerShape(const LayerState& a, std::span<const TensorView> in)
      : steps(in[0].shape[a.batched ? 1 : 0]),
        batch(in[0].shape[a.batched ? 0 : 1]),
        inputs(in[0].shape[2]),
        hidden(in[2].shape[2]),
        directions(in[2].shape[0]),
        rows(a.gates * hidden),
        together(std::clamp<int64_t>((int64_t{1} << 20) / std::max<int64_t>(batch * rows, 1), 1,
                                     std::max<int64_t>(steps, 1))) {}
  int64_t steps, batch, inputs, hidden, directions;
  int64_t rows;      ///< of w and r
  int64_t together;  ///< steps whose inputs' products are made at once: 4 MB of them

  int64_t sums_bytes() const { return align(together * batch * rows * 4); }
  int64_t step_bytes() const { return align(batch * rows * 4); }
  int64_t state_bytes() const { return align(batch * hidden * 4); }
};

template <Isa isa>
int64_t layer_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                      int threads) {
  const LayerShape n(*static_cast<const LayerState*>(state), inputs);
  const GemmWorkspace of_inputs(f32_gemm_tiles(isa), n.together * n.batch, n.inputs),
      of_state(f32_gemm_tiles(isa), n.batch, n.hidden);
  return n.sums_bytes() + n.step_bytes() + 3 * n.state_bytes() +
         std::max(of_inputs.bytes(threads), of_state.bytes(threads));
}

/// The first operand whose sizes do not fit; -1 if all do.
int32_t misfit(const KernelCall& call, const LayerState& a, const LayerShape& n) {
  const Shape &w = call.inputs[1].shape, &r = call.inputs[2].shape;
  auto elements = [&](size_t i) {
    return i < call.inputs.size() && call.inputs[i].present() ? call.inputs[i].elements() : -1;
  };
  if (n.directions != (a.both ? 2 : 1) || r[1] != n.rows) return 2;
  if (w[0] != n.directions || w[1] != n.rows || w[2] != n.inputs) return 1;
  const int64_t states = n.directions * n.batch * n.hidden;
  if (elements(3) >= 0 && elements(3) != n.directions * 2 * n.rows) return 3;
  if (elements(5) >= 0 && elements(5) != states) return 5;
  return elements(6) >= 0 && elements(6) != states ? 6 : -1;
}

/// One direction of a layer.
template <Isa isa>
class Direction {
 public:
  Direction(const KernelCall& call, const LayerState& a, const LayerShape& n, int64_t d)
      : call_(call), a_(a), n_(n), d_(d), loops_(elementwise_loops(isa)) {
    std::byte* at = call.scratch.data();
    auto take = [&](int64_t bytes) {
      auto* out = reinterpret_cast<float*>(at);
      at += bytes;
      return out;
    };
    sums_ = take(n.sums_bytes());
    step_ = take(n.step_bytes());
    h_ = take(n.state_bytes());
    c_ = take(n.state_bytes());
    spare_ = take(n.state_bytes());
    workspace_ = at;
  }

  void run() {
    load(5, h_);
    load(6, c_);
    const bool backwards = d_ == 1 || a_.reversed;
    const int64_t blocks = (n_.steps + n_.together - 1) / n_.together;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t first = (backwards ? blocks - 1 - i : i) * n_.together,
                    count = std::min(n_.together, n_.steps - first);
      multiply_inputs(first, count);
      for (int64_t k = 0; k < count; ++k) {
        const int64_t at = backwards ? count - 1 - k : k;
        float* gates = sums_ + at * n_.batch * n_.rows;
        if (a_.gates == 4) lstm(gates);
        else gru(gates);
        store(first + at);
      }
    }
    store_last(1, h_);
    store_last(2, c_);
  }

 private:
  const float* operand(size_t i) const {
    return i < call_.inputs.size() && call_.inputs[i].present() ? call_.inputs[i].as<float>() : nullptr;
  }
  float* output(size_t i) const {
    return i < call_.outputs.size() && call_.outputs[i].present() ? call_.outputs[i].as<float>() : nullptr;
  }
  int64_t state_at(int64_t b) const { return (a_.batched ? b * n_.directions + d_ : d_ * n_.batch + b) * n_.hidden; }

  void load(size_t i, float* to) const {
    const float* from = i == 6 && a_.gates != 4 ? nullptr : operand(i);
    for (int64_t b = 0; b < n_.batch; ++b)
      if (from) std::memcpy(to + b * n_.hidden, from + state_at(b), static_cast<size_t>(n_.hidden) * 4);
      else std::fill_n(to + b * n_.hidden, n_.hidden, 0.0f);
  }
  void store_last(size_t i, const float* from) const {
    float* to = output(i);
    for (int64_t b = 0; b < n_.batch && to; ++b)
      std::memcpy(to + state_at(b), from + b * n_.hidden, static_cast<size_t>(n_.hidden) * 4);
  }
  void store(int64_t t) const {
    float* y = output(0);
    for (int64_t b = 0; b < n_.batch && y; ++b) {
      const int64_t at =
          a_.batched ? (b * n_.steps + t) * n_.directions + d_ : (t * n_.directions + d_) * n_.batch + b;
      std::memcpy(y + at * n_.hidden, h_ + b * n_.hidden, static_cast<size_t>(n_.hidden) * 4);
    }
  }

  void multiply(const float* x, int64_t m, const float* w, int64_t rows, int64_t k, float* y, int64_t ldy) const {
    layer_product<isa>(call_.pool, x, m, w, rows, k, y, ldy, workspace_);
  }
  void multiply_inputs(int64_t first, int64_t count) const {
    const float *x = operand(0), *w = operand(1) + d_ * n_.rows * n_.inputs, *bias = operand(3);
    if (!a_.batched || n_.batch == 1)
      multiply(x + first * n_.batch * n_.inputs, count * n_.batch, w, n_.rows, n_.inputs, sums_, n_.rows);
    else
      for (int64_t b = 0; b < n_.batch; ++b)
        multiply(x + (b * n_.steps + first) * n_.inputs, count, w, n_.rows, n_.inputs, sums_ + b * n_.rows,
                 n_.batch * n_.rows);
    if (!bias) return;
    bias += d_ * 2 * n_.rows;
    // A GRU's last gate adds the state's bias itself.
    const int64_t joined = a_.gates == 4 ? n_.rows : 2 * n_.hidden;
    for (int64_t row = 0; row < count * n_.batch; ++row) {
      add(bias, sums_ + row * n_.rows, n_.rows);
      add(bias + n_.rows, sums_ + row * n_.rows, joined);
    }
  }
  void add(const float* from, float* to, int64_t count) const {
    loops_.binary[static_cast<int>(Binary::add)](to, 1, from, 1, to, count);
  }
  void apply(Unary f, float* x, int64_t count) const { loops_.unary[static_cast<int>(f)](x, x, count); }
  const float* state_weight() const { return operand(2) + d_ * n_.rows * n_.hidden; }

  /// Gates i, o, f, c of a step, [batch, 4 hidden].
  void lstm(float* gates) {
    const int64_t h = n_.hidden;
    multiply(h_, n_.batch, state_weight(), n_.rows, h, step_, n_.rows);
    for (int64_t b = 0; b < n_.batch; ++b) {
      float *row = gates + b * n_.rows, *c = c_ + b * h, *out = h_ + b * h;
      add(step_ + b * n_.rows, row, n_.rows);
      apply(Unary::sigmoid, row, 3 * h);
      apply(Unary::tanh, row + 3 * h, h);
      for (int64_t j = 0; j < h; ++j) out[j] = c[j] = row[2 * h + j] * c[j] + row[j] * row[3 * h + j];
      apply(Unary::tanh, out, h);
      for (int64_t j = 0; j < h; ++j) out[j] *= row[h + j];
    }
  }

  /// Gates z, r, h of a step, [batch, 3 hidden].
  void gru(float* gates) {
    const int64_t h = n_.hidden;
    const float* bias = operand(3) ? operand(3) + d_ * 2 * n_.rows + n_.rows + 2 * h : nullptr;
    multiply(h_, n_.batch, state_weight(), a_.linear_first ? n_.rows : 2 * h, h, step_, n_.rows);
    for (int64_t b = 0; b < n_.batch; ++b) {
      float* row = gates + b * n_.rows;
      add(step_ + b * n_.rows, row, 2 * h);
      apply(Unary::sigmoid, row, 2 * h);
      for (int64_t j = 0; j < h; ++j) spare_[b * h + j] = row[h + j] * h_[b * h + j];
    }
    if (!a_.linear_first) multiply(spare_, n_.batch, state_weight() + 2 * h * h, h, h, step_ + 2 * h, n_.rows);
    for (int64_t b = 0; b < n_.batch; ++b) {
      float *row = gates + b * n_.rows, *from = step_ + b * n_.rows + 2 * h, *state = h_ + b * h;
      if (bias) add(bias, from, h);
      for (int64_t j = 0; j < h; ++j) row[2 * h + j] += a_.linear_first ? row[h + j] * from[j] : from[j];
      apply(Unary::tanh, row + 2 * h, h);
      for (int64_t j = 0; j < h; ++j) state[j] = (1 - row[j]) * row[2 * h + j] + row[j] * state[j];
    }
  }

  const KernelCall& call_;
  const LayerState& a_;
  const LayerShape& n_;
  int64_t d_;
  const ElementwiseLoops& loops_;
  float *sums_, *step_, *h_, *c_, *spare_;
  std::byte* workspace_;
};

template <Isa isa>
KernelStatus run_layer(const KernelCall& call) {
  const auto& a = *static_cast<const LayerState*>(call.state);
  const LayerShape n(a, call.inputs);
  if (const int32_t operand = misfit(call, a, n); operand >= 0) return {KernelCode::bad_value, operand, 0};
  for (int64_t d = 0; d < n.directions; ++d) Direction<isa>(call, a, n, d).run();
  return {};
}

template <Isa isa>
void add_layers_for(KernelTable& table) {
  for (const char* op : {"LSTM", "GRU"})
    add_kernel(table, isa,
               {.op = op,
                .dtypes = "f32",
                .accepts = accepts_layer,
                .prepare = prepare_layer,
                .scratch_bytes = layer_scratch<isa>,
                .run = run_layer<isa>});
}

}  // namespace

void add_layers(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_layers_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_layers_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
