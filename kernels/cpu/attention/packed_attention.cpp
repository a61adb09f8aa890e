// plait.PackedAttention and its gradient.
#include "kernels/cpu/attention/packed_attention.h"
#include "kernels/cpu/attention/register.h"

namespace plait::cpu {
namespace {

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<AttentionState>();
  state->scale = static_cast<float>(node.attributes.real("scale", 1));
  state->softcap = static_cast<float>(node.attributes.real("softcap", 0));
  state->window = node.attributes.integer("window", 0);
  return state;
}

template <Isa isa>
bool is_wanted(const NodeInfo& node) {
  return !rounds_x(isa) || node.attributes.integer("round_x", 0) == 1;
}
template <Isa isa>
bool accepts_forward(const NodeInfo& node) {
  if (!is_wanted<isa>(node)) return false;
  for (size_t i : {0, 1, 2, 4, 5})
    if (!is_f32_or_absent(node, i)) return false;
  return node.inputs[3].dtype == DType::i32;
}
template <Isa isa>
bool accepts_back(const NodeInfo& node) {
  if (!is_wanted<isa>(node)) return false;
  for (size_t i : {0, 1, 2, 3, 4, 5, 7, 8})
    if (!is_f32_or_absent(node, i)) return false;
  return node.inputs[6].dtype == DType::i32;
}

template <Isa isa>
int64_t forward_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                        int threads) {
  const AttentionOperands all(state, inputs, 0, 3);
  return AttentionPlan::bytes(all, threads) + threads * AttentionWorkspace(gemm_tiles(isa), all, false).bytes();
}

template <Isa isa>
KernelStatus run_forward(const KernelCall& call) {
  const AttentionOperands all(call.state, call.inputs, 0, 3);
  if (!all.fits()) return {KernelCode::bad_value, 1, all.g};
  float* y = call.outputs[0].as<float>();
  const bool wanted = call.outputs.size() > 1 && call.outputs[1].present();
  float* statistics = wanted ? call.outputs[1].as<float>() : nullptr;
  for (int64_t i = 0; i < all.b * all.t; ++i)
    if (all.segments[i] < 0) {
      std::memset(y + i * all.h * all.e, 0, static_cast<size_t>(4 * all.h * all.e));
      if (statistics) std::memset(statistics + i * all.h, 0, static_cast<size_t>(4 * all.h));
    }
  const AttentionWorkspace workspace(gemm_tiles(isa), all, false);
  each_head<isa>(call, all, workspace, [&](const HeadWorker<isa>& worker, int64_t, bool repacks) {
    const GemmTiles& tiles = worker.tiles;
    if (repacks)
      worker.each_keys([&](int64_t index, int64_t key, int64_t count) {
        tiles.pack_right(worker.right_keys(key, true), count, all.d,
                         worker.transposed_keys + index * workspace.transposed_keys);
        tiles.pack_right(worker.right_values(key, false), all.e, count, worker.values + index * workspace.values);
      });
    worker.each_block([&](const QueryBlock& block) {
      const int64_t head = worker.head, at = (worker.segment.row * all.t + block.begin) * all.h + head;
      worker.pack_left({all.q + at * all.d, all.h * all.d, false}, block.rows, all.d, worker.query);
      worker.score(block, worker.query, worker.transposed_keys, workspace.transposed_keys, all.d, worker.scores);
      for (int64_t i = 0; i < block.rows; ++i) {
        const int64_t first = block.first(i, all.state.window), count = block.last(i) - first;
        float *row = worker.scores + i * workspace.stride, *seen = row + first;
        finish_scores<isa>(all, head, seen, count);
        float most = all.sinks ? all.sinks[head] : -HUGE_VALF, sum = all.sinks ? 1 : 0;
        loss_loops(loops_of(isa)).weigh(seen, count, {}, most, sum);
        const float share = 1 / sum;
        worker.loops.binary[static_cast<int>(Binary::mul)](seen, 1, &share, 0, seen, count);
        worker.clear_unseen(block, i, row);
        if (statistics) statistics[at + i * all.h] = most + std::log(sum);
      }
      worker.weigh(block, worker.scores, worker.values, workspace.values, all.e, y + at * all.e, all.h * all.e);
    });
  });
  return {};
}

/// Gradients of keys and values by query head, where several share them; and of sinks, by segment and head.
struct BackWorkspace {
  explicit BackWorkspace(const AttentionOperands& all)
      : dk(all.r() > 1 ? align(4 * all.b * all.t * all.h * all.d) : 0),
        dv(all.r() > 1 ? align(4 * all.b * all.t * all.h * all.e) : 0),
        sinks(all.sinks ? align(4 * all.b * all.t * all.h) : 0) {}
  int64_t bytes() const { return dk + dv + sinks; }
  int64_t dk, dv, sinks;
};

template <Isa isa>
int64_t back_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                     int threads) {
  const AttentionOperands all(state, inputs, 1, 6);
  if (!all.fits()) return 0;
  return AttentionPlan::bytes(all, threads) + threads * AttentionWorkspace(gemm_tiles(isa), all, true).bytes() +
         BackWorkspace(all).bytes();
}

/// to [.., g, width] = the sums over r of from [.., g, r, width].
void sum_heads(ThreadPool& pool, const ElementwiseLoops& loops, const float* from, int64_t rows, int64_t r,
               int64_t width, float* to) {
  share_ranges(pool, rows, 1, r * width, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      std::memcpy(to + i * width, from + i * r * width, static_cast<size_t>(4 * width));
      for (int64_t head = 1; head < r; ++head)
        loops.binary[static_cast<int>(Binary::add)](to + i * width, 1, from + (i * r + head) * width, 1,
                                                    to + i * width, width);
    }
  });
}

/// dy, q, k, v, y, statistics, segments, sinks?, slopes? -> dq?, dk?, dv?, dsinks?. As FlashAttention 2 (Dao 2023).
template <Isa isa>
KernelStatus run_back(const KernelCall& call) {
  const AttentionOperands all(call.state, call.inputs, 1, 6);
  if (!all.fits()) return {KernelCode::bad_value, 2, all.g};
  const float *dy = call.inputs[0].as<float>(), *y = call.inputs[4].as<float>(),
              *statistics = call.inputs[5].as<float>();
  auto result = [&](size_t k) -> float* {
    if (k >= call.outputs.size() || !call.outputs[k].present()) return nullptr;
    std::memset(call.outputs[k].data, 0, static_cast<size_t>(call.outputs[k].bytes()));
    return call.outputs[k].as<float>();
  };
  float *dq = result(0), *dk = result(1), *dv = result(2), *dsinks = result(3);
  const AttentionWorkspace workspace(gemm_tiles(isa), all, true);
  const BackWorkspace back(all);
  const ElementwiseLoops& loops = elementwise_loops(loops_of(isa));
  std::byte* by_head =
      call.scratch.data() + AttentionPlan::bytes(all, call.pool.size()) + call.pool.size() * workspace.bytes();
  auto* of_sinks = reinterpret_cast<float*>(by_head + back.dk + back.dv);
  std::memset(by_head, 0, static_cast<size_t>(back.bytes()));
  float* head_dk = all.r() > 1 && dk ? reinterpret_cast<float*>(by_head) : dk;
  float* head_dv = all.r() > 1 && dv ? reinterpret_cast<float*>(by_head + back.dk) : dv;
  each_head<isa>(call, all, workspace, [&](const HeadWorker<isa>& worker, int64_t item, bool repacks) {
    const GemmTiles& tiles = worker.tiles;
    if (repacks)
      worker.each_keys([&](int64_t index, int64_t key, int64_t count) {
        tiles.pack_right(worker.right_keys(key, true), count, all.d,
                         worker.transposed_keys + index * workspace.transposed_keys);
        tiles.pack_right(worker.right_values(key, true), count, all.e, worker.values + index * workspace.values);
        if (dq) tiles.pack_right(worker.right_keys(key, false), all.d, count, worker.keys + index * workspace.keys);
      });
    worker.each_block([&](const QueryBlock& block) {
      const int64_t head = worker.head, at = (worker.segment.row * all.t + block.begin) * all.h + head;
      const float *q_at = all.q + at * all.d, *dy_at = dy + at * all.e;
      worker.pack_left({q_at, all.h * all.d, false}, block.rows, all.d, worker.query);
      worker.pack_left({dy_at, all.h * all.e, false}, block.rows, all.e, worker.dy);
      worker.score(block, worker.query, worker.transposed_keys, workspace.transposed_keys, all.d, worker.scores);
      worker.score(block, worker.dy, worker.values, workspace.values, all.e, worker.changes);
      for (int64_t i = 0; i < block.rows; ++i) {
        const int64_t query_at = at + i * all.h;
        float delta = 0;
        linear_tiles(loops_of(isa))
            .block({dy + query_at * all.e, all.e, 1, reinterpret_cast<const uint8_t*>(y + query_at * all.e),
                    DType::f32, 1, all.e, &delta, 1});
        const float whole = statistics[query_at];
        if (all.sinks && dsinks) of_sinks[item] -= std::exp(all.sinks[head] - whole) * delta;
        float *p = worker.scores + i * workspace.stride, *ds = worker.changes + i * workspace.stride;
        const int64_t first = block.first(i, all.state.window), last = block.last(i);
        change_scores<isa>(all, head, p + first, ds + first, last - first, whole, delta, worker.capped);
        worker.clear_unseen(block, i, p);
        worker.clear_unseen(block, i, ds);
      }
      if (dq) worker.weigh(block, worker.changes, worker.keys, workspace.keys, all.d, dq + at * all.d, all.h * all.d);
      // By query head if these share keys, otherwise directly into the result.
      const int64_t key = (worker.segment.row * all.t + block.low) * all.h + head;
      if (dk) {
        tiles.pack_right(worker.right(q_at, all.h * all.d, false), all.d, block.rows, worker.right_query);
        worker.add_transposed(block, worker.changes, worker.right_query, all.d, head_dk + key * all.d, all.h * all.d);
      }
      if (dv) {
        tiles.pack_right(worker.right(dy_at, all.h * all.e, false), all.e, block.rows, worker.right_dy);
        worker.add_transposed(block, worker.scores, worker.right_dy, all.e, head_dv + key * all.e, all.h * all.e);
      }
    });
  });
  if (all.r() > 1 && dk) sum_heads(call.pool, loops, head_dk, all.b * all.t * all.g, all.r(), all.d, dk);
  if (all.r() > 1 && dv) sum_heads(call.pool, loops, head_dv, all.b * all.t * all.g, all.r(), all.e, dv);
  for (int64_t i = 0; all.sinks && dsinks && i < all.b * all.t * all.h; ++i) dsinks[i % all.h] += of_sinks[i];
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  constexpr const char* dtypes = rounds_x(isa) ? "f32, round_x" : "f32";
  add_kernel(table, isa,
             {.op = "plait.PackedAttention",
              .dtypes = dtypes,
              .accepts = accepts_forward<isa>,
              .prepare = prepare,
              .scratch_bytes = forward_scratch<isa>,
              .run = run_forward<isa>});
  add_kernel(table, isa,
             {.op = "plait.PackedAttentionBack",
              .dtypes = dtypes,
              .accepts = accepts_back<isa>,
              .prepare = prepare,
              .scratch_bytes = back_scratch<isa>,
              .run = run_back<isa>});
}

}  // namespace

void add_packed_attention(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
  if (isa == Isa::avx512_bf16) add_for<Isa::avx512_bf16>(table);
  if (isa == Isa::amx) add_for<Isa::amx>(table);
}

}  // namespace plait::cpu
