// plait.Experts, a mixture of experts after its router, and its gradients.
#include "kernels/reference/experts.h"

#include "kernels/reference/families.h"

namespace plait::reference {
namespace {

/// x [..., h], experts [..., k] (numbers below e), shares [..., k], gate [e, f, h], up? [e, f, h], down [e, o, f],
/// biases of the three [e, f], [e, f] and [e, o]?, scales and zero points of quantised ones? -> [..., o]: the sum
/// over a token's choices of share (down hidden), hidden = activation(gate x) * (up x), or activation(gate x).
/// Choices of other ranks are skipped.
KernelStatus experts(const KernelCall& call, const ExpertsAttributes& attributes) {
  const ExpertsOperands in(call, 0, attributes);
  if (KernelStatus status = in.check(attributes); status.code != KernelCode::ok) return status;
  const int64_t f = in.f(), h = in.h, o = in.o();
  return with_precision(in.x.dtype, [&]<class N>(N) -> KernelStatus {
    const std::vector<N> shares = load_all<N>(in.shares);
    const Loaded<N> values(in.x);
    std::vector<N> out(static_cast<size_t>(in.tokens * o));
    share(call.pool, in.tokens, in.tokens * in.k * f * (h + o), [&](int64_t token) {
      std::vector<N> hidden, up, part;
      for (int64_t slot = token * in.k; slot < (token + 1) * in.k; ++slot) {
        const int64_t expert = attributes.shard.place(in.numbers[static_cast<size_t>(slot)], in.e());
        if (expert < 0) continue;
        in.gate.multiply(expert, values.data() + token * h, h, hidden);
        if (in.gated()) in.up.multiply(expert, values.data() + token * h, h, up);
        for (size_t i = 0; i < hidden.size(); ++i)
          hidden[i] = static_cast<N>(attributes.gate(hidden[i]) * (in.gated() ? attributes.up(up[i]) : 1));
        in.down.multiply(expert, hidden.data(), f, part);
        for (size_t i = 0; i < part.size(); ++i)
          out[static_cast<size_t>(token * o) + i] += shares[static_cast<size_t>(slot)] * part[i];
      }
    });
    store_all(call.outputs[0], out);
    return {};
  });
}

/// Adds a b^T, of a [rows] and b [columns], to number `index` of a stack of matrices.
template <class N>
void add_outer(std::vector<N>& stack, int64_t index, const std::vector<N>& a, const N* b, size_t columns) {
  N* to = stack.data() + static_cast<size_t>(index) * a.size() * columns;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < columns; ++j) to[i * columns + j] += a[i] * b[j];
}

/// dy [..., o] and the operands of plait.Experts -> dx, dshares, and if wanted dgate, dup, ddown, dgate_bias,
/// dup_bias, ddown_bias. Hidden values are recomputed. Choices of other ranks are skipped.
KernelStatus experts_back(const KernelCall& call, const ExpertsAttributes& attributes) {
  const ExpertsOperands in(call, 1, attributes);
  if (KernelStatus status = in.check(attributes); status.code != KernelCode::ok) return status;
  const int64_t f = in.f(), h = in.h, o = in.o();
  return with_precision(in.x.dtype, [&]<class N>(N) -> KernelStatus {
    const std::vector<N> shares = load_all<N>(in.shares);
    const Loaded<N> values(in.x), dy(call.inputs[0]);
    std::vector<std::vector<N>> results;
    for (size_t k = 0; k < 8; ++k) {
      const TensorView out = output(call, k);
      results.emplace_back(static_cast<size_t>(out.present() ? out.elements() : 0));
    }
    auto wants = [&](size_t k) { return output(call, k).present(); };
    std::vector<N> gate, up, hidden, part, dpart(static_cast<size_t>(o)), dhidden, dgate, dup, dx;
    // By token, in order: several contribute to one expert.
    for (int64_t slot = 0; slot < in.tokens * in.k; ++slot) {
      const int64_t expert = attributes.shard.place(in.numbers[static_cast<size_t>(slot)], in.e());
      if (expert < 0) continue;
      const N* token = values.data() + slot / in.k * h;
      const N* from = dy.data() + slot / in.k * o;
      in.gate.multiply(expert, token, h, gate);
      if (in.gated()) in.up.multiply(expert, token, h, up);
      hidden.resize(gate.size());
      for (size_t i = 0; i < gate.size(); ++i)
        hidden[i] = static_cast<N>(attributes.gate(gate[i]) * (in.gated() ? attributes.up(up[i]) : 1));
      in.down.multiply(expert, hidden.data(), f, part);
      if (wants(1)) results[1][static_cast<size_t>(slot)] = dot(from, part.data(), o);
      for (size_t i = 0; i < dpart.size(); ++i) dpart[i] = shares[static_cast<size_t>(slot)] * from[i];
      dhidden.assign(gate.size(), N{0});
      in.down.multiply_back(expert, dpart.data(), f, dhidden);
      dgate = dhidden, dup = dhidden;
      for (size_t i = 0; i < gate.size(); ++i) {
        dgate[i] *= static_cast<N>(attributes.gate_slope(gate[i]) * (in.gated() ? attributes.up(up[i]) : 1));
        dup[i] *= static_cast<N>(in.gated() ? attributes.gate(gate[i]) * attributes.up_slope(up[i]) : 0);
      }
      dx.assign(static_cast<size_t>(h), N{0});
      in.gate.multiply_back(expert, dgate.data(), h, dx);
      if (in.gated()) in.up.multiply_back(expert, dup.data(), h, dx);
      for (size_t i = 0; i < dx.size() && wants(0); ++i)
        results[0][static_cast<size_t>(slot / in.k * h) + i] += dx[i];
      if (wants(2)) add_outer(results[2], expert, dgate, token, static_cast<size_t>(h));
      if (wants(3)) add_outer(results[3], expert, dup, token, static_cast<size_t>(h));
      if (wants(4)) add_outer(results[4], expert, dpart, hidden.data(), hidden.size());
      const N one{1};
      if (wants(5)) add_outer(results[5], expert, dgate, &one, 1);
      if (wants(6)) add_outer(results[6], expert, dup, &one, 1);
      if (wants(7)) add_outer(results[7], expert, dpart, &one, 1);
    }
    for (size_t k = 0; k < results.size(); ++k)
      if (wants(k)) store_all(call.outputs[k], results[k]);
    return {};
  });
}

}  // namespace

void add_experts(KernelTable& table) {
  add<experts>(table, "plait.Experts", floats);
  add<experts_back>(table, "plait.ExpertsBack", floats);
}

}  // namespace plait::reference
