// Parts of the gradients of products with weights, and of gathered rows (core/ops/training.cpp).
#include <algorithm>
#include <vector>

#include "core/base/counter_random.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/weights.h"

namespace plait::reference {
namespace {

struct BackAttributes {
  explicit BackAttributes(const NodeInfo& node)
      : zero(node.attributes.integer("zero", 0)),
        axis(node.attributes.integer("axis", 0)),
        shard(ShardedAxis::of(node.attributes)) {}
  int64_t zero, axis;
  ShardedAxis shard;
};

/// dy [..., n], w [n, k] or in blocks, scales?, zeros? -> dy w [..., k].
KernelStatus linear_back(const KernelCall& call, const BackAttributes& attributes) {
  const TensorView &dy = call.inputs[0], &w = call.inputs[1], &dx = call.outputs[0];
  const int64_t n = w.shape[0], k = dx.shape.back(1), m = dy.shape.elements(0, dy.shape.rank() - 1);
  const Weights rows{w, input(call, 2), input(call, 3), attributes.zero};
  if (!rows.fits(k) || dy.shape.back(1) != n) return {KernelCode::bad_value, 1, k};
  return with_precision(dy.dtype, [&]<class N>(N) -> KernelStatus {
    std::vector<N> all(static_cast<size_t>(n * k)), buffer, out(static_cast<size_t>(m * k));
    for (int64_t j = 0; j < n; ++j) std::copy_n(rows.row(j, k, buffer), k, all.data() + j * k);
    multiply(m, k, n, Loaded<N>(dy).data(), all.data(), out.data(), call.pool);
    store_all(dx, out);
    return {};
  });
}

struct DropoutAttributes {
  explicit DropoutAttributes(const NodeInfo& node)
      : dropout(node.attributes.real("rate", 0), static_cast<uint64_t>(node.attributes.integer("module", 0))),
        shard(ShardedAxis::of(node.attributes)) {}
  Dropout dropout;
  ShardedAxis shard;
};

/// x [..., k], keys [...] -> x with some of its features dropped [..., k].
KernelStatus dropout(const KernelCall& call, const DropoutAttributes& attributes) {
  const std::vector<int64_t> keys = to_ints(call.inputs[1]);
  const int64_t k = call.inputs[0].shape.back(1);
  return with_precision(call.inputs[0].dtype, [&]<class N>(N) -> KernelStatus {
    std::vector<N> values = load_all<N>(call.inputs[0]);
    N* row = values.data();
    for (const int64_t key : keys) {
      attributes.dropout.apply(row, key, attributes.shard.offset, k, row);
      row += k;
    }
    store_all(call.outputs[0], values);
    return {};
  });
}

/// dy [..., n], x [..., k] -> dy^T x [n, k], summed over all rows.
KernelStatus linear_weight(const KernelCall& call) {
  const TensorView &dy = call.inputs[0], &x = call.inputs[1], &dw = call.outputs[0];
  const int64_t n = dw.shape[0], k = dw.shape[1], m = dy.shape.elements(0, dy.shape.rank() - 1);
  return with_precision(dy.dtype, [&]<class N>(N) -> KernelStatus {
    const Loaded<N> from(dy);
    std::vector<N> across(static_cast<size_t>(n * m)), out(static_cast<size_t>(n * k));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) across[static_cast<size_t>(j * m + i)] = from[i * n + j];
    multiply(n, k, m, across.data(), Loaded<N>(x).data(), out.data(), call.pool);
    store_all(dw, out);
    return {};
  });
}

/// Adds `count` elements of `from` at `begin` to `sums` at `at`.
void add_row(const TensorView& from, int64_t begin, int64_t count, std::vector<double>& sums, int64_t at,
             std::vector<double>& row) {
  row.resize(static_cast<size_t>(count));
  load(from, begin, count, row.data());
  for (int64_t j = 0; j < count; ++j) sums[static_cast<size_t>(at + j)] += row[static_cast<size_t>(j)];
}

/// dy [..., h], ids [...], sizes [2] -> [v, h]: rows of dy summed by id; those of other ranks' rows are skipped.
KernelStatus embedding_back(const KernelCall& call, const BackAttributes& attributes) {
  const TensorView &dy = call.inputs[0], &out = call.outputs[0];
  const std::vector<int64_t> ids = to_ints(call.inputs[1]);
  const int64_t v = out.shape[0], h = out.shape[1];
  std::vector<double> sums(static_cast<size_t>(v * h)), row;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!attributes.shard.contains(ids[i], v)) return {KernelCode::index_out_of_range, 1, ids[i]};
    if (const int64_t place = attributes.shard.place(ids[i], v); place >= 0)
      add_row(dy, static_cast<int64_t>(i) * h, h, sums, place * h, row);
  }
  store_all(out, sums);
  return {};
}

/// dy [b, n, ...], rows [b, n], sizes -> [b, s, ...]: rows of dy summed where plait.GatherRows read them.
KernelStatus rows_back(const KernelCall& call) {
  const TensorView &dy = call.inputs[0], &out = call.outputs[0];
  const std::vector<int64_t> rows = to_ints(call.inputs[1]);
  const int64_t n = dy.shape[1], s = out.shape[1], inner = out.shape.elements(2, out.shape.rank());
  std::vector<double> sums(static_cast<size_t>(out.elements())), row;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0 || rows[i] >= s) return {KernelCode::index_out_of_range, 1, rows[i]};
    const auto at = static_cast<int64_t>(i);
    add_row(dy, at * inner, inner, sums, (at / n * s + rows[i]) * inner, row);
  }
  store_all(out, sums);
  return {};
}

/// dy [a..., i..., c...], indices [i...], sizes -> [a..., n, c...]: parts of dy summed where Gather read them along
/// `axis`; a negative index counts from the end.
KernelStatus gather_back(const KernelCall& call, const BackAttributes& attributes) {
  const TensorView &dy = call.inputs[0], &out = call.outputs[0];
  const std::vector<int64_t> indices = to_ints(call.inputs[1]);
  const int axis = positive_axis(attributes.axis, out.shape.rank());
  const int64_t outer = out.shape.elements(0, axis), held = out.shape[axis],
                inner = out.shape.elements(axis + 1, out.shape.rank());
  const int64_t n = attributes.shard.whole ? attributes.shard.whole : held;
  std::vector<double> sums(static_cast<size_t>(out.elements())), row;
  const auto count = static_cast<int64_t>(indices.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t given = indices[static_cast<size_t>(i)], index = given < 0 ? given + n : given;
    if (!attributes.shard.contains(index, held)) return {KernelCode::index_out_of_range, 1, given};
    const int64_t place = attributes.shard.place(index, held);
    for (int64_t a = 0; a < outer && place >= 0; ++a)
      add_row(dy, (a * count + i) * inner, inner, sums, (a * held + place) * inner, row);
  }
  store_all(out, sums);
  return {};
}

}  // namespace

void add_training(KernelTable& table) {
  add<linear_back>(table, "plait.LinearBack", floats);
  add<linear_weight>(table, "plait.LinearWeight", floats);
  add<dropout>(table, "plait.Dropout", floats, 0);
  add<embedding_back>(table, "plait.EmbeddingBack", floats);
  add<rows_back>(table, "plait.RowsBack", floats);
  add<gather_back>(table, "plait.GatherBack", floats);
}

}  // namespace plait::reference
