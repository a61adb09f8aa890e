#pragma once
// Shared by kernels with a state along the tokens (recurrent.cpp, packed_recurrent.cpp).
#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/exec/kernel.h"
#include "kernels/cpu/recurrent/recurrent_tile.h"

namespace plait::cpu {

struct ConvState : KernelState {
  bool silu = false;
};

inline std::shared_ptr<const KernelState> prepare_conv(const NodeInfo& node) {
  auto state = std::make_shared<ConvState>();
  const std::string activation = node.attributes.string("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish")
    throw Error(Code::bad_model,
                cat(node.op, ": activation is ", quote(activation), ", expected none, silu or swish"));
  state->silu = activation != "none";
  return state;
}

struct LinearAttentionState : KernelState {
  int64_t query_heads = 1, states = 1;
  float scale = 0;  ///< 0: 1 / sqrt(d)
  bool gated = false, delta = false;
};

/// For an op whose operand `decay` is the optional decay, followed by beta.
template <size_t decay>
std::shared_ptr<const KernelState> prepare_linear_attention(const NodeInfo& node) {
  auto state = std::make_shared<LinearAttentionState>();
  state->query_heads = node.attributes.integer("q_num_heads");
  state->states = node.attributes.integer("kv_num_heads");
  state->scale = static_cast<float>(node.attributes.real("scale", 0));
  const std::string rule = node.attributes.string("update_rule", "gated_delta");
  state->gated = rule == "gated" || rule == "gated_delta";
  state->delta = rule == "delta" || rule == "gated_delta";
  auto has = [&](size_t i) { return i < node.inputs.size() && node.inputs[i].dtype != DType::none; };
  if ((rule != "linear" && !state->gated && !state->delta) || (state->gated && !has(decay)) ||
      (state->delta && !has(decay + 1)))
    throw Error(Code::bad_model, cat(node.op, ": update_rule ", quote(rule), " with these operands"),
                "linear needs none, gated a decay, delta beta, gated_delta both");
  return state;
}

/// h queries, g states, `keys` keys; sizes d of keys, e of values; n results of e a token. q, k and v are operands
/// `first` and on, decay and beta `fades` and on. State i makes result_of(i) and on, n / g of them.
struct LinearAttentionSizes {
  int64_t tokens, h, g, n, d, e, keys;
  bool decay_each = false, beta_each = false;  ///< one for each key of a head; one for each head
  float scale;

  LinearAttentionSizes(const LinearAttentionState& state, std::span<const TensorView> inputs, size_t first,
                       size_t fades)
      : tokens(inputs[first].shape[0] * inputs[first].shape[1]),
        h(state.query_heads),
        g(state.states),
        n(std::max(h, g)),
        d(inputs[first].shape[2] / h),
        e(inputs[first + 2].shape[2] / g),
        keys(d ? inputs[first + 1].shape[2] / d : 0),
        scale(state.scale != 0 ? state.scale : 1 / std::sqrt(static_cast<float>(d))) {
    decay_each = state.gated && inputs[fades].elements() != tokens * g;
    beta_each = state.delta && inputs[fades + 1].elements() == tokens * g;
  }

  /// The operand that does not fit the others; -1 if none.
  int32_t misfit(const LinearAttentionState& state, std::span<const TensorView> inputs, size_t first,
                 size_t fades) const {
    auto elements = [&](size_t i) { return i < inputs.size() ? inputs[i].elements() : 0; };
    const auto q = static_cast<int32_t>(first), decay = static_cast<int32_t>(fades);
    if (n % h || n % g || elements(first) != tokens * h * d) return q;
    if (d < 1 || keys < 1 || g % keys || elements(first + 1) != tokens * keys * d) return q + 1;
    if (elements(first + 2) != tokens * g * e) return q + 2;
    if (state.gated && elements(fades) != tokens * g * d && elements(fades) != tokens * g) return decay;
    if (state.delta && elements(fades + 1) != tokens * g && elements(fades + 1) != tokens) return decay + 1;
    return -1;
  }

  int64_t result_of(int64_t state) const { return state * (n / g); }
  /// The first query that reads a state: each result has its own, or all results of a query share it.
  int64_t query_of(int64_t state) const { return result_of(state) * h / n; }
  int64_t key_of(int64_t state) const { return state * keys / g; }
  int64_t decay_at(int64_t token, int64_t state) const { return (token * g + state) * (decay_each ? d : 1); }

  /// Operands of tokens [begin, end) for one state.
  StateTokens tokens_of(const LinearAttentionState& own, std::span<const TensorView> inputs, size_t first,
                        size_t fades, int64_t state, int64_t begin, int64_t end) const {
    auto at = [&](size_t i, int64_t place) { return inputs[i].as<float>() + place; };
    return {.q = at(first, (begin * h + query_of(state)) * d),
            .k = at(first + 1, (begin * keys + key_of(state)) * d),
            .v = at(first + 2, (begin * g + state) * e),
            .decay = own.gated ? at(fades, decay_at(begin, state)) : nullptr,
            .beta = own.delta ? at(fades + 1, beta_each ? begin * g + state : begin) : nullptr,
            .q_stride = h * d,
            .k_stride = keys * d,
            .v_stride = g * e,
            .decay_stride = g * (decay_each ? d : 1),
            .beta_stride = beta_each ? g : 1,
            .tokens = end - begin,
            .d = d,
            .e = e,
            .queries = n / g,
            .query_stride = d,
            .decay_each = decay_each,
            .scale = scale};
  }
};

}  // namespace plait::cpu
