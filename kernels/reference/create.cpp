// Ops that make arrays from sizes and scalars, and the masks Trilu and EyeLike.
#include <algorithm>

#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

struct ShapeAttributes {
  explicit ShapeAttributes(const NodeInfo& node) : start(node.attributes.integer("start", 0)) {}
  int64_t start;  ///< `end` shows in the output's size
};

KernelStatus shape(const KernelCall& call, const ShapeAttributes& attributes) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  int rank = in.shape.rank();
  int64_t start = attributes.start < 0 ? std::max<int64_t>(attributes.start + rank, 0) : attributes.start;
  for (int64_t i = 0; i < out.elements(); ++i) {
    if (start + i >= rank) return {KernelCode::index_out_of_range, 0, start + i};
    store_one(out, i, in.shape[static_cast<int>(start + i)]);
  }
  return {};
}

KernelStatus size(const KernelCall& call) {
  store_one(call.outputs[0], 0, call.inputs[0].elements());
  return {};
}

/// Range: start, limit, delta; each element is start + i * delta, not a running sum.
KernelStatus range(const KernelCall& call) {
  const TensorView& out = call.outputs[0];
  with_number(out.dtype, [&]<class Number>(Number) {
    using N = std::conditional_t<std::is_same_v<Number, double>, double, uint64_t>;  // integers wrap
    N start = load_one<N>(call.inputs[0], 0), delta = load_one<N>(call.inputs[2], 0);
    for (int64_t i = 0; i < out.elements(); ++i) store_one(out, i, start + static_cast<N>(i) * delta);
  });
  return {};
}

struct FillAttributes {
  explicit FillAttributes(const NodeInfo& node) {
    if (const Attribute* found = node.attributes.find("value")) value = std::get<Tensor>(*found);
  }
  Tensor value;  ///< one element; absent: f32 zero
};

KernelStatus constant_of_shape(const KernelCall& call, const FillAttributes& attributes) {
  const TensorView& out = call.outputs[0];
  uint64_t bits = attributes.value.present() ? get_bits(attributes.value.view(), 0) : 0;
  for (int64_t i = 0; i < out.elements(); ++i) put_bits(out, i, bits);
  return {};
}

struct TriluAttributes {
  explicit TriluAttributes(const NodeInfo& node) : upper(node.attributes.integer("upper", 1) != 0) {}
  bool upper;
};

/// Trilu: x [..., n, m], k? -> x where column - row >= k (upper) or <= k (lower), otherwise zero.
KernelStatus trilu(const KernelCall& call, const TriluAttributes& attributes) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  int64_t rows = in.shape.back(2), columns = in.shape.back(1);
  int64_t k = input(call, 1).present() ? load_one<int64_t>(call.inputs[1], 0) : 0;
  for (int64_t i = 0; i < in.elements(); ++i) {
    int64_t diagonal = i % columns - i / columns % rows;
    bool keep = attributes.upper ? diagonal >= k : diagonal <= k;
    put_bits(out, i, keep ? get_bits(in, i) : 0);
  }
  return {};
}

struct EyeAttributes {
  explicit EyeAttributes(const NodeInfo& node) : k(node.attributes.integer("k", 0)) {}
  int64_t k;
};

KernelStatus eye_like(const KernelCall& call, const EyeAttributes& attributes) {
  const TensorView& out = call.outputs[0];
  int64_t columns = out.shape.back(1);
  for (int64_t i = 0; i < out.elements(); ++i)
    store_one<int64_t>(out, i, i % columns - i / columns == attributes.k);
  return {};
}

}  // namespace

void add_create(KernelTable& table) {
  add<shape>(table, "Shape", Domain{"any", nullptr});
  add<size>(table, "Size", Domain{"any", nullptr});
  add<range>(table, "Range", numbers);
  add<constant_of_shape>(table, "ConstantOfShape", integers);
  add<trilu>(table, "Trilu", anything);
  add<eye_like>(table, "EyeLike", anything);
}

}  // namespace plait::reference
