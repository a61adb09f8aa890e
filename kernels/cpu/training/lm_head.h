#pragma once
// Shared by kernels of a head with its loss: attributes and operands.
#include <algorithm>
#include <memory>

#include "core/exec/kernel.h"
#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/rows/indices.h"
#include "kernels/cpu/rows/loss_loops.h"
#include "kernels/cpu/linear/unpacked_rows.h"

namespace plait::cpu {

/// Attributes of a head.
struct HeadState : KernelState {
  int64_t chunks = 1;
  LogitScale scale;
  float zero = 0;     ///< of blocks without zero points
  ShardedAxis shard;  ///< of chunks
};

inline std::shared_ptr<const KernelState> prepare_head(const NodeInfo& node) {
  auto state = std::make_shared<HeadState>();
  state->chunks = node.attributes.integer("chunks", 1);
  state->scale = {static_cast<float>(node.attributes.real("scale", 1)),
                  static_cast<float>(node.attributes.real("softcap", 0))};
  state->zero = static_cast<float>(node.attributes.integer("zero", 0));
  state->shard = ShardedAxis::of(node.attributes);
  return state;
}

/// x, w and labels of a head; its bias is operand `bias`, followed by scales and zero points of a quantised w.
template <size_t bias>
bool accepts_head(const NodeInfo& node) {
  return node.inputs[0].dtype == DType::f32 && node.inputs[2].dtype == DType::i32 &&
         is_weight(node, 1, bias + 1, bias + 2) && (is_absent(node, bias) || node.inputs[bias].dtype == DType::f32);
}

/// A call's operands.
struct HeadCall {
  HeadCall(const HeadState& state, std::span<const TensorView> inputs, size_t at)
      : state(state),
        x(inputs[0].as<float>()),
        w(inputs[1]),
        bias(operand(inputs, at)),
        weight(weight_of(w, operand(inputs, at + 1), operand(inputs, at + 2), state.zero)),
        labels(inputs[2].as<int32_t>()),
        k(inputs[0].shape.back(1)),
        m(inputs[2].elements()),
        v(w.shape[0]),
        chunk(v / std::max<int64_t>(state.chunks, 1)) {}

  bool fits() const {
    const bool is_long_enough = weight.is_blocked ? k <= w.shape[1] * w.shape[2] : k == w.shape[1];
    return state.chunks > 0 && v % state.chunks == 0 && is_long_enough &&
           (!bias.present() || bias.shape.elements() == v);
  }
  /// From row j of w on; null if there is no bias.
  const float* bias_from(int64_t j) const { return bias.present() ? bias.as<float>() + j : nullptr; }
  RowUnpacker unpacker(Isa isa) const { return {isa, weight.blocked, k}; }
  /// The first label that is not in the vocabulary and not -1; -1 if there is none.
  int64_t wrong_label() const {
    const int64_t all = (state.shard.whole ? state.shard.whole : state.chunks) * chunk;
    for (int64_t i = 0; i < m; ++i)
      if (labels[i] < -1 || labels[i] >= all) return labels[i];
    return -1;
  }
  /// Index of a token's label among the local rows of w; -1 if it is elsewhere.
  int64_t place(int64_t i) const {
    const int64_t at = labels[i] - state.shard.offset * chunk;
    return labels[i] >= 0 && at >= 0 && at < v ? at : -1;
  }

  const HeadState& state;
  const float* x;
  const TensorView& w;
  const TensorView bias;
  const Weight weight;
  const int32_t* labels;
  const int64_t k, m, v, chunk;

 private:
  static TensorView operand(std::span<const TensorView> inputs, size_t at) {
    return at < inputs.size() ? inputs[at] : TensorView{};
  }
};

/// Gradient of w or the bias, if wanted; otherwise null.
inline float* gradient(std::span<const TensorView> outputs, size_t at) {
  return at < outputs.size() && outputs[at].present() ? outputs[at].as<float>() : nullptr;
}

/// sums [n] += the rows of x [rows, n].
inline void add_rows(const ElementwiseLoops& loops, const float* x, int64_t stride, int64_t rows, int64_t n,
                     float* sums) {
  const auto add = loops.binary[static_cast<int>(Binary::add)];
  for (int64_t i = 0; i < rows; ++i) add(sums, 1, x + i * stride, 1, sums, n);
}

}  // namespace plait::cpu
