// plait.PackedConv and plait.PackedLinearAttention, and their gradients: recurrences inside the segments of packed
// rows.
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/recurrent.h"

namespace plait::reference {
namespace {

/// Tokens of one segment, counted over all rows.
struct PackedRun {
  int64_t begin, end;
};

/// segments [b, t]; tokens of none (-1) are in no run.
std::vector<PackedRun> packed_runs(const TensorView& segments) {
  const std::vector<int64_t> all = to_ints(segments);
  const int64_t t = segments.shape[1], count = segments.elements();
  std::vector<PackedRun> out;
  for (int64_t i = 0; i < count;) {
    const int64_t begin = i, segment = all[static_cast<size_t>(i)];
    do ++i;
    while (i % t && all[static_cast<size_t>(i)] == segment);
    if (segment >= 0) out.push_back({begin, i});
  }
  return out;
}

/// x [b, t, c], w [k, c], segments [b, t], bias? [c].
struct PackedConv {
  PackedConv(const TensorView& x, const TensorView& w, const TensorView& bias)
      : c(x.shape[2]), taps(w.shape[0]), x(x), w(w), shift(bias) {}
  bool fits() const { return taps > 0 && w.shape[1] == c && (!shift.present() || shift.elements() == c); }

  /// The token before its segment's end by `tap`, or less than run.begin if there is none.
  int64_t token_at(int64_t token, int64_t tap) const { return token + tap + 1 - taps; }
  double sum(const PackedRun& run, int64_t token, int64_t channel) const {
    double out = shift.present() ? load_one<double>(shift, channel) : 0;
    for (int64_t tap = std::max<int64_t>(0, taps - 1 - (token - run.begin)); tap < taps; ++tap)
      out += load_one<double>(w, tap * c + channel) * load_one<double>(x, token_at(token, tap) * c + channel);
    return out;
  }

  const int64_t c, taps;
  const TensorView &x, &w, shift;
};

KernelStatus packed_conv(const KernelCall& call, const CausalConvAttributes& attributes) {
  const PackedConv conv(call.inputs[0], call.inputs[1], input(call, 3));
  if (!conv.fits()) return {KernelCode::bad_value, 1, conv.w.elements()};
  std::vector<double> y(static_cast<size_t>(conv.x.elements()));
  for (const PackedRun& run : packed_runs(call.inputs[2]))
    for (int64_t token = run.begin; token < run.end; ++token)
      for (int64_t channel = 0; channel < conv.c; ++channel) {
        const double sum = conv.sum(run, token, channel);
        y[static_cast<size_t>(token * conv.c + channel)] = attributes.silu ? silu(sum) : sum;
      }
  store_all(call.outputs[0], y);
  return {};
}

/// dy, x, w, segments, bias? -> dx?, dw?, dbias?.
KernelStatus packed_conv_back(const KernelCall& call, const CausalConvAttributes& attributes) {
  const PackedConv conv(call.inputs[1], call.inputs[2], input(call, 4));
  if (!conv.fits()) return {KernelCode::bad_value, 2, conv.w.elements()};
  const Loaded<double> dy(call.inputs[0]), x(conv.x), w(conv.w);
  const int64_t c = conv.c;
  std::vector<double> dx(static_cast<size_t>(conv.x.elements())), dw(static_cast<size_t>(conv.w.elements())),
      dbias(static_cast<size_t>(c));
  for (const PackedRun& run : packed_runs(call.inputs[3]))
    for (int64_t token = run.begin; token < run.end; ++token)
      for (int64_t channel = 0; channel < c; ++channel) {
        double dsum = dy[token * c + channel];
        if (attributes.silu) dsum *= silu_slope(conv.sum(run, token, channel));
        dbias[static_cast<size_t>(channel)] += dsum;
        for (int64_t tap = 0; tap < conv.taps; ++tap) {
          const int64_t from = conv.token_at(token, tap);
          if (from < run.begin) continue;
          dx[static_cast<size_t>(from * c + channel)] += dsum * w[tap * c + channel];
          dw[static_cast<size_t>(tap * c + channel)] += dsum * x[from * c + channel];
        }
      }
  const std::vector<double>* results[] = {&dx, &dw, &dbias};
  for (size_t k = 0; k < 3; ++k)
    if (output(call, k).present()) store_all(call.outputs[k], *results[k]);
  return {};
}

/// q, k, v, segments, decay?, beta? -> y.
KernelStatus packed_linear_attention(const KernelCall& call, const LinearAttentionAt<4>& attributes) {
  const LinearAttention problem(
      {call.inputs[0], call.inputs[1], call.inputs[2], input(call, 4), input(call, 5), call.outputs[0]}, attributes);
  if (const char which = problem.misfit()) {
    const auto slot = static_cast<int32_t>(std::string_view("qkv.db").find(which));
    return {KernelCode::bad_value, slot, input(call, static_cast<size_t>(slot)).elements()};
  }
  clear_output(call.outputs[0]);
  const std::vector<PackedRun> runs = packed_runs(call.inputs[3]);
  const int64_t g = problem.g, size = problem.d * problem.e;
  share(call.pool, static_cast<int64_t>(runs.size()) * g, problem.tokens * problem.n * size, [&](int64_t i) {
    const PackedRun& run = runs[static_cast<size_t>(i / g)];
    std::vector<double> state(static_cast<size_t>(size));
    problem.run(state, i % g, run.begin, run.end, false);
  });
  return {};
}

/// The gradients of one head's run, added to those of all: the state before each token is recomputed from the one at
/// the beginning of its block; there are about as many blocks as tokens per block, so that sqrt(n) states are in
/// memory.
class LinearAttentionBack {
 public:
  LinearAttentionBack(const LinearAttention& problem, const TensorView& dy)
      : x_(problem),
        dy_(dy),
        dq(static_cast<size_t>(problem.tokens * problem.h * problem.d)),
        dk(static_cast<size_t>(problem.tokens * problem.keys * problem.d)),
        dv(static_cast<size_t>(problem.tokens * problem.g * problem.e)),
        ddecay(static_cast<size_t>(problem.operands.decay.present() ? problem.operands.decay.elements() : 0)),
        dbeta(static_cast<size_t>(problem.operands.beta.present() ? problem.operands.beta.elements() : 0)) {}

  void run(int64_t head, const PackedRun& run) {
    const int64_t n = run.end - run.begin, block = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
    std::vector<double> state(static_cast<size_t>(x_.d * x_.e)), key, value;
    std::vector<std::vector<double>> kept;
    for (int64_t i = 0; i < n; ++i) {
      if (i % block == 0) kept.push_back(state);
      x_.enter(state, run.begin + i, head, key, value);
      x_.add(state, key, value);
    }
    dstate_.assign(state.size(), 0.0);
    std::vector<std::vector<double>> faded(static_cast<size_t>(block));
    for (int64_t begin = (n - 1) / block * block; begin >= 0; begin -= block) {
      const int64_t end = std::min(begin + block, n);
      state = kept[static_cast<size_t>(begin / block)];
      for (int64_t i = begin; i < end; ++i) {
        x_.enter(state, run.begin + i, head, key, value);
        faded[static_cast<size_t>(i - begin)] = state;
        x_.add(state, key, value);
      }
      for (int64_t i = end; i-- > begin;) token(head, run.begin + i, faded[static_cast<size_t>(i - begin)]);
    }
  }

 private:
  /// `state` is the faded state before the token; dstate_ is the gradient of the state after it.
  void token(int64_t head, int64_t token, const std::vector<double>& state) {
    const int64_t d = x_.d, e = x_.e;
    std::vector<double> key(static_cast<size_t>(d)), value(static_cast<size_t>(e)), query(key), dy(value);
    load(x_.operands.key, x_.key_at(token, head) * d, d, key.data());
    load(x_.operands.value, (token * x_.g + head) * e, e, value.data());
    const double rate = x_.attributes.delta ? load_one<double>(x_.operands.beta, x_.beta_at(token, head)) : 1;
    std::vector<double> wanted = value;  // value - state^T key, which times beta is stored
    for (int64_t k = 0; x_.attributes.delta && k < d; ++k)
      for (int64_t j = 0; j < e; ++j) wanted[at(j)] -= state[at(k * e + j)] * key[at(k)];
    for (int64_t result = head * (x_.n / x_.g); result < (head + 1) * (x_.n / x_.g); ++result) {
      const int64_t asked = x_.query_at(token, result) * d;
      load(x_.operands.query, asked, d, query.data());
      load(dy_, (token * x_.n + result) * e, e, dy.data());
      for (int64_t k = 0; k < d; ++k)
        for (int64_t j = 0; j < e; ++j) {
          const double left = state[at(k * e + j)] + key[at(k)] * rate * wanted[at(j)];
          dq[at(asked + k)] += x_.scale * left * dy[at(j)];
          dstate_[at(k * e + j)] += x_.scale * query[at(k)] * dy[at(j)];
        }
    }
    std::vector<double> dstored(static_cast<size_t>(e));
    double* dkey = dk.data() + x_.key_at(token, head) * d;
    for (int64_t k = 0; k < d; ++k)
      for (int64_t j = 0; j < e; ++j) {
        dkey[k] += dstate_[at(k * e + j)] * rate * wanted[at(j)];
        dstored[at(j)] += dstate_[at(k * e + j)] * key[at(k)];
      }
    for (int64_t j = 0; j < e; ++j) dv[at((token * x_.g + head) * e + j)] += rate * dstored[at(j)];
    if (x_.attributes.delta) {
      for (int64_t j = 0; j < e; ++j) dbeta[at(x_.beta_at(token, head))] += dstored[at(j)] * wanted[at(j)];
      for (int64_t k = 0; k < d; ++k)
        for (int64_t j = 0; j < e; ++j) {
          dkey[k] -= state[at(k * e + j)] * rate * dstored[at(j)];
          dstate_[at(k * e + j)] -= key[at(k)] * rate * dstored[at(j)];
        }
    }
    for (int64_t k = 0; x_.attributes.gated && k < d; ++k) {
      const int64_t place = x_.decay_at(token, head, k);
      const double factor = std::exp(load_one<double>(x_.operands.decay, place));
      for (int64_t j = 0; j < e; ++j) {
        ddecay[at(place)] += dstate_[at(k * e + j)] * state[at(k * e + j)];
        dstate_[at(k * e + j)] *= factor;
      }
    }
  }
  static size_t at(int64_t i) { return static_cast<size_t>(i); }

  const LinearAttention& x_;
  const TensorView& dy_;
  std::vector<double> dstate_;

 public:
  std::vector<double> dq, dk, dv, ddecay, dbeta;
};

/// dy, q, k, v, segments, decay?, beta? -> dq?, dk?, dv?, ddecay?, dbeta?.
KernelStatus packed_linear_attention_back(const KernelCall& call, const LinearAttentionAt<5>& attributes) {
  const LinearAttention problem(
      {call.inputs[1], call.inputs[2], call.inputs[3], input(call, 5), input(call, 6), TensorView{}}, attributes);
  if (const char which = problem.misfit()) {
    const auto slot = static_cast<int32_t>(std::string_view(".qkv.db").find(which));
    return {KernelCode::bad_value, slot, input(call, static_cast<size_t>(slot)).elements()};
  }
  if (call.inputs[0].elements() != problem.tokens * problem.n * problem.e)
    return {KernelCode::bad_value, 0, call.inputs[0].elements()};
  LinearAttentionBack back(problem, call.inputs[0]);
  const std::vector<PackedRun> runs = packed_runs(call.inputs[4]);
  for (const PackedRun& run : runs)
    for (int64_t head = 0; head < problem.g; ++head) back.run(head, run);
  const std::vector<double>* results[] = {&back.dq, &back.dk, &back.dv, &back.ddecay, &back.dbeta};
  for (size_t k = 0; k < 5; ++k)
    if (output(call, k).present()) store_all(call.outputs[k], *results[k]);
  return {};
}

}  // namespace

void add_packed_recurrent(KernelTable& table) {
  add<packed_conv>(table, "plait.PackedConv", floats);
  add<packed_conv_back>(table, "plait.PackedConvBack", floats);
  add<packed_linear_attention>(table, "plait.PackedLinearAttention", floats);
  add<packed_linear_attention_back>(table, "plait.PackedLinearAttentionBack", floats);
}

}  // namespace plait::reference
