#pragma once
// Shared by plait.Experts and its gradient: attributes, operands, sizes.
#include <memory>
#include <span>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cpu/rows/indices.h"
#include "kernels/cpu/linear/linear_blocks.h"

namespace plait::cpu {

// Operands of the op. A weight's scales and zero points are at scales + 2 * (weight - gate) and after it, its bias at
// bias + (weight - gate).
enum ExpertsOperand : size_t {
  in_x,
  in_experts,
  in_shares,
  in_gate,
  in_up,
  in_down,
  in_bias,
  in_scales = 9,
  most_operands = 15
};

struct ExpertsState : KernelState {
  Unary activation = Unary::identity;
  float alpha = 1, beta = 0, limit = 0;
  float zero = 0, down_zero = 0;
  ShardedAxis experts;

  bool activates() const { return alpha != 1 || beta != 0 || limit != 0; }
};

/// The operands, including absent ones.
struct ExpertsOperands {
  TensorView at[most_operands];
  const ExpertsState& state;

  ExpertsOperands(const ExpertsState& all, std::span<const TensorView> inputs) : state(all) {
    std::copy(inputs.begin(), inputs.end(), at);
  }
  bool has(size_t k) const { return at[k].present(); }
  bool gated() const { return has(in_up); }
  /// The weight `which` (in_gate, in_up, in_down) of an expert.
  Weight weight(size_t which, int64_t expert) const {
    if (!has(which)) return {};
    const size_t scales = in_scales + 2 * (which - in_gate);
    return weight_of(at[which], at[scales], at[scales + 1], which == in_down ? state.down_zero : state.zero, 1,
                     expert);
  }
  /// An expert's bias of that weight; null if there is none.
  const uint8_t* bias(size_t which, int64_t expert) const {
    const TensorView& all = at[in_bias + which - in_gate];
    return all.present() ? all.as<uint8_t>() + expert * all.shape[1] * dtype_bits(all.dtype) / 8 : nullptr;
  }
  DType bias_dtype(size_t which) const { return at[in_bias + which - in_gate].dtype; }
};

/// Letters as in the schema; a slot is one of the k choices of one of the t tokens.
struct ExpertsSizes {
  int64_t t, k, e, h, f, o;
  int64_t h_inner, f_inner;  ///< rows in the form of the products
  int64_t slots, active;     ///< active: maximum number of experts used

  explicit ExpertsSizes(const ExpertsOperands& all)
      : t(all.at[in_experts].shape.elements(0, all.at[in_experts].shape.rank() - 1)),
        k(all.at[in_experts].shape.back(1)),
        e(all.at[in_gate].shape[0]),
        h(all.at[in_x].shape.back(1)),
        f(all.at[in_gate].shape[1]),
        o(all.at[in_down].shape[1]),
        h_inner(all.weight(in_gate, 0).inner(h)),
        f_inner(all.weight(in_down, 0).inner(f)),
        slots(t * k),
        active(std::min(e, slots)) {}
};

/// The operand that does not fit the others; 0 if none.
inline int32_t misfit(const ExpertsOperands& all, const ExpertsSizes& s) {
  if (all.at[in_shares].elements() != s.slots || all.at[in_x].elements() != s.t * s.h) return in_shares;
  for (size_t which : {in_gate, in_up, in_down}) {
    if (!all.has(which)) continue;
    const Shape& w = all.at[which].shape;
    const int64_t k = which == in_down ? s.f : s.h, n = which == in_down ? s.o : s.f;
    const bool blocked = w.rank() == 4;
    if (w[0] != s.e || w[1] != n || (blocked ? w[2] * w[3] < k : w[2] != k)) return static_cast<int32_t>(which);
    if (blocked && n * w[2] * w[3] * dtype_bits(all.at[which].dtype) % 8) return static_cast<int32_t>(which);
    for (size_t part : {in_scales + 2 * (which - in_gate), in_scales + 2 * (which - in_gate) + 1}) {
      const Shape& of = all.at[part].shape;
      if (all.has(part) && (!blocked || of[0] != s.e || of[1] != n || of[2] != w[2]))
        return static_cast<int32_t>(part);
    }
    const size_t bias = in_bias + which - in_gate;
    if (all.has(bias) && all.at[bias].elements() != s.e * n) return static_cast<int32_t>(bias);
  }
  if (all.gated() && all.at[in_gate].shape != all.at[in_up].shape) return in_up;
  return 0;
}

inline bool is_absent(std::span<const OperandInfo> in, size_t i) {
  return i >= in.size() || in[i].dtype == DType::none;
}
inline bool is_plain(DType dtype) { return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16; }

/// Whole, or quantised with its scales and zero points.
inline bool is_stack(std::span<const OperandInfo> in, size_t which) {
  const size_t scales = in_scales + 2 * (which - in_gate), zeros = scales + 1;
  const DType dtype = in[which].dtype;
  if (in[which].rank == 3) return is_plain(dtype) && is_absent(in, scales) && is_absent(in, zeros);
  const int bits = dtype_bits(dtype);
  if (in[which].rank != 4 || !(bits == 2 || bits == 4 || dtype == DType::u8 || dtype == DType::i8)) return false;
  if (is_absent(in, scales) || !is_plain(in[scales].dtype) || in[scales].rank != 3) return false;
  if (is_absent(in, zeros)) return true;
  const DType zero = in[zeros].dtype;
  return in[zeros].rank == 3 && (is_plain(zero) || zero == DType::u8 || zero == DType::i8);
}

/// Of the operands of plait.Experts, x first.
inline bool accepts_experts(std::span<const OperandInfo> in) {
  if (in[in_x].dtype != DType::f32 || in[in_shares].dtype != DType::f32) return false;
  if (in[in_experts].dtype != DType::i64 && in[in_experts].dtype != DType::i32) return false;
  for (size_t which : {in_gate, in_up, in_down}) {
    const size_t bias = in_bias + which - in_gate;
    if (!is_absent(in, bias) && (is_absent(in, which) || !is_plain(in[bias].dtype) || in[bias].rank != 2))
      return false;
    if (which == in_up && is_absent(in, which)) continue;
    if (!is_stack(in, which)) return false;
  }
  return is_absent(in, in_up) || (in[in_up].dtype == in[in_gate].dtype && in[in_up].rank == in[in_gate].rank);
}

inline std::shared_ptr<const KernelState> prepare_experts(const NodeInfo& node) {
  auto state = std::make_shared<ExpertsState>();
  state->activation = unary_activation(node);
  state->alpha = static_cast<float>(node.attributes.real("alpha", 1));
  state->beta = static_cast<float>(node.attributes.real("beta", 0));
  state->limit = static_cast<float>(node.attributes.real("limit", 0));
  state->zero = static_cast<float>(node.attributes.integer("zero", 0));
  state->down_zero = static_cast<float>(node.attributes.integer("down_zero", 0));
  state->experts = ShardedAxis::of(node.attributes);
  if (state->alpha == 0 || !(state->limit >= 0))
    throw Error(Code::bad_model, cat(node.op, ": alpha is ", state->alpha, ", limit ", state->limit));
  return state;
}

}  // namespace plait::cpu
