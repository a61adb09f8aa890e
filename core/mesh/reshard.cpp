// Resharding: the steps between two shardings, and their cost.
#include <algorithm>

#include "core/base/error.h"
#include "core/mesh/sharding.h"

namespace plait {
namespace {

bool contains(const AxisList& list, AxisId axis) { return std::find(list.begin(), list.end(), axis) != list.end(); }

/// The length of the common prefix of two lists.
size_t common(const AxisList& a, const AxisList& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

AxisList part(const AxisList& list, size_t begin, size_t end) {
  return {list.begin() + static_cast<std::ptrdiff_t>(begin), list.begin() + static_cast<std::ptrdiff_t>(end)};
}

class Resharding {
 public:
  Resharding(Sharding from, const Sharding& to) : now_(std::move(from)), to_(to) {}

  std::vector<Collective> run() {
    scatter_sums();
    reduce_rest();
    while (now_.dims != to_.dims) {
      const size_t before = steps_.size();
      slice();
      exchange();
      if (steps_.size() == before || !reachable()) gather();
      PLAIT_ASSERT(steps_.size() > before);
    }
    PLAIT_ASSERT(now_ == to_);
    return std::move(steps_);
  }

 private:
  using Kind = CollectiveKind;

  void take(Collective step) {
    now_ = after(step, std::move(now_));
    steps_.push_back(std::move(step));
  }

  /// The axes that dim `d` still lacks, if its current axes are a prefix of the target's.
  AxisList lacking(size_t d) const {
    const AxisList &now = now_.dims[d], &to = to_.dims[d];
    return common(now, to) == now.size() ? part(to, now.size(), to.size()) : AxisList{};
  }

  void scatter_sums() {
    for (size_t d = 0; d < now_.dims.size(); ++d) {
      AxisList run;
      for (AxisId axis : lacking(d)) {
        auto owed = std::find(now_.pending.begin(), now_.pending.end(), Pending{axis, PendingKind::sum});
        if (owed == now_.pending.end() || to_.owes(axis)) break;
        run.push_back(axis);
      }
      if (!run.empty()) take({Kind::reduce_scatter, run, PendingKind::sum, static_cast<int32_t>(d)});
    }
  }

  void reduce_rest() {
    for (PendingKind kind : {PendingKind::sum, PendingKind::max, PendingKind::min, PendingKind::equal}) {
      AxisList owed;
      for (const Pending& one : now_.pending)
        if (one.kind == kind && !to_.owes(one.axis)) owed.push_back(one.axis);
      if (!owed.empty()) take({Kind::all_reduce, owed, kind});
    }
  }

  void slice() {
    const AxisList used = now_.axes();
    for (size_t d = 0; d < now_.dims.size(); ++d) {
      AxisList run = lacking(d);
      auto taken = std::find_if(run.begin(), run.end(), [&](AxisId axis) { return contains(used, axis); });
      run.erase(taken, run.end());
      if (!run.empty()) take({Kind::shard, run, PendingKind::sum, static_cast<int32_t>(d)});
    }
  }

  /// The longest suffix of a dim's list that another dim lacks next.
  void exchange() {
    for (size_t d = 0; d < now_.dims.size(); ++d)
      for (size_t e = 0; e < now_.dims.size(); ++e) {
        const size_t kept = common(now_.dims[d], to_.dims[d]);
        const AxisList next = lacking(e);
        for (size_t begin = kept; d != e && begin < now_.dims[d].size(); ++begin) {
          const AxisList end = part(now_.dims[d], begin, now_.dims[d].size());
          if (common(end, next) != end.size()) continue;
          take({Kind::all_to_all, end, PendingKind::sum, static_cast<int32_t>(d), static_cast<int32_t>(e)});
          break;
        }
      }
  }

  /// Whether another slice or exchange is possible next.
  bool reachable() const {
    const AxisList used = now_.axes();
    for (size_t d = 0; d < now_.dims.size(); ++d)
      if (AxisList run = lacking(d); !run.empty() && !contains(used, run[0])) return true;
    return false;
  }

  /// All axes that one dim must give up.
  void gather() {
    for (size_t d = 0; d < now_.dims.size(); ++d) {
      const size_t kept = common(now_.dims[d], to_.dims[d]);
      if (kept == now_.dims[d].size()) continue;
      take({Kind::all_gather, part(now_.dims[d], kept, now_.dims[d].size()), PendingKind::sum,
            static_cast<int32_t>(d)});
      return;
    }
  }

  Sharding now_;
  const Sharding& to_;
  std::vector<Collective> steps_;
};

}  // namespace

std::vector<Collective> reshard(const Sharding& from, const Sharding& to) {
  PLAIT_ASSERT(from.dims.size() == to.dims.size());
  return Resharding(from, to).run();
}

Sharding after(const Collective& step, Sharding sharding) {
  auto dim = [&](int32_t index) -> AxisList& { return sharding.dims[static_cast<size_t>(index)]; };
  auto cut = [&](AxisList& list) { list.insert(list.end(), step.axes.begin(), step.axes.end()); };
  auto join = [&](AxisList& list) { list.resize(list.size() - step.axes.size()); };
  auto pay = [&] {
    std::erase_if(sharding.pending, [&](const Pending& one) { return contains(step.axes, one.axis); });
  };
  switch (step.kind) {
    case CollectiveKind::reduce_scatter: cut(dim(step.dim)), pay(); break;
    case CollectiveKind::all_reduce: pay(); break;
    case CollectiveKind::shard: cut(dim(step.dim)); break;
    case CollectiveKind::all_to_all: join(dim(step.dim)), cut(dim(step.to_dim)); break;
    case CollectiveKind::all_gather: join(dim(step.dim)); break;
  }
  return sharding;
}

double moved_bytes(const Collective& step, double local_bytes, const Mesh& mesh) {
  const auto n = static_cast<double>(mesh.blocks(step.axes));
  switch (step.kind) {
    case CollectiveKind::all_reduce: return 2 * (n - 1) / n * local_bytes;
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all: return (n - 1) / n * local_bytes;
    case CollectiveKind::all_gather: return (n - 1) * local_bytes;
    case CollectiveKind::shard: return 0;
  }
  return 0;
}

double moved_bytes(const Sharding& from, const Sharding& to, double bytes, const Mesh& mesh) {
  if (from == to) return 0;
  double out = 0;
  Sharding now = from;
  for (const Collective& step : reshard(from, to)) {
    out += moved_bytes(step, bytes / static_cast<double>(mesh.blocks(now.axes())), mesh);
    now = after(step, std::move(now));
  }
  return out;
}

}  // namespace plait
