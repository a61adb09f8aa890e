// Ops that write elements at indices into a copy of their data: ScatterElements, ScatterND, TensorScatter.
#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/families.h"

namespace plait::reference {
namespace {

enum class Reduction { none, add, mul, max, min };

struct ScatterAttributes {
  explicit ScatterAttributes(const NodeInfo& node) : axis(node.attributes.integer("axis", 0)) {
    static constexpr std::string_view names[] = {"none", "add", "mul", "max", "min"};
    std::string name = node.attributes.string("reduction", "none");
    auto found = std::find(std::begin(names), std::end(names), name);
    if (found == std::end(names))
      throw Error(Code::bad_model,
                  cat(node.op, ": reduction is ", quote(name), ", expected none, add, mul, max or min"));
    reduction = static_cast<Reduction>(found - std::begin(names));
  }
  int64_t axis;
  Reduction reduction;
};

template <class N>
N combine(Reduction reduction, N old, N update) {
  switch (reduction) {
    case Reduction::add:
      if constexpr (std::is_same_v<N, double>) return old + update;
      else return static_cast<N>(static_cast<uint64_t>(old) + static_cast<uint64_t>(update));
    case Reduction::mul:
      if constexpr (std::is_same_v<N, double>) return old * update;
      else return static_cast<N>(static_cast<uint64_t>(old) * static_cast<uint64_t>(update));
    case Reduction::max: return std::max(old, update);
    case Reduction::min: return std::min(old, update);
    case Reduction::none: return update;
  }
  return update;
}

/// out[to + i] = reduction(out[to + i], updates[from + i]) for i in [0, count); several updates of one element apply
/// in order, each rounded to the dtype.
void scatter_run(Reduction reduction, const TensorView& updates, int64_t from, const TensorView& out, int64_t to,
                 int64_t count) {
  if (reduction == Reduction::none) return copy_elements(updates, from, out, to, count);
  with_number(out.dtype, [&]<class N>(N) {
    for (int64_t i = 0; i < count; ++i)
      store_one(out, to + i, combine(reduction, load_one<N>(out, to + i), load_one<N>(updates, from + i)));
  });
}

void copy_data(const KernelCall& call) {
  const TensorView &data = call.inputs[0], &out = call.outputs[0];
  if (data.data != out.data) copy_elements(data, 0, out, 0, data.elements());
}

/// ScatterElements: data, indices, updates (shaped as indices); out[i, indices[i, j, k], k] = updates[i, j, k].
KernelStatus scatter_elements(const KernelCall& call, const ScatterAttributes& attributes) {
  const TensorView &indices = call.inputs[1], &updates = call.inputs[2], &out = call.outputs[0];
  int axis = positive_axis(attributes.axis, out.shape.rank());
  if (axis < 0 || axis >= out.shape.rank() || indices.shape.rank() != out.shape.rank())
    return {KernelCode::bad_value, 1, indices.shape.rank()};
  for (int i = 0; i < out.shape.rank(); ++i)
    if (i != axis && indices.shape[i] > out.shape[i]) return {KernelCode::bad_value, 1, indices.shape[i]};
  if (updates.elements() != indices.elements()) return {KernelCode::bad_value, 2, updates.elements()};
  Shape strides = strides_of(out.shape);
  int64_t pitch = strides[axis], size = out.shape[axis];
  strides[axis] = 0;
  std::vector<int64_t> base = offsets_of(indices.shape, strides), wanted = to_ints(indices);
  copy_data(call);
  StopCheck stop;
  for (size_t i = 0; i < wanted.size(); ++i) {
    stop.count();
    int64_t index = wanted[i] < 0 ? wanted[i] + size : wanted[i];
    if (index < 0 || index >= size) return {KernelCode::index_out_of_range, 1, wanted[i]};
    scatter_run(attributes.reduction, updates, static_cast<int64_t>(i), out, base[i] + index * pitch, 1);
  }
  return {};
}

/// ScatterND: data [d..., inner], indices [n..., k], updates [n..., inner].
KernelStatus scatter_nd(const KernelCall& call, const ScatterAttributes& attributes) {
  const TensorView &indices = call.inputs[1], &updates = call.inputs[2], &out = call.outputs[0];
  if (indices.shape.rank() < 1 || indices.shape.back(1) > out.shape.rank())
    return {KernelCode::bad_value, 1, indices.shape.rank()};
  int64_t k = indices.shape.back(1), tuples = indices.shape.elements(0, indices.shape.rank() - 1);
  int64_t inner = out.shape.elements(static_cast<int>(k), out.shape.rank());
  if (updates.elements() != tuples * inner) return {KernelCode::bad_value, 2, updates.elements()};
  std::vector<int64_t> wanted = to_ints(indices);
  copy_data(call);
  StopCheck stop;
  for (int64_t t = 0; t < tuples; ++t) {
    stop.count(k + inner);
    int64_t offset = 0;
    for (int64_t i = 0; i < k; ++i) {
      int64_t size = out.shape[static_cast<int>(i)], raw = wanted[static_cast<size_t>(t * k + i)];
      int64_t index = raw < 0 ? raw + size : raw;
      if (index < 0 || index >= size) return {KernelCode::index_out_of_range, 1, raw};
      offset = offset * size + index;
    }
    scatter_run(attributes.reduction, updates, t * inner, out, offset * inner, inner);
  }
  return {};
}

struct TensorScatterAttributes {
  explicit TensorScatterAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", -2)), circular(node.attributes.string("mode", "linear") == "circular") {}
  int64_t axis;
  bool circular;
};

/// TensorScatter-24: cache [b, outer, n, inner], update [b, outer, m, inner], write_indices? i64 [b] (default 0):
/// writes the update's positions to write_indices[b] + 0 .. m - 1 of axis n, modulo n in circular mode.
KernelStatus tensor_scatter(const KernelCall& call, const TensorScatterAttributes& attributes) {
  const TensorView &update = call.inputs[1], &out = call.outputs[0];
  int axis = positive_axis(attributes.axis, out.shape.rank());
  if (axis < 1 || axis >= out.shape.rank() || update.shape.rank() != out.shape.rank())
    return {KernelCode::bad_value, 1, update.shape.rank()};
  for (int i = 0; i < out.shape.rank(); ++i)
    if (i != axis && update.shape[i] != out.shape[i]) return {KernelCode::bad_value, 1, update.shape[i]};
  if (input(call, 2).present() && call.inputs[2].elements() != out.shape[0])
    return {KernelCode::bad_value, 2, call.inputs[2].elements()};
  int64_t size = out.shape[axis], length = update.shape[axis], batches = out.shape[0];
  int64_t inner = out.shape.elements(axis + 1, out.shape.rank()), outer = out.shape.elements(1, axis);
  std::vector<int64_t> starts(static_cast<size_t>(batches), 0);
  if (input(call, 2).present()) starts = to_ints(call.inputs[2]);
  copy_data(call);
  for (int64_t& start : starts) {
    if (attributes.circular && start >= 0 && size) start %= size;
    if (start < 0 || start > size) return {KernelCode::index_out_of_range, 2, start};
  }
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < length; ++i) {
        int64_t at = starts[static_cast<size_t>(b)] + i;
        if (attributes.circular && size) at %= size;
        if (at < 0 || at >= size) return {KernelCode::index_out_of_range, 2, at};
        copy_elements(update, ((b * outer + o) * length + i) * inner, out, ((b * outer + o) * size + at) * inner,
                      inner);
      }
  return {};
}

}  // namespace

void add_scatter(KernelTable& table) {
  add<scatter_elements>(table, "ScatterElements", anything, 0);
  add<scatter_nd>(table, "ScatterND", anything, 0);
  add<tensor_scatter>(table, "TensorScatter", anything, 0);
}

}  // namespace plait::reference
