#pragma once
// What the kernels of a head with its loss share: attributes and operands.
#include <algorithm>
#include <memory>

#include "core/exec/kernel.h"
#include "kernels/cpu/indices.h"
#include "kernels/cpu/loss_loops.h"
#include "kernels/cpu/unpacked_rows.h"

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

/// x, w and labels of a head; scales and zero points of a quantised w are operands `scales` and the next.
template <size_t scales>
bool accepts_head(const NodeInfo& node) {
  return node.inputs[0].dtype == DType::f32 && node.inputs[2].dtype == DType::i32 &&
         is_weight(node, 1, scales, scales + 1);
}

/// A call's operands.
struct HeadCall {
  HeadCall(const HeadState& state, std::span<const TensorView> inputs, size_t scales)
      : state(state),
        x(inputs[0].as<float>()),
        w(inputs[1]),
        weight(weight_of(w, scales < inputs.size() ? inputs[scales] : TensorView{},
                         scales + 1 < inputs.size() ? inputs[scales + 1] : TensorView{}, state.zero)),
        labels(inputs[2].as<int32_t>()),
        k(inputs[0].shape.back(1)),
        m(inputs[2].elements()),
        v(w.shape[0]),
        chunk(v / std::max<int64_t>(state.chunks, 1)) {}

  bool fits() const {
    const bool is_long_enough = weight.is_blocked ? k <= w.shape[1] * w.shape[2] : k == w.shape[1];
    return state.chunks > 0 && v % state.chunks == 0 && is_long_enough;
  }
  RowUnpacker unpacker(Isa isa) const { return {isa, weight.blocked, k}; }
  /// The first label that is no token of the vocabulary and not -1; -1: there is none.
  int64_t wrong_label() const {
    const int64_t all = (state.shard.whole ? state.shard.whole : state.chunks) * chunk;
    for (int64_t i = 0; i < m; ++i)
      if (labels[i] < -1 || labels[i] >= all) return labels[i];
    return -1;
  }
  /// Where a token's label is among the rows of w here; -1: nowhere.
  int64_t place(int64_t i) const {
    const int64_t at = labels[i] - state.shard.offset * chunk;
    return labels[i] >= 0 && at >= 0 && at < v ? at : -1;
  }

  const HeadState& state;
  const float* x;
  const TensorView& w;
  const Weight weight;
  const int32_t* labels;
  const int64_t k, m, v, chunk;
};

}  // namespace plait::cpu
