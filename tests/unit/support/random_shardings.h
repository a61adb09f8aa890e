#pragma once
// Shardings of all kinds, and shards that owe: for tests of the ways between them.
#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "tests/unit/support/sharded.h"

namespace plait::test {

/// Random shardings of a tensor whose dims divide by whatever the mesh has.
struct RandomShardings {
  const Mesh& mesh;
  std::mt19937 random;

  Sharding operator()(size_t rank) {
    Sharding out = Sharding::replicated(rank);
    std::vector<AxisId> axes;
    for (AxisId axis = 0; axis < mesh.sub_axes(); ++axis) axes.push_back(axis);
    std::shuffle(axes.begin(), axes.end(), random);
    for (AxisId axis : axes) {
      const size_t place = random() % (rank + 2);
      if (place < rank) out.dims[place].push_back(axis);
      else if (place == rank)
        out.pending.push_back({axis, std::array{PendingKind::sum, PendingKind::max, PendingKind::min}[random() % 3]});
    }
    std::sort(out.pending.begin(), out.pending.end(),
              [](const Pending& a, const Pending& b) { return a.axis < b.axis; });
    // One kind a value: what several kinds mean together depends on their order, and no op leaves them so.
    for (Pending& one : out.pending) one.kind = out.pending[0].kind;
    return out;
  }
  /// One that `from` leads to: what it owes, that owes.
  Sharding after(const Sharding& from) {
    Sharding to = (*this)(from.dims.size());
    std::erase_if(to.pending, [&](const Pending& one) {
      return std::find(from.pending.begin(), from.pending.end(), one) == from.pending.end();
    });
    return to;
  }
};

/// Shards that owe: parts that give the whole when they are combined.
inline Shards owing(const Tensor& whole, const Sharding& sharding, const Mesh& mesh, std::mt19937& random) {
  Shards out = cut(whole, sharding, mesh);
  AxisList owed;
  for (const Pending& one : sharding.pending) owed.push_back(one.axis);
  if (owed.empty()) return out;
  const PendingKind kind = sharding.pending[0].kind;
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    const std::vector<int64_t> group = mesh.group(rank, owed);
    if (group[0] != rank) continue;
    for (int64_t i = 0; i < out[static_cast<size_t>(rank)].elements(); ++i) {
      double rest = element(out[static_cast<size_t>(rank)], i);
      const size_t last = random() % group.size();
      for (size_t k = 0; k < group.size(); ++k) {
        if (k == last) continue;
        const auto part = static_cast<double>(random() % 100);
        const Tensor& shard = out[static_cast<size_t>(group[k])];
        if (kind == PendingKind::sum) set_element(shard, i, part), rest -= part;
        if (kind == PendingKind::max) set_element(shard, i, rest - part);
        if (kind == PendingKind::min) set_element(shard, i, rest + part);
      }
      set_element(out[static_cast<size_t>(group[last])], i, rest);
    }
  }
  return out;
}

}  // namespace plait::test
