#pragma once
// The operands of plait.Experts: stacks of weights, one of each kind per expert.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/activations.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/weights.h"

namespace plait::reference {

struct ExpertsAttributes {
  explicit ExpertsAttributes(const NodeInfo& node)
      : activation(activation_of(node.attributes, node.op)),
        alpha(node.attributes.real("alpha", 1)),
        beta(node.attributes.real("beta", 0)),
        limit(node.attributes.real("limit", 0)),
        zero(node.attributes.integer("zero", 0)),
        down_zero(node.attributes.integer("down_zero", 0)),
        shard(ShardedAxis::of(node.attributes)) {
    if (alpha == 0 || !(limit >= 0))
      throw Error(Code::bad_model, cat(node.op, ": alpha is ", alpha, ", limit ", limit),
                  "alpha must not be 0, limit not negative");
  }
  Activation activation;
  double alpha, beta, limit;
  int64_t zero, down_zero;
  ShardedAxis shard;

  double gate(double x) const { return activate(activation, alpha * (limit > 0 ? std::min(x, limit) : x)) / alpha; }
  double up(double x) const { return (limit > 0 ? std::clamp(x, -limit, limit) : x) + beta; }
  double gate_slope(double x) const { return limit > 0 && x > limit ? 0 : activation_slope(activation, alpha * x); }
  double up_slope(double x) const { return limit > 0 && std::fabs(x) > limit ? 0 : 1; }
};

/// Number `index` of a stack of arrays.
inline TensorView one_of(const TensorView& stack, int64_t index) {
  if (!stack.present()) return {};
  Shape shape;
  for (int axis = 1; axis < stack.shape.rank(); ++axis) shape.push_back(stack.shape[axis]);
  return {stack.data + index * packed_bytes(shape.elements(), dtype_bits(stack.dtype)), stack.dtype, shape};
}

/// A weight of all experts, [e, n, k] or [e, n, c, l], with a bias [e, n] or none.
struct Stack {
  TensorView weights, bias, scales, zeros;
  int64_t zero;

  int64_t n() const { return weights.shape[1]; }
  /// Whether there are e experts of [n, k], which begin at bytes.
  bool fits(int64_t e, int64_t n, int64_t k) const {
    if (weights.shape.rank() < 3 || weights.shape[0] != e || weights.shape[1] != n) return false;
    auto stacked = [&](const TensorView& view) {
      return !view.present() || (view.shape.rank() > 1 && view.shape[0] == e);
    };
    if (!stacked(bias) || !stacked(scales) || !stacked(zeros)) return false;
    if (bias.present() && bias.shape != Shape{e, n}) return false;
    if (weights.shape.elements(1, weights.shape.rank()) * dtype_bits(weights.dtype) % 8) return false;
    const TensorView w = one_of(weights, 0);
    return Weights{w, one_of(scales, 0), one_of(zeros, 0), zero}.fits(k);
  }
  /// x [k] times the expert's weight, and its bias, to y [n].
  template <class N>
  void multiply(int64_t expert, const N* x, int64_t k, std::vector<N>& y) const {
    const TensorView w = one_of(weights, expert), shift = one_of(bias, expert);
    const Weights rows{w, one_of(scales, expert), one_of(zeros, expert), zero};
    std::vector<N> buffer;
    y.resize(static_cast<size_t>(n()));
    for (int64_t j = 0; j < n(); ++j) {
      y[static_cast<size_t>(j)] = dot(x, rows.row(j, k, buffer), k);
      if (shift.present()) y[static_cast<size_t>(j)] += load_one<N>(shift, j);
    }
  }
  /// y [n] times the expert's weight, added to x [k].
  template <class N>
  void multiply_back(int64_t expert, const N* y, int64_t k, std::vector<N>& x) const {
    const TensorView w = one_of(weights, expert);
    const Weights rows{w, one_of(scales, expert), one_of(zeros, expert), zero};
    std::vector<N> buffer;
    for (int64_t j = 0; j < n(); ++j) {
      const N* row = rows.row(j, k, buffer);
      for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(i)] += y[j] * row[i];
    }
  }
};

/// The operands of plait.Experts from number `at` on, x first.
struct ExpertsOperands {
  ExpertsOperands(const KernelCall& call, size_t at, const ExpertsAttributes& attributes)
      : x(call.inputs[at]),
        shares(call.inputs[at + 2]),
        gate{call.inputs[at + 3], input(call, at + 6), input(call, at + 9), input(call, at + 10), attributes.zero},
        up{input(call, at + 4), input(call, at + 7), input(call, at + 11), input(call, at + 12), attributes.zero},
        down{call.inputs[at + 5], input(call, at + 8), input(call, at + 13), input(call, at + 14),
             attributes.down_zero},
        numbers(to_ints(call.inputs[at + 1])),
        h(x.shape.back(1)),
        tokens(x.shape.elements(0, x.shape.rank() - 1)),
        k(call.inputs[at + 1].shape.back(1)),
        first(at) {}

  bool gated() const { return up.weights.present(); }
  int64_t e() const { return gate.weights.shape[0]; }
  int64_t f() const { return gate.weights.shape[1]; }
  int64_t o() const { return down.weights.shape[1]; }

  /// Checks the operands; returns the one at fault.
  KernelStatus check(const ExpertsAttributes& attributes) const {
    auto wrong = [&](size_t operand, int64_t value, KernelCode code = KernelCode::bad_value) {
      return KernelStatus{code, static_cast<int32_t>(first + operand), value};
    };
    const int gate_rank = gate.weights.shape.rank(), down_rank = down.weights.shape.rank();
    if (gate_rank < 3 || down_rank < 3) return wrong(3, gate_rank);
    if (!gate.fits(e(), f(), h)) return wrong(3, e());
    if (gated() && !up.fits(e(), f(), h)) return wrong(4, e());
    if (!down.fits(e(), o(), f())) return wrong(5, e());
    const auto count = static_cast<int64_t>(numbers.size());
    if (count != tokens * k || shares.elements() != count) return wrong(1, count);
    for (int64_t number : numbers)
      if (!attributes.shard.contains(number, e())) return wrong(1, number, KernelCode::index_out_of_range);
    return {};
  }

  const TensorView &x, &shares;
  Stack gate, up, down;
  const std::vector<int64_t> numbers;
  int64_t h, tokens, k;
  size_t first;
};

}  // namespace plait::reference
