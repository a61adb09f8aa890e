// Ops that read elements at indices: the Gather family, and selections by a condition.
#include <algorithm>
#include <cmath>

#include "core/base/thread_pool.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/families.h"

namespace plait::reference {
namespace {

struct IndexAxis {
  explicit IndexAxis(const NodeInfo& node)
      : axis(node.attributes.integer("axis", node.op == "OneHot" ? -1 : 0)) {}
  int64_t axis;
};

/// The index of an axis of `size` elements, counted from its end if negative; -1 and a status if it is out of range.
int64_t checked_index(int64_t index, int64_t size, int32_t slot, KernelStatus& status) {
  if (index >= -size && index < size) return index < 0 ? index + size : index;
  status = {KernelCode::index_out_of_range, slot, index};
  return -1;
}

/// Gather: data [outer, size, inner], indices [...] -> [outer, indices, inner].
KernelStatus gather(const KernelCall& call, const IndexAxis& attribute) {
  const TensorView &data = call.inputs[0], &out = call.outputs[0];
  int axis = positive_axis(attribute.axis, data.shape.rank());
  std::vector<int64_t> indices = to_ints(call.inputs[1]);
  int64_t size = data.shape[axis], outer = data.shape.elements(0, axis);
  int64_t inner = data.shape.elements(axis + 1, data.shape.rank()), to = 0;
  KernelStatus status;
  for (int64_t& index : indices)
    if ((index = checked_index(index, size, 1, status)) < 0) return status;
  for (int64_t i = 0; i < outer; ++i)
    for (int64_t index : indices) {
      copy_elements(data, (i * size + index) * inner, out, to, inner);
      to += inner;
    }
  return {};
}

/// out[i, j, k] = data[i, indices[i, j, k], k], the index on `axis`.
KernelStatus gather_elements(const KernelCall& call, const IndexAxis& attribute) {
  const TensorView &data = call.inputs[0], &out = call.outputs[0];
  int axis = positive_axis(attribute.axis, data.shape.rank());
  const Shape& wanted = call.inputs[1].shape;
  if (wanted.rank() != data.shape.rank() || (wanted.rank() > 0 && (axis < 0 || axis >= wanted.rank())))
    return {KernelCode::bad_value, 1, wanted.rank()};
  for (int i = 0; i < wanted.rank(); ++i)
    if (i != axis && wanted[i] > data.shape[i]) return {KernelCode::bad_value, 1, wanted[i]};
  std::vector<int64_t> indices = to_ints(call.inputs[1]);
  Shape strides = strides_of(data.shape);
  int64_t pitch = strides.rank() ? strides[axis] : 1, size = data.shape.rank() ? data.shape[axis] : 1;
  if (strides.rank()) strides[axis] = 0;
  std::vector<int64_t> base = offsets_of(call.inputs[1].shape, strides);
  KernelStatus status;
  StopCheck stop;
  for (size_t i = 0; i < indices.size(); ++i) {
    stop.count();
    int64_t index = checked_index(indices[i], size, 1, status);
    if (index < 0) return status;
    put_bits(out, static_cast<int64_t>(i), get_bits(data, base[i] + index * pitch));
  }
  return {};
}

struct BatchAttribute {
  explicit BatchAttribute(const NodeInfo& node) : batch(static_cast<int>(node.attributes.integer("batch_dims", 0))) {}
  int batch;
};

/// GatherND: data [batch, d..., inner], indices [batch, n, k] -> [batch, n, inner], k of data's dims indexed.
KernelStatus gather_nd(const KernelCall& call, const BatchAttribute& attribute) {
  const TensorView &data = call.inputs[0], &out = call.outputs[0];
  const Shape& shape = call.inputs[1].shape;
  std::vector<int64_t> indices = to_ints(call.inputs[1]);
  int64_t k = shape.back(1), batches = data.shape.elements(0, attribute.batch);
  int indexed = attribute.batch + static_cast<int>(k);
  int64_t tuples = shape.elements(attribute.batch, shape.rank() - 1);
  int64_t inner = data.shape.elements(indexed, data.shape.rank());
  int64_t pitch = data.shape.elements(attribute.batch, data.shape.rank());
  KernelStatus status;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t t = 0; t < tuples; ++t) {
      int64_t offset = 0;
      for (int64_t i = 0; i < k; ++i) {
        int axis = attribute.batch + static_cast<int>(i);
        int64_t index =
            checked_index(indices[static_cast<size_t>((b * tuples + t) * k + i)], data.shape[axis], 1, status);
        if (index < 0) return status;
        offset = offset * data.shape[axis] + index;
      }
      copy_elements(data, b * pitch + offset * inner, out, (b * tuples + t) * inner, inner);
    }
  return {};
}

/// OneHot: indices [...], depth, values [off, on] -> [..., depth at axis, ...]. An index outside sets nothing.
KernelStatus one_hot(const KernelCall& call, const IndexAxis& attribute) {
  const TensorView &values = call.inputs[2], &out = call.outputs[0];
  std::vector<double> indices = load_all<double>(call.inputs[0]);  // floats are allowed
  int axis = positive_axis(attribute.axis, out.shape.rank());
  int64_t depth = out.shape[axis], inner = out.shape.elements(axis + 1, out.shape.rank());
  for (int64_t i = 0; i < out.elements(); ++i) put_bits(out, i, get_bits(values, 0));
  for (size_t i = 0; i < indices.size(); ++i) {
    const double whole = std::trunc(indices[i]), count = static_cast<double>(depth);
    if (!(whole >= -count && whole < count)) continue;  // NaN is outside too
    auto index = static_cast<int64_t>(whole);
    if (index < 0) index += depth;
    int64_t position = static_cast<int64_t>(i);
    put_bits(out, (position / inner * depth + index) * inner + position % inner, get_bits(values, 1));
  }
  return {};
}

/// NonZero: x [...] -> i64 [rank, n], the positions in row-major order. A scalar counts as [1] without an index row.
KernelStatus non_zero(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &out = call.outputs[0];
  std::vector<double> values = load_all<double>(x);
  int64_t count = out.shape.back(1), found = 0;
  Shape strides = strides_of(x.shape);
  StopCheck stop;
  for (size_t i = 0; i < values.size(); ++i) {
    stop.count();
    if (values[i] == 0) continue;
    if (found == count) return {KernelCode::bad_value, 0, found};
    for (int axis = 0; axis < x.shape.rank(); ++axis)
      store_one(out, axis * count + found, static_cast<int64_t>(i) / strides[axis] % x.shape[axis]);
    ++found;
  }
  return {};
}

Shape non_zero_shape(const KernelState*, std::span<const TensorView> inputs, int) {
  std::vector<double> values = load_all<double>(inputs[0]);
  int64_t zeros = std::count(values.begin(), values.end(), 0.0);
  return {inputs[0].shape.rank(), static_cast<int64_t>(values.size()) - zeros};
}

/// Compress: x, condition bool [n] -> the slices of `axis` (of the flat array without one) where it holds.
struct CompressAttributes {
  explicit CompressAttributes(const NodeInfo& node)
      : flat(!node.attributes.has("axis")), axis(node.attributes.integer("axis", 0)) {}
  bool flat;
  int64_t axis;
};

KernelStatus compress(const KernelCall& call, const CompressAttributes& attributes) {
  const TensorView &x = call.inputs[0], &out = call.outputs[0];
  int rank = x.shape.rank(), axis = attributes.flat ? 0 : positive_axis(attributes.axis, rank);
  if (axis < 0 || (!attributes.flat && axis >= rank)) return {KernelCode::bad_value, 0, rank};
  int64_t outer = attributes.flat ? 1 : x.shape.elements(0, axis);
  int64_t size = attributes.flat ? x.elements() : x.shape[axis];
  int64_t inner = attributes.flat ? 1 : x.shape.elements(axis + 1, rank), to = 0;
  std::vector<int64_t> condition = to_ints(call.inputs[1]);
  for (int64_t i = 0; i < outer; ++i)
    for (size_t j = 0; j < condition.size(); ++j) {
      if (!condition[j]) continue;
      if (static_cast<int64_t>(j) >= size) return {KernelCode::index_out_of_range, 1, static_cast<int64_t>(j)};
      if (to + inner > out.elements()) return {KernelCode::bad_value, 1, static_cast<int64_t>(j)};
      copy_elements(x, (i * size + static_cast<int64_t>(j)) * inner, out, to, inner);
      to += inner;
    }
  return {};
}

Shape compress_shape(const KernelState* state, std::span<const TensorView> inputs, int) {
  const auto& attributes = static_cast<const State<CompressAttributes>*>(state)->value;
  int64_t taken = 0;
  for (int64_t yes : to_ints(inputs[1])) taken += yes != 0;
  if (attributes.flat) return {taken};
  Shape out = inputs[0].shape;
  int axis = positive_axis(attributes.axis, out.rank());
  if (axis < 0 || axis >= out.rank()) return {0};  // refused when it runs
  out[axis] = taken;
  return out;
}

}  // namespace

void add_index(KernelTable& table) {
  add<gather>(table, "Gather", anything);
  add<gather_elements>(table, "GatherElements", anything);
  add<gather_nd>(table, "GatherND", anything);
  add<one_hot>(table, "OneHot", numbers);
  Kernel kernel = kernel_of<non_zero>("NonZero", comparable);
  kernel.output_shape = non_zero_shape;
  table.add(std::move(kernel));
  kernel = kernel_of<compress>("Compress", anything);
  kernel.output_shape = compress_shape;
  table.add(std::move(kernel));
}

}  // namespace plait::reference
