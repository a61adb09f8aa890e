#pragma once
// A mesh in one thread: tensors cut into the shards of all ranks, collectives done on them, and put together again.
#include <vector>

#include "core/mesh/sharding.h"
#include "kernels/reference/base/numbers.h"
#include "tests/unit/support/kernel_test.h"

namespace plait::test {

/// One tensor a rank.
using Shards = std::vector<Tensor>;

/// Calls visit(block index in `shard`, index in the whole) for each row of the last dim of the block that a rank holds.
template <class Visit>
void each_row(const Shape& whole, const Sharding& sharding, const Mesh& mesh, int64_t rank, Visit visit) {
  Shape local = whole, start = whole;
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const AxisList& cut = sharding.dims[static_cast<size_t>(axis)];
    local[axis] = whole[axis] / mesh.blocks(cut);
    start[axis] = local[axis] * mesh.block(rank, cut);
  }
  const int64_t width = whole.rank() ? local.back(1) : 1;
  for (int64_t row = 0; row < (width ? local.elements() / width : 0); ++row) {
    int64_t rest = row, at = whole.rank() ? start.back(1) : 0, stride = whole.rank() ? whole.back(1) : 1;
    for (int axis = whole.rank() - 2; axis >= 0; --axis) {
      at += (start[axis] + rest % local[axis]) * stride;
      rest /= local[axis];
      stride *= whole[axis];
    }
    visit(row * width, at, width);
  }
}

inline Shape local_shape(const Shape& whole, const Sharding& sharding, const Mesh& mesh) {
  Shape out = whole;
  for (int axis = 0; axis < whole.rank(); ++axis) out[axis] /= mesh.blocks(sharding.dims[static_cast<size_t>(axis)]);
  return out;
}

inline Tensor block_of(const Tensor& whole, const Sharding& sharding, const Mesh& mesh, int64_t rank) {
  Tensor out(whole.dtype(), local_shape(whole.shape(), sharding, mesh));
  each_row(whole.shape(), sharding, mesh, rank, [&](int64_t to, int64_t from, int64_t count) {
    reference::copy_elements(whole.view(), from, out.view(), to, count);
  });
  return out;
}

inline Shards cut(const Tensor& whole, const Sharding& sharding, const Mesh& mesh) {
  Shards out;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) out.push_back(block_of(whole, sharding, mesh, rank));
  return out;
}

inline double combined(PendingKind kind, double a, double b) {
  if (kind == PendingKind::max) return std::max(a, b);
  if (kind == PendingKind::min) return std::min(a, b);
  return a + b;
}

/// What the ranks of `rank`'s group along `axes` have, element by element combined.
inline Tensor reduced(const Shards& shards, const Mesh& mesh, int64_t rank, std::span<const AxisId> axes,
                      PendingKind kind) {
  const std::vector<int64_t> group = mesh.group(rank, axes);
  Tensor out(shards[static_cast<size_t>(group[0])].dtype(), shards[static_cast<size_t>(group[0])].shape());
  for (int64_t i = 0; i < out.elements(); ++i) {
    double value = element(shards[static_cast<size_t>(group[0])], i);
    for (size_t k = 1; k < group.size(); ++k)
      value = combined(kind, value, element(shards[static_cast<size_t>(group[k])], i));
    set_element(out, i, value);
  }
  return out;
}

/// The whole tensor, and whether all ranks that should hold the same do: `differs(a, b)` compares elements.
template <class Differs>
Tensor assemble(Shards shards, Sharding sharding, const Mesh& mesh, const Shape& whole, Differs differs) {
  while (!sharding.pending.empty()) {
    const Pending owed = sharding.pending.back();
    sharding.pending.pop_back();
    Shards paid;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank)
      paid.push_back(reduced(shards, mesh, rank, {&owed.axis, 1}, owed.kind));
    shards = std::move(paid);
  }
  Tensor out(shards[0].dtype(), whole);
  std::vector<bool> known(static_cast<size_t>(whole.elements()));
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const Tensor& shard = shards[static_cast<size_t>(rank)];
    EXPECT_EQ(shard.shape(), local_shape(whole, sharding, mesh)) << "rank " << rank;
    if (shard.shape() != local_shape(whole, sharding, mesh)) return out;
    each_row(whole, sharding, mesh, rank, [&](int64_t from, int64_t to, int64_t count) {
      for (int64_t i = 0; i < count; ++i) {
        if (known[static_cast<size_t>(to + i)]) {
          EXPECT_FALSE(differs(element(shard, from + i), element(out, to + i))) << "rank " << rank << " differs";
        }
        known[static_cast<size_t>(to + i)] = true;
        reference::copy_elements(shard.view(), from + i, out.view(), to + i, 1);
      }
    });
  }
  return out;
}

/// One step, done by its definition: groups put their blocks together, and each rank takes its own.
inline Shards perform(const Collective& step, const Shards& shards, const Mesh& mesh) {
  using Kind = CollectiveKind;
  Shards out;
  const bool reduces = step.kind == Kind::all_reduce || step.kind == Kind::reduce_scatter;
  const bool joins = step.kind == Kind::all_gather || step.kind == Kind::all_to_all;
  const int cut_dim = step.kind == Kind::all_to_all ? step.to_dim : step.dim;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    Tensor mine = shards[static_cast<size_t>(rank)];
    if (reduces) mine = reduced(shards, mesh, rank, step.axes, step.reduction);
    if (joins) {
      Shape shape = mine.shape();
      shape[step.dim] *= mesh.blocks(step.axes);
      const Sharding parts =
          Sharding::cut(static_cast<size_t>(shape.rank()), static_cast<size_t>(step.dim), step.axes);
      Tensor joined(mine.dtype(), shape);
      for (int64_t other : mesh.group(rank, step.axes))
        each_row(shape, parts, mesh, other, [&](int64_t from, int64_t to, int64_t count) {
          reference::copy_elements(shards[static_cast<size_t>(other)].view(), from, joined.view(), to, count);
        });
      mine = joined;
    }
    if (step.kind != Kind::all_reduce && step.kind != Kind::all_gather) {
      const auto dims = static_cast<size_t>(mine.shape().rank());
      mine = block_of(mine, Sharding::cut(dims, static_cast<size_t>(cut_dim), step.axes), mesh, rank);
    }
    out.push_back(std::move(mine));
  }
  return out;
}

}  // namespace plait::test
