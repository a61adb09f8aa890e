// Products with weights as PyTorch stores them, [n, k] row-major: plait.Linear, plait.Linears, plait.GatedLinear, and
// com.microsoft MatMulNBits. All sum in f32 (in f64 where x is), in the order of `dot`, a row of x at a time: a row's
// result does not depend on the other rows.
#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/base/linear_operands.h"
#include "core/base/text.h"
#include "kernels/reference/base/activations.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/weights.h"

namespace plait::reference {
namespace {

constexpr int64_t band = 16;  ///< rows of weights per task: the smallest range whose outputs fill a cache line

/// y [m, n] = x [m, k] w^T.
template <class N>
void linear_values(const N* x, int64_t m, int64_t k, const Weights& w, std::vector<N>& y, ThreadPool& pool) {
  int64_t n = w.tensor.shape[0];
  y.resize(static_cast<size_t>(m * n));
  share(pool, (n + band - 1) / band, m * n * k, [&](int64_t task) {
    std::vector<N> buffer;
    for (int64_t j = task * band; j < std::min(n, (task + 1) * band); ++j) {
      const N* row = w.row(j, k, buffer);
      for (int64_t i = 0; i < m; ++i) y[static_cast<size_t>(i * n + j)] = dot(x + i * k, row, k);
    }
  });
}

/// Attributes of quantised weights.
struct WeightAttributes {
  explicit WeightAttributes(const NodeInfo& node)
      : zero(node.attributes.integer("zero", 0)), parts(static_cast<size_t>(node.attributes.integer("parts", 1))) {}
  int64_t zero;
  size_t parts;  ///< operands per weight of plait.Linears
};

int64_t rows_of(const TensorView& x) { return x.shape.elements(0, x.shape.rank() - 1); }

/// plait.Linear: x [..., k], w [n, k], bias? [n], scales?, zeros? -> [..., n].
KernelStatus linear(const KernelCall& call, const WeightAttributes& attributes) {
  const TensorView &x = call.inputs[linear_x], bias = input(call, linear_bias);
  const Weights w{call.inputs[linear_w], input(call, linear_scales), input(call, linear_zeros), attributes.zero};
  const int64_t k = x.shape.back(1);
  if (!w.fits(k)) return {KernelCode::bad_value, linear_w, k};
  return with_precision(x.dtype, [&]<class N>(N) -> KernelStatus {
    std::vector<N> y, shift = load_all<N>(bias.present() ? bias : TensorView{nullptr, DType::f32, {0}});
    linear_values(Loaded<N>(x).data(), rows_of(x), k, w, y, call.pool);
    if (!shift.empty())
      for (size_t i = 0; i < y.size(); ++i) y[i] += shift[i % shift.size()];
    store_all(call.outputs[0], y);
    return {};
  });
}

struct AddAttributes {
  explicit AddAttributes(const NodeInfo& node) : back(node.attributes.integer("back", 0) != 0) {}
  bool back;
};

/// plait.AddLinear: sum [..., n], x [..., k], w [n, k] -> sum + x w^T [..., n]; `back`: w [k, n] -> sum + x w.
KernelStatus linear_and_sum(const KernelCall& call, const AddAttributes& attributes) {
  const TensorView& x = call.inputs[1];
  const Weights w{call.inputs[2], {}, {}, 0};
  const int64_t m = rows_of(x), k = x.shape.back(1), n = call.outputs[0].shape.back(1);
  return with_precision(x.dtype, [&]<class N>(N) -> KernelStatus {
    const Loaded<N> values(x), sum(call.inputs[0]);
    std::vector<N> y(static_cast<size_t>(m * n));
    if (attributes.back) multiply(m, n, k, values.data(), Loaded<N>(call.inputs[2]).data(), y.data(), call.pool);
    else linear_values(values.data(), m, k, w, y, call.pool);
    for (int64_t i = 0; i < m * n; ++i) y[static_cast<size_t>(i)] += sum[i];
    store_all(call.outputs[0], y);
    return {};
  });
}

/// plait.Linears: x [..., k], w1 [n1, k], w2 [n2, k], ... -> [..., n1], [..., n2], ... A quantised weight is two or
/// three operands.
KernelStatus linears(const KernelCall& call, const WeightAttributes& attributes) {
  const TensorView& x = call.inputs[0];
  const int64_t k = x.shape.back(1);
  return with_precision(x.dtype, [&]<class N>(N) -> KernelStatus {
    Loaded<N> values(x);
    std::vector<N> y;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const size_t at = 1 + i * attributes.parts;
      const Weights w{call.inputs[at], attributes.parts > 1 ? call.inputs[at + 1] : TensorView{},
                      attributes.parts > 2 ? call.inputs[at + 2] : TensorView{}, attributes.zero};
      if (!w.fits(k)) return {KernelCode::bad_value, static_cast<int32_t>(at), k};
      if (!call.outputs[i].present()) continue;
      linear_values(values.data(), rows_of(x), k, w, y, call.pool);
      store_all(call.outputs[i], y);
    }
    return {};
  });
}

struct GatedAttributes {
  explicit GatedAttributes(const NodeInfo& node)
      : activation(activation_of(node.attributes, node.op)), zero(node.attributes.integer("zero", 0)) {}
  Activation activation;
  int64_t zero;
};

/// plait.GatedLinear: x [..., k], gate [f, k], up [f, k], scales and zeros of both? -> activation(x gate^T) * (x
/// up^T) [..., f].
KernelStatus gated_linear(const KernelCall& call, const GatedAttributes& attributes) {
  const TensorView& x = call.inputs[gated_x];
  const int64_t k = x.shape.back(1);
  auto weights = [&](size_t w, size_t scales, size_t zeros) {
    return Weights{call.inputs[w], input(call, scales), input(call, zeros), attributes.zero};
  };
  const Weights sides[2] = {weights(gated_gate, gated_gate_scales, gated_gate_zeros),
                            weights(gated_up, gated_up_scales, gated_up_zeros)};
  if (!sides[0].fits(k)) return {KernelCode::bad_value, gated_gate, k};
  if (!sides[1].fits(k)) return {KernelCode::bad_value, gated_up, k};
  return with_precision(x.dtype, [&]<class N>(N) -> KernelStatus {
    Loaded<N> values(x);
    std::vector<N> gate, up;
    linear_values(values.data(), rows_of(x), k, sides[0], gate, call.pool);
    linear_values(values.data(), rows_of(x), k, sides[1], up, call.pool);
    for (size_t i = 0; i < gate.size(); ++i)
      gate[i] = static_cast<N>(activate(attributes.activation, gate[i])) * up[i];
    store_all(call.outputs[0], gate);
    return {};
  });
}

/// y [..., n] and (x a^T) b^T, with the a [r, k] and b [n, r] of each row's adapter (-1: none), operands from `at`
/// on, into the output.
KernelStatus add_adapters(const KernelCall& call, const TensorView& y, const TensorView& x, size_t at) {
  const TensorView &a = call.inputs[at], &b = call.inputs[at + 1];
  const int64_t k = x.shape.back(1), n = b.shape[1], r = a.shape[1];
  const std::vector<int64_t> adapters = to_ints(call.inputs[at + 2]);
  return with_precision(x.dtype, [&]<class N>(N) -> KernelStatus {
    std::vector<N> sum = load_all<N>(y), low(static_cast<size_t>(r));
    Loaded<N> rows(x), down(a), up(b);
    const N* row = rows.data();
    N* to = sum.data();
    for (const int64_t adapter : adapters) {
      if (adapter < -1 || adapter >= a.shape[0])
        return {KernelCode::index_out_of_range, static_cast<int32_t>(at + 2), adapter};
      for (int64_t j = 0; adapter >= 0 && j < r; ++j)
        low[static_cast<size_t>(j)] = dot(row, down.data() + (adapter * r + j) * k, k);
      for (int64_t j = 0; adapter >= 0 && j < n; ++j)
        to[j] += dot<N>(low.data(), up.data() + (adapter * n + j) * r, r);
      row += k, to += n;
    }
    store_all(call.outputs[0], sum);
    return {};
  });
}

/// plait.AdaptedLinear: plait.Linear's operands, then a [s, r, k], b [s, n, r], adapters [...].
KernelStatus adapted_linear(const KernelCall& call, const WeightAttributes& attributes) {
  if (const KernelStatus status = linear(call, attributes); status.code != KernelCode::ok) return status;
  return add_adapters(call, call.outputs[0], call.inputs[0], 5);
}

/// plait.AddAdapters: y [..., n], x [..., k], a [s, r, k], b [s, n, r], adapters [...] -> [..., n].
KernelStatus add_adapters_to(const KernelCall& call) { return add_adapters(call, call.inputs[0], call.inputs[1], 2); }

struct NBitsAttributes {
  explicit NBitsAttributes(const NodeInfo& node)
      : k(node.attributes.integer("K")),
        n(node.attributes.integer("N")),
        bits(node.attributes.integer("bits", 4)),
        block(node.attributes.integer("block_size")) {
    if (bits != 2 && bits != 4 && bits != 8)
      throw Error(Code::unsupported, cat(node.op, ": bits is ", bits, ", expected 2, 4 or 8"));
    if (block < 16 || k < 1 || n < 1)
      throw Error(Code::bad_model, cat(node.op, ": K ", k, ", N ", n, ", block_size ", block, " are no sizes"));
    if (node.attributes.integer("weight_prepacked", 0) != 0)
      throw Error(Code::unsupported, cat(node.op, ": weight_prepacked is a private layout of one vendor"),
                  "export the model with weight_prepacked = 0");
    if (node.inputs.size() > 4 && node.inputs[4].dtype != DType::none)
      throw Error(Code::unsupported, cat(node.op, ": g_idx is deprecated and not supported"));
  }
  int64_t k, n, bits, block;
  int64_t blocks() const { return (k + block - 1) / block; }
};

/// MatMulNBits: x [..., k], b u8 [n, blocks, block * bits / 8] (low bits first), scales [n, blocks], zero_points? (u8
/// [n, packed blocks], or x's dtype [n, blocks]; absent: 2^(bits - 1)), g_idx (refused), bias? [n] -> [..., n].
KernelStatus matmul_nbits(const KernelCall& call, const NBitsAttributes& a) {
  const TensorView &x = call.inputs[0], &b = call.inputs[1], &out = call.outputs[0];
  TensorView zeros = input(call, 3), bias = input(call, 5);
  Loaded<float> values(x), scales(call.inputs[2]);
  int64_t m = rows_of(x), blocks = a.blocks(), per_byte = 8 / a.bits;
  int64_t bytes = a.block / per_byte, zero_bytes = (blocks + per_byte - 1) / per_byte;
  // The attributes specify the sizes: the operands must be at least as large.
  if (x.shape.back(1) != a.k || b.bytes() < a.n * blocks * bytes) return {KernelCode::bad_value, 1, b.bytes()};
  if (call.inputs[2].elements() < a.n * blocks) return {KernelCode::bad_value, 2, call.inputs[2].elements()};
  int64_t zeros_needed = a.n * (zeros.dtype == DType::u8 ? zero_bytes : blocks);
  if (zeros.present() && zeros.elements() < zeros_needed) return {KernelCode::bad_value, 3, zeros.elements()};
  auto unpack = [&](const std::byte* from, int64_t i) {
    auto byte = std::to_integer<unsigned>(from[i / per_byte]);
    return static_cast<float>((byte >> (i % per_byte * a.bits)) & ((1u << a.bits) - 1));
  };
  std::vector<float> y(static_cast<size_t>(m * a.n)), shift(static_cast<size_t>(a.n), 0.0f);
  if (bias.present()) load(bias, 0, a.n, shift.data());
  share(call.pool, a.n, m * a.n * a.k, [&](int64_t j) {
    std::vector<float> row(static_cast<size_t>(a.k));
    for (int64_t i = 0; i < a.k; ++i) {
      int64_t group = i / a.block;
      float zero = !zeros.present()           ? static_cast<float>(1 << (a.bits - 1))
                   : zeros.dtype == DType::u8 ? unpack(zeros.data + j * zero_bytes, group)
                                              : load_one<float>(zeros, j * blocks + group);
      float code = unpack(b.data + (j * blocks + group) * bytes, i % a.block);
      row[static_cast<size_t>(i)] = (code - zero) * scales[j * blocks + group];
    }
    for (int64_t i = 0; i < m; ++i)
      y[static_cast<size_t>(i * a.n + j)] =
          dot(values.data() + i * a.k, row.data(), a.k) + shift[static_cast<size_t>(j)];
  });
  store_all(out, y);
  return {};
}

}  // namespace

void add_linear(KernelTable& table) {
  add<linear>(table, "plait.Linear", floats);
  add<linear_and_sum>(table, "plait.AddLinear", floats);
  add<linears>(table, "plait.Linears", floats);
  add<gated_linear>(table, "plait.GatedLinear", floats);
  add<adapted_linear>(table, "plait.AdaptedLinear", floats);
  add<add_adapters_to>(table, "plait.AddAdapters", floats, 0);
  add<matmul_nbits>(table, "com.microsoft.MatMulNBits", floats);
}

}  // namespace plait::reference
