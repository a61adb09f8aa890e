#pragma once
// Shared by ops with a state along the tokens (recurrent.cpp, packed_recurrent.cpp).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/activations.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {

struct CausalConvAttributes {
  explicit CausalConvAttributes(const NodeInfo& node) {
    std::string name = node.attributes.string("activation", "none");
    if (name != "none" && name != "silu" && name != "swish")
      throw Error(Code::bad_model, cat(node.op, ": activation is ", quote(name), ", expected none, silu or swish"));
    silu = name != "none";
  }
  bool silu;
};

struct LinearAttentionAttributes {
  LinearAttentionAttributes(const NodeInfo& node, size_t decay)
      : query_heads(node.attributes.integer("q_num_heads")),
        key_heads(node.attributes.integer("kv_num_heads")),
        scale(node.attributes.real("scale", 0)) {
    std::string rule = node.attributes.string("update_rule", "gated_delta");
    if (rule != "linear" && rule != "gated" && rule != "delta" && rule != "gated_delta")
      throw Error(Code::bad_model,
                  cat(node.op, ": update_rule is ", quote(rule), ", expected linear, gated, delta or gated_delta"));
    gated = rule.starts_with("gated");
    delta = rule.ends_with("delta");
    auto has = [&](size_t k) { return k < node.inputs.size() && node.inputs[k].dtype != DType::none; };
    if ((gated && !has(decay)) || (delta && !has(decay + 1)))
      throw Error(Code::bad_model, cat(node.op, ": update_rule ", rule, " needs ", gated ? "decay" : "",
                                       gated && delta ? " and " : "", delta ? "beta" : ""));
  }
  int64_t query_heads, key_heads;
  double scale;       ///< 0: 1 / sqrt(d)
  bool gated, delta;  ///< the state fades by exp(decay); a value is stored minus the key's current value
};

/// For an op whose operand `decay` is the optional decay, followed by beta.
template <size_t decay>
struct LinearAttentionAt : LinearAttentionAttributes {
  explicit LinearAttentionAt(const NodeInfo& node) : LinearAttentionAttributes(node, decay) {}
};

/// The operands of one call, of any of these ops.
struct LinearAttentionOperands {
  TensorView query, key, value, decay, beta, output;
};

/// One state of some tokens: g states and values, h queries, which n outputs share or have, and `keys` keys. Sizes: d
/// of keys, e of values; the state is [d, e]. Tokens are counted over all rows.
struct LinearAttention {
  LinearAttention(const LinearAttentionOperands& operands, const LinearAttentionAttributes& attributes)
      : operands(operands),
        attributes(attributes),
        tokens(operands.query.shape[0] * operands.query.shape[1]),
        h(attributes.query_heads),
        g(attributes.key_heads),
        n(std::max(h, g)),
        d(operands.query.shape[2] / h),
        keys(d ? operands.key.shape[2] / d : 0),
        e(operands.value.shape[2] / g),
        scale(attributes.scale != 0 ? attributes.scale : 1 / std::sqrt(static_cast<double>(d))) {}

  /// 'q', 'k', 'v', 'd' or 'b' for the operand whose size does not fit the others; 0 if none.
  char misfit() const {
    if (n % h || n % g || d < 1 || keys < 1 || g % keys || operands.key.elements() != tokens * keys * d) return 'k';
    if (operands.value.elements() != tokens * g * e) return 'v';
    int64_t decays = operands.decay.elements(), betas = operands.beta.elements();
    if (attributes.gated && decays != tokens * g * d && decays != tokens * g) return 'd';
    if (attributes.delta && betas != tokens * g && betas != tokens) return 'b';
    return 0;
  }

  /// Processes tokens [begin, end) with the state [d, e]. `narrow`: it is rounded to f32 after each of them, as if
  /// stored in its slot.
  void run(std::vector<double>& state, int64_t head, int64_t begin, int64_t end, bool narrow) const {
    std::vector<double> key, value, query(static_cast<size_t>(d)), sum;
    for (int64_t token = begin; token < end; ++token) {
      enter(state, token, head, key, value);
      add(state, key, value);
      for (size_t i = 0; narrow && i < state.size(); ++i) state[i] = double{static_cast<float>(state[i])};
      for (int64_t at = head * (n / g); at < (head + 1) * (n / g); ++at) {
        load(operands.query, query_at(token, at) * d, d, query.data());
        sum.assign(static_cast<size_t>(e), 0.0);
        for (int64_t k = 0; k < d; ++k)
          for (int64_t j = 0; j < e; ++j)
            sum[static_cast<size_t>(j)] +=
                scale * query[static_cast<size_t>(k)] * state[static_cast<size_t>(k * e + j)];
        store(operands.output, (token * n + at) * e, e, sum.data());
      }
    }
  }

  /// Which of all keys, or of all queries where `at` of n outputs is made, a token has.
  int64_t key_at(int64_t token, int64_t head) const { return token * keys + head * keys / g; }
  int64_t query_at(int64_t token, int64_t at) const { return token * h + at * h / n; }

  /// The token's key, and the value to store with it, after the state has faded.
  void enter(std::vector<double>& state, int64_t token, int64_t head, std::vector<double>& key,
             std::vector<double>& value) const {
    key.resize(static_cast<size_t>(d));
    value.resize(static_cast<size_t>(e));
    load(operands.key, key_at(token, head) * d, d, key.data());
    load(operands.value, (token * g + head) * e, e, value.data());
    if (attributes.gated) fade(state, token, head);
    if (attributes.delta) correct(state, key, value, token, head);
  }
  void add(std::vector<double>& state, const std::vector<double>& key, const std::vector<double>& value) const {
    for (int64_t k = 0; k < d; ++k)
      for (int64_t j = 0; j < e; ++j)
        state[static_cast<size_t>(k * e + j)] += key[static_cast<size_t>(k)] * value[static_cast<size_t>(j)];
  }

  /// decay [b, t, g d], or [b, t, g] for all keys of a head.
  int64_t decay_at(int64_t token, int64_t head, int64_t k) const {
    return operands.decay.elements() == tokens * g * d ? (token * g + head) * d + k : token * g + head;
  }
  void fade(std::vector<double>& state, int64_t token, int64_t head) const {
    for (int64_t k = 0; k < d; ++k) {
      const double factor = std::exp(load_one<double>(operands.decay, decay_at(token, head, k)));
      for (int64_t j = 0; j < e; ++j) state[static_cast<size_t>(k * e + j)] *= factor;
    }
  }

  /// beta [b, t, g], or [b, t, 1].
  int64_t beta_at(int64_t token, int64_t head) const {
    return operands.beta.elements() == tokens * g ? token * g + head : token;
  }
  /// value becomes beta (value - state^T key).
  void correct(const std::vector<double>& state, const std::vector<double>& key, std::vector<double>& value,
               int64_t token, int64_t head) const {
    const double rate = load_one<double>(operands.beta, beta_at(token, head));
    for (int64_t j = 0; j < e; ++j) {
      double found = 0;
      for (int64_t k = 0; k < d; ++k) found += state[static_cast<size_t>(k * e + j)] * key[static_cast<size_t>(k)];
      value[static_cast<size_t>(j)] = rate * (value[static_cast<size_t>(j)] - found);
    }
  }

  LinearAttentionOperands operands;
  const LinearAttentionAttributes& attributes;
  int64_t tokens, h, g, n, d, keys, e;
  double scale;
};

/// Tokens without a segment give zeros.
inline void clear_output(const TensorView& output) {
  std::vector<double> zeros(static_cast<size_t>(output.elements()));
  store_all(output, zeros);
}

}  // namespace plait::reference
