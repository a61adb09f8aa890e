#pragma once
// A tiny decoder of any number of layers, for schedules with many stages.
#include "tests/unit/passes/decoder_maker.h"
#include "tests/unit/train/runs.h"

namespace plait::test {

/// Attention and a multilayer perceptron a layer; all weights are trained, none is tied.
inline Graph deep_graph(int layers) {
  using Maker = DecoderMaker;
  Maker m;
  ValueId x = m.embedded();
  for (int layer = 0; layer < layers; ++layer) {
    const auto cached = [&](const char* part, ValueId id) {
      const ValueId past = m.input(cat("past_key_values.", layer, ".", part), DType::f32, {m.dim("b"), 2, m.dim("p"), 4});
      const ValueId out = m.concat({past, id}, -2);
      m.graph.value(out).name = cat("present.", layer, ".", part);
      m.presents.push_back(out);
      return out;
    };
    const ValueId key = cached("key", m.heads(x, 2, 4)), value = cached("value", m.heads(x, 2, 4));
    const ValueId scores =
        m.op("Mul", {m.op("MatMul", {m.heads(x, 2, 4), m.transpose(key, {0, 1, 3, 2})}), m.real(0.5)});
    const ValueId mixed = m.op("MatMul", {m.chances(scores, m.visible(m.size(key, 2))), value});
    const ValueId flat = m.reshape(m.transpose(mixed, {0, 2, 1, 3}), {0, 0, Maker::hidden});
    x = m.op("Add", {x, m.linear(flat, Maker::hidden, Maker::hidden)});
    x = m.op("Add", {x, m.linear(m.op("Tanh", {m.linear(x, Maker::hidden, 12)}), 12, Maker::hidden)});
  }
  return named(m.finish(x, Maker::hidden));
}

}  // namespace plait::test
