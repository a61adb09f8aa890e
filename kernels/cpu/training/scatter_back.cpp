// Gradients of gathered rows, which are accumulated at their source: plait.EmbeddingBack, plait.RowsBack,
// plait.GatherBack.
#include <cstring>

#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/rows/indices.h"
#include "kernels/cpu/training/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

struct ScatterState : KernelState {
  int64_t axis = 0;
  ShardedAxis shard;
};

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<ScatterState>();
  state->axis = node.attributes.integer("axis", 0);
  state->shard = ShardedAxis::of(node.attributes);
  return state;
}

bool accepts(const NodeInfo& node) { return node.inputs[0].dtype == DType::f32 && is_index(node.inputs[1].dtype); }

/// dy [outer, count, inner] and, for each (outer, count), an index on the result's axis.
struct Scatter {
  int64_t outer, count, held, inner;
  bool repeated;      ///< one list of `count` indices for all of outer, or one for each
  int64_t wrapped;    ///< added to a negative index
  ShardedAxis shard;  ///< of the result's axis

  int64_t place(const TensorView& indices, int64_t a, int64_t i) const {
    const int64_t index = read_index(indices, repeated ? i : a * count + i);
    return shard.place(index < 0 ? index + wrapped : index, held);
  }
};

/// Zeros, then rows: an element's terms are added in the order of the indices, by any thread.
template <Isa isa>
KernelStatus scatter(const KernelCall& call, const Scatter& of) {
  const TensorView& indices = call.inputs[1];
  for (int64_t i = 0, n = indices.elements(); i < n; ++i) {
    const int64_t given = read_index(indices, i);
    if (!of.shard.contains(given < 0 ? given + of.wrapped : given, of.held))
      return {KernelCode::index_out_of_range, 1, given};
  }
  const float* dy = call.inputs[0].as<float>();
  float* dx = call.outputs[0].as<float>();
  share_ranges(call.pool, call.outputs[0].elements(), 1024, 1, [&](int64_t begin, int64_t end, int) {
    std::memset(dx + begin, 0, static_cast<size_t>(4 * (end - begin)));
  });
  const auto add = elementwise_loops(isa).binary[static_cast<int>(Binary::add)];
  // Ranges of the columns of all outer parts; they do not overlap.
  share_ranges(call.pool, of.outer * of.inner, 16, of.count, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end;) {
      const int64_t a = at / of.inner, column = at % of.inner, n = std::min(of.inner - column, end - at);
      for (int64_t i = 0; i < of.count; ++i) {
        const int64_t place = of.place(indices, a, i);
        if (place < 0) continue;
        float* to = dx + (a * of.held + place) * of.inner + column;
        add(to, 1, dy + (a * of.count + i) * of.inner + column, 1, to, n);
      }
      at += n;
    }
  });
  return {};
}

/// dy [..., h], ids [...] -> [v, h]; ids of another rank's rows are skipped.
template <Isa isa>
KernelStatus run_embedding_back(const KernelCall& call) {
  const Shape& table = call.outputs[0].shape;
  return scatter<isa>(call, {1, call.inputs[1].elements(), table[0], table[1], true, 0,
                             static_cast<const ScatterState*>(call.state)->shard});
}

/// dy [b, n, ...], rows [b, n] -> [b, s, ...].
template <Isa isa>
KernelStatus run_rows_back(const KernelCall& call) {
  const Shape &dy = call.inputs[0].shape, &dx = call.outputs[0].shape;
  return scatter<isa>(call, {dy[0], dy[1], dx[1], dx.elements(2, dx.rank()), false, 0, {}});
}

/// dy [a..., i..., c...], indices [i...] -> [a..., n, c...]; a negative index counts from the end.
template <Isa isa>
KernelStatus run_gather_back(const KernelCall& call) {
  const auto& state = *static_cast<const ScatterState*>(call.state);
  const Shape& dx = call.outputs[0].shape;
  const int axis = static_cast<int>(state.axis < 0 ? state.axis + dx.rank() : state.axis);
  const int64_t whole = state.shard.whole ? state.shard.whole : dx[axis];
  return scatter<isa>(call, {dx.elements(0, axis), call.inputs[1].elements(), dx[axis],
                             dx.elements(axis + 1, dx.rank()), true, whole, state.shard});
}

template <Isa isa>
void add_for(KernelTable& table) {
  auto add = [&](const char* op, KernelStatus (*run)(const KernelCall&)) {
    add_kernel(table, isa, {.op = op, .dtypes = "f32", .accepts = accepts, .prepare = prepare, .run = run});
  };
  add("plait.EmbeddingBack", run_embedding_back<isa>);
  add("plait.RowsBack", run_rows_back<isa>);
  add("plait.GatherBack", run_gather_back<isa>);
}

}  // namespace

void add_scatter_back(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
