#pragma once
// Tiny hybrid decoders: a convolution, a recurrence and an attention layer along the tokens, those that a test asks
// for.
#include "tests/unit/passes/decoder_maker.h"

namespace plait::test {

struct Hybrid {
  bool conv = true, attention = true;
  std::string rule = "gated_delta";           ///< of the linear attention; "" for none
  int64_t queries = 2, keys = 2, states = 2;  ///< heads
  bool decay_each = false;                    ///< a decay for each key rather than each head
  bool beta_for_all = false;                  ///< one beta a token
  /// How the convolution is written: "op" CausalConvWithState, "concat" after a state of three elements, "roll"
  /// behind one of four, the kernel's length.
  std::string spelling = "op";
  bool cached = true;  ///< states and keys are inputs and outputs
};

namespace hybrid_parts {

using Maker = DecoderMaker;
constexpr int64_t channels = 6, taps = 4, d = 4, e = 5;

inline ValueId slice(Maker& m, ValueId x, ValueId from, int64_t to, int64_t axis) {
  return m.op("Slice", {x, from, m.ints({to}), m.ints({axis}), m.ints({1})});
}

inline ValueId conv(Maker& m, ValueId x, const Hybrid& what) {
  ValueId t = m.transpose(m.linear(x, Maker::hidden, channels), {0, 2, 1});
  ValueId w = m.weight({channels, 1, taps}), bias = m.weight({channels}), y;
  const int64_t width = what.spelling == "roll" ? taps : taps - 1;
  ValueId state = what.cached ? m.past("conv", {m.dim("b"), channels, width}) : no_value;
  Attributes group = Maker::with("group", channels);
  if (what.spelling == "op") {
    auto out = m.ops("CausalConvWithState", {t, w, bias, state}, 2, Maker::with("activation", std::string("silu")));
    y = out[0];
    if (what.cached) m.present("conv", out[1]);
  } else if (what.cached) {
    ValueId all = m.concat({state, t}, 2);
    y = m.op("Conv", {all, w, bias}, group);
    ValueId tokens = m.op("Neg", {m.unsqueeze(m.size(m.ids, 1), 0)});
    if (what.spelling == "roll") y = slice(m, y, tokens, INT64_MAX, 2);
    m.present("conv", slice(m, all, m.ints({-width}), INT64_MAX, 2));
  } else {  // padded on both sides, as PyTorch's layer does it, and what is too much cut off
    group.set("pads", std::vector<int64_t>{taps - 1, taps - 1});
    y = m.op("Slice", {m.op("Conv", {t, w, bias}, group), m.ints({0}), m.unsqueeze(m.size(m.ids, 1), 0), m.ints({2}),
                       m.ints({1})});
  }
  return m.op("Add", {x, m.linear(m.transpose(y, {0, 2, 1}), channels, Maker::hidden)});
}

inline ValueId recurrence(Maker& m, ValueId x, const Hybrid& what) {
  const int64_t results = std::max(what.queries, what.states);
  ValueId q = m.linear(x, Maker::hidden, what.queries * d), k = m.linear(x, Maker::hidden, what.keys * d);
  ValueId v = m.linear(x, Maker::hidden, what.states * e), decay = no_value, beta = no_value;
  if (what.rule.starts_with("gated"))
    decay = m.op("Neg", {m.op("Softplus", {m.linear(x, Maker::hidden, what.states * (what.decay_each ? d : 1))})});
  if (what.rule.ends_with("delta"))
    beta = m.op("Sigmoid", {m.linear(x, Maker::hidden, what.beta_for_all ? 1 : what.states)});
  ValueId state = what.cached ? m.past("recurrent", {m.dim("b"), what.states, d, e}) : no_value;
  Attributes attributes = Maker::with("update_rule", what.rule);
  attributes.set("q_num_heads", what.queries);
  attributes.set("kv_num_heads", what.states);
  auto out = m.ops("LinearAttention", {q, k, v, state, decay, beta}, 2, std::move(attributes));
  if (what.cached) m.present("recurrent", out[1]);
  return m.op("Add", {x, m.linear(out[0], results * e, Maker::hidden)});
}

inline ValueId attention(Maker& m, ValueId x, const Hybrid& what) {
  ValueId key = m.heads(x, 2, 4), value = m.heads(x, 2, 4);
  if (what.cached) {
    Dims dims{m.dim("b"), 2, m.dim("p"), 4};
    key = m.concat({m.past("key", dims), key}, -2), value = m.concat({m.past("value", dims), value}, -2);
    m.present("key", key);
    m.present("value", value);
  }
  ValueId scores = m.op("MatMul", {m.heads(x, 2, 4), m.transpose(key, {0, 1, 3, 2})});
  ValueId out = m.op("MatMul", {m.chances(scores, m.visible(m.size(key, 2))), value});
  out = m.reshape(m.transpose(out, {0, 2, 1, 3}), {0, 0, 8});
  return m.op("Add", {x, m.linear(out, 8, Maker::hidden)});
}

}  // namespace hybrid_parts

inline Graph hybrid_graph(const Hybrid& what) {
  DecoderMaker m;
  ValueId x = m.embedded();
  if (what.conv) x = hybrid_parts::conv(m, x, what);
  if (!what.rule.empty()) x = hybrid_parts::recurrence(m, x, what);
  if (what.attention) x = hybrid_parts::attention(m, x, what);
  return m.finish(x, DecoderMaker::hidden);
}

}  // namespace plait::test
