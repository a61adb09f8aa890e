#pragma once
// What conversions into several ops share: axes, sizes, the order of channels, quantized numbers.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "importers/onnx/old_node.h"

namespace plait::onnx_import {

inline Attributes permuted(std::vector<int64_t> order) {
  Attributes out;
  out.set("perm", std::move(order));
  return out;
}

/// An i64 scalar.
inline ValueId scalar_int(OldNode& old, int64_t value) {
  return old.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{value}).reshaped({}));
}

inline ValueId as_type(OldNode& old, ValueId id, DType dtype) {
  return old.emit("Cast", {id}, OldNode::with("to", static_cast<int64_t>(dtype)));
}

/// The size of axis `axis`, as a scalar.
inline ValueId size_of(OldNode& old, ValueId id, int64_t axis) {
  return old.emit("Gather", {old.emit("Shape", {id}), scalar_int(old, axis)}, OldNode::with("axis", 0));
}

/// The sizes [start, end) as a list.
inline ValueId sizes_of(OldNode& old, ValueId id, int64_t start, int64_t end) {
  Attributes range = OldNode::with("start", start);
  range.set("end", end);
  return old.emit("Shape", {id}, std::move(range));
}

/// Lists one after the other.
inline ValueId joined(OldNode& old, std::vector<ValueId> parts) {
  return old.emit("Concat", std::move(parts), OldNode::with("axis", 0));
}

/// A tensor of one element as a scalar: ops of com.microsoft take [] and [1].
inline ValueId as_scalar(OldNode& old, ValueId id) {
  const auto& dims = old.graph.value(id).type.dims;
  return dims && dims->empty() ? id : old.emit("Reshape", {id, old.ints({})});
}

/// 0, 1, ... below `count`, which is a scalar.
inline ValueId numbers_below(OldNode& old, ValueId count) {
  return old.emit("Range", {scalar_int(old, 0), count, scalar_int(old, 1)});
}

/// A copy without these.
inline Attributes without(const Attributes& all, std::initializer_list<std::string_view> names) {
  Attributes out = all;
  for (std::string_view name : names) out.erase(name);
  return out;
}

/// The number of spatial dims by attribute kernel_shape, or by the weight at `weight`.
inline size_t spatial_dims(OldNode& old, size_t weight) {
  const std::vector<int64_t> kernel = old.node.attributes.integers("kernel_shape");
  const size_t rank = !kernel.empty() ? kernel.size() + 2 : old.weight_dims(weight).size();
  if (rank < 3 || rank > static_cast<size_t>(Shape::max_rank))
    throw Error(Code::bad_model, cat("a kernel of ", rank - std::min<size_t>(rank, 2), " dimensions, expected 1 to ",
                                     Shape::max_rank - 2));
  return rank - 2;
}

/// Of [n, ..., c]: [n, c, ...].
inline ValueId channels_second(OldNode& old, ValueId x, size_t spatial) {
  std::vector<int64_t> order{0, static_cast<int64_t>(spatial) + 1};
  for (size_t i = 0; i < spatial; ++i) order.push_back(static_cast<int64_t>(i) + 1);
  return old.emit("Transpose", {x}, permuted(std::move(order)));
}

/// The order of dims that makes [n, ..., c] of [n, c, ...].
inline std::vector<int64_t> channels_to_end(size_t spatial) {
  std::vector<int64_t> order{0};
  for (size_t i = 0; i < spatial; ++i) order.push_back(static_cast<int64_t>(i) + 2);
  order.push_back(1);
  return order;
}

/// Operands without absent ones at the end.
inline std::vector<ValueId> trimmed_operands(std::vector<ValueId> operands) {
  while (!operands.empty() && operands.back() == no_value) operands.pop_back();
  return operands;
}

/// (x - zero) scale, which are of one element; `zero` may be absent.
inline ValueId dequantized(OldNode& old, ValueId x, ValueId scale, ValueId zero) {
  if (zero != no_value) zero = as_scalar(old, zero);
  return old.emit("DequantizeLinear", trimmed_operands({x, as_scalar(old, scale), zero}));
}

/// The operands of a QuantizeLinear of y, by one scale; without a zero point the type is that of `like`.
inline std::vector<ValueId> to_quantize(OldNode& old, ValueId y, ValueId scale, ValueId zero, ValueId like) {
  zero = zero == no_value ? old.emit("CastLike", {scalar_int(old, 0), like}) : as_scalar(old, zero);
  return {y, as_scalar(old, scale), zero};
}

}  // namespace plait::onnx_import
