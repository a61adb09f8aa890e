// CausalConvWithState and LinearAttention (ONNX opset 27).
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/activations.h"
#include "kernels/reference/families.h"
#include "kernels/reference/kernel_of.h"
#include "kernels/reference/multiply.h"
#include "kernels/reference/numbers.h"

namespace plait::reference {
namespace {

struct CausalConvAttributes {
  explicit CausalConvAttributes(const NodeInfo& node) {
    std::string name = node.attributes.string("activation", "none");
    if (name != "none" && name != "silu" && name != "swish")
      throw Error(Code::bad_model,
                  cat("CausalConvWithState: activation is ", quote(name), ", expected none, silu or swish"));
    silu = name != "none";
  }
  bool silu;
};

/// input [b, c, n], weight [c, 1, k], bias? [c], past? [b, c, k - 1] -> output [b, c, n], present? [b, c, k - 1].
KernelStatus causal_conv(const KernelCall& call, const CausalConvAttributes& attributes) {
  const TensorView &x = call.inputs[0], &weight = call.inputs[1], bias = input(call, 2), past = input(call, 3);
  int64_t channels = x.shape[1], n = x.shape[2], taps = weight.shape[2], before = taps - 1;
  if (taps < 1 || weight.shape[0] != channels || weight.shape[1] != 1) return {KernelCode::bad_value, 1, taps};
  if (bias.present() && bias.elements() != channels) return {KernelCode::bad_value, 2, bias.elements()};
  if (past.present() && past.elements() != x.shape[0] * channels * before)
    return {KernelCode::bad_value, 3, past.elements()};
  Loaded<double> weights(weight);
  std::vector<double> line(static_cast<size_t>(before + n)), out(static_cast<size_t>(n));
  for (int64_t row = 0; row < x.shape[0] * channels; ++row) {
    std::fill(line.begin(), line.begin() + before, 0.0);
    if (past.present()) load(past, row * before, before, line.data());
    load(x, row * n, n, line.data() + before);
    double shift = bias.present() ? load_one<double>(bias, row % channels) : 0;
    for (int64_t i = 0; i < n; ++i) {
      double sum = shift;
      for (int64_t tap = 0; tap < taps; ++tap)
        sum += weights[row % channels * taps + tap] * line[static_cast<size_t>(i + tap)];
      out[static_cast<size_t>(i)] = attributes.silu ? sum * sigmoid(sum) : sum;
    }
    store(call.outputs[0], row * n, n, out.data());
    if (output(call, 1).present()) store(call.outputs[1], row * before, before, line.data() + n);
  }
  return {};
}

struct LinearAttentionAttributes {
  explicit LinearAttentionAttributes(const NodeInfo& node)
      : query_heads(node.attributes.integer("q_num_heads")),
        key_heads(node.attributes.integer("kv_num_heads")),
        scale(node.attributes.real("scale", 0)) {
    std::string rule = node.attributes.string("update_rule", "gated_delta");
    if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta")
      throw Error(Code::bad_model, cat("LinearAttention: update_rule is ", quote(rule),
                                       ", expected linear, gated, delta or gated_delta"));
    gated = rule.starts_with("gated");
    delta = rule.ends_with("delta");
    auto has = [&](size_t k) { return k < node.inputs.size() && node.inputs[k].dtype != DType::none; };
    if ((gated && !has(4)) || (delta && !has(5)))
      throw Error(Code::bad_model, cat("LinearAttention: update_rule ", rule, " needs ", gated ? "decay" : "",
                                       gated && delta ? " and " : "", delta ? "beta" : ""));
  }
  int64_t query_heads, key_heads;
  double scale;       ///< 0: 1 / sqrt(d)
  bool gated, delta;  ///< the state fades by exp(decay); a value is stored less what its key finds already
};

/// One state of one batch row: g states and values, h queries, which n outputs share or have, and `keys` keys. Sizes: d of
/// keys, e of values; the state is [d, e].
struct LinearAttention {
  LinearAttention(const KernelCall& call, const LinearAttentionAttributes& attributes)
      : call(call),
        attributes(attributes),
        b(call.inputs[0].shape[0]),
        t(call.inputs[0].shape[1]),
        h(attributes.query_heads),
        g(attributes.key_heads),
        n(std::max(h, g)),
        d(call.inputs[0].shape[2] / h),
        keys(d ? call.inputs[1].shape[2] / d : 0),
        e(call.inputs[2].shape[2] / g),
        decay(input(call, 4)),
        beta(input(call, 5)),
        scale(attributes.scale != 0 ? attributes.scale : 1 / std::sqrt(static_cast<double>(d))) {}

  /// The operand whose size is not what the others say, 0: none.
  int32_t misfit() const {
    auto holds = [&](size_t k, int64_t size) { return input(call, k).elements() == size; };
    int64_t rows = b * t;
    if (n % h || n % g || d < 1 || keys < 1 || g % keys || !holds(1, rows * keys * d)) return 1;
    if (!holds(2, rows * g * e)) return 2;
    if (input(call, 3).present() && !holds(3, b * g * d * e)) return 3;
    if (attributes.gated && !holds(4, rows * g * d) && !holds(4, rows * g)) return 4;
    if (attributes.delta && !holds(5, rows * g) && !holds(5, rows)) return 5;
    return 0;
  }

  void run_head(int64_t row, int64_t head) const {
    std::vector<double> state(static_cast<size_t>(d * e)), key(static_cast<size_t>(d)), query(key), value, sum;
    value.resize(static_cast<size_t>(e));
    if (input(call, 3).present()) load(call.inputs[3], (row * g + head) * d * e, d * e, state.data());
    for (int64_t i = 0; i < t; ++i) {
      int64_t token = row * t + i;
      load(call.inputs[1], (token * keys + head * keys / g) * d, d, key.data());
      load(call.inputs[2], (token * g + head) * e, e, value.data());
      if (attributes.gated) fade(state, token, head);
      if (attributes.delta) correct(state, key, value, token, head);
      for (int64_t k = 0; k < d; ++k)
        for (int64_t j = 0; j < e; ++j)
          state[static_cast<size_t>(k * e + j)] += key[static_cast<size_t>(k)] * value[static_cast<size_t>(j)];
      for (int64_t at = head * (n / g); at < (head + 1) * (n / g); ++at) {
        int64_t to = token * n + at;
        load(call.inputs[0], (token * h + at * h / n) * d, d, query.data());
        sum.assign(static_cast<size_t>(e), 0.0);
        for (int64_t k = 0; k < d; ++k)
          for (int64_t j = 0; j < e; ++j)
            sum[static_cast<size_t>(j)] +=
                scale * query[static_cast<size_t>(k)] * state[static_cast<size_t>(k * e + j)];
        store(call.outputs[0], to * e, e, sum.data());
      }
    }
    if (output(call, 1).present()) store(call.outputs[1], (row * g + head) * d * e, d * e, state.data());
  }

  /// decay [b, t, g d], or [b, t, g] for all keys of a head.
  void fade(std::vector<double>& state, int64_t token, int64_t head) const {
    bool each = decay.elements() == b * t * g * d;
    for (int64_t k = 0; k < d; ++k) {
      double factor = std::exp(load_one<double>(decay, each ? (token * g + head) * d + k : token * g + head));
      for (int64_t j = 0; j < e; ++j) state[static_cast<size_t>(k * e + j)] *= factor;
    }
  }

  /// value becomes beta (value - state^T key); beta [b, t, g], or [b, t, 1].
  void correct(const std::vector<double>& state, const std::vector<double>& key, std::vector<double>& value,
               int64_t token, int64_t head) const {
    double rate = load_one<double>(beta, beta.elements() == b * t * g ? token * g + head : token);
    for (int64_t j = 0; j < e; ++j) {
      double found = 0;
      for (int64_t k = 0; k < d; ++k) found += state[static_cast<size_t>(k * e + j)] * key[static_cast<size_t>(k)];
      value[static_cast<size_t>(j)] = rate * (value[static_cast<size_t>(j)] - found);
    }
  }

  const KernelCall& call;
  const LinearAttentionAttributes& attributes;
  int64_t b, t, h, g, n, d, keys, e;
  TensorView decay, beta;
  double scale;
};

/// query [b, t, h d], key [b, t, g d], value [b, t, g e], past? [b, g, d, e], decay?, beta? -> output [b, t, h e],
/// present? [b, g, d, e]: the recurrence token by token.
KernelStatus linear_attention(const KernelCall& call, const LinearAttentionAttributes& attributes) {
  LinearAttention problem(call, attributes);
  if (int32_t slot = problem.misfit()) return {KernelCode::bad_value, slot, input(call, slot).elements()};
  share(call.pool, problem.b * problem.g, problem.b * problem.t * problem.h * problem.d * problem.e,
        [&](int64_t i) { problem.run_head(i / problem.g, i % problem.g); });
  return {};
}

}  // namespace

void add_recurrent(KernelTable& table) {
  add<causal_conv>(table, "CausalConvWithState", floats);
  add<linear_attention>(table, "LinearAttention", floats);
}

}  // namespace plait::reference
