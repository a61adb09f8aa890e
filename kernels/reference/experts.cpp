// plait.Experts: a mixture of experts, behind its router.
#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/activations.h"
#include "kernels/reference/families.h"
#include "kernels/reference/kernel_of.h"
#include "kernels/reference/multiply.h"
#include "kernels/reference/weights.h"

namespace plait::reference {
namespace {

struct ExpertsAttributes {
  explicit ExpertsAttributes(const NodeInfo& node)
      : activation(activation_named(node.attributes.string("activation", "silu"))),
        alpha(node.attributes.real("alpha", 1)),
        beta(node.attributes.real("beta", 0)),
        limit(node.attributes.real("limit", 0)),
        zero(node.attributes.integer("zero", 0)),
        down_zero(node.attributes.integer("down_zero", 0)),
        shard(ShardedAxis::of(node.attributes)) {
    if (!activation || alpha == 0 || !(limit >= 0))
      throw Error(Code::bad_model, cat(node.op, ": activation ", quote(node.attributes.string("activation", "silu")),
                                       ", alpha ", alpha, ", limit ", limit,
                                       "; expected are silu, gelu_tanh, gelu, relu or identity, any alpha but 0, and "
                                       "no negative limit"));
  }
  double (*activation)(double);
  double alpha, beta, limit;
  int64_t zero, down_zero;
  ShardedAxis shard;

  double gate(double x) const { return activation(alpha * (limit > 0 ? std::min(x, limit) : x)) / alpha; }
  double up(double x) const { return (limit > 0 ? std::clamp(x, -limit, limit) : x) + beta; }
};

/// Number `index` of a stack of arrays.
TensorView one_of(const TensorView& stack, int64_t index) {
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
  /// Whether there are e experts of [n, k], that begin at bytes.
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
};

/// x [..., h], experts [..., k] (numbers below e), shares [..., k], gate [e, f, h], up? [e, f, h], down [e, o, f], biases of
/// the three [e, f], [e, f] and [e, o]?, scales and zero points of quantised ones? -> [..., o]: the sum over a token's
/// choices of share (down hidden), hidden = activation(gate x) * (up x), or activation(gate x). Choices that another rank
/// has are left out.
KernelStatus experts(const KernelCall& call, const ExpertsAttributes& attributes) {
  const TensorView &x = call.inputs[0], &gate = call.inputs[3], &down = call.inputs[5];
  const Stack stacks[] = {{gate, input(call, 6), input(call, 9), input(call, 10), attributes.zero},
                          {input(call, 4), input(call, 7), input(call, 11), input(call, 12), attributes.zero},
                          {down, input(call, 8), input(call, 13), input(call, 14), attributes.down_zero}};
  const bool gated = stacks[1].weights.present();
  const int64_t h = x.shape.back(1), tokens = x.shape.elements(0, x.shape.rank() - 1),
                k = call.inputs[1].shape.back(1);
  if (gate.shape.rank() < 3 || down.shape.rank() < 3) return {KernelCode::bad_value, 3, gate.shape.rank()};
  const int64_t e = gate.shape[0], f = gate.shape[1], o = down.shape[1];
  if (!stacks[0].fits(e, f, h)) return {KernelCode::bad_value, 3, e};
  if (gated && !stacks[1].fits(e, f, h)) return {KernelCode::bad_value, 4, e};
  if (!stacks[2].fits(e, o, f)) return {KernelCode::bad_value, 5, e};
  const std::vector<int64_t> numbers = to_ints(call.inputs[1]);
  if (static_cast<int64_t>(numbers.size()) != tokens * k || call.inputs[2].elements() != tokens * k)
    return {KernelCode::bad_value, 1, static_cast<int64_t>(numbers.size())};
  for (int64_t number : numbers)
    if (!attributes.shard.contains(number, e)) return {KernelCode::index_out_of_range, 1, number};
  return with_precision(x.dtype, [&]<class N>(N) -> KernelStatus {
    const std::vector<N> shares = load_all<N>(call.inputs[2]);
    const Loaded<N> values(x);
    std::vector<N> out(static_cast<size_t>(tokens * o));
    share(call.pool, tokens, tokens * k * f * (h + o), [&](int64_t token) {
      std::vector<N> hidden, up, part;
      for (int64_t slot = token * k; slot < (token + 1) * k; ++slot) {
        const int64_t expert = attributes.shard.place(numbers[static_cast<size_t>(slot)], e);
        if (expert < 0) continue;
        stacks[0].multiply(expert, values.data() + token * h, h, hidden);
        if (gated) stacks[1].multiply(expert, values.data() + token * h, h, up);
        for (size_t i = 0; i < hidden.size(); ++i)
          hidden[i] = static_cast<N>(attributes.gate(hidden[i]) * (gated ? attributes.up(up[i]) : 1));
        stacks[2].multiply(expert, hidden.data(), f, part);
        for (size_t i = 0; i < part.size(); ++i)
          out[static_cast<size_t>(token * o) + i] += shares[static_cast<size_t>(slot)] * part[i];
      }
    });
    store_all(call.outputs[0], out);
    return {};
  });
}

}  // namespace

void add_experts(KernelTable& table) { add<experts>(table, "plait.Experts", floats); }

}  // namespace plait::reference
