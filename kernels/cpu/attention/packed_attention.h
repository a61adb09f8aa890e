#pragma once
// Shared by attention in training and its gradient: operands, a worker's workspace, and products of a block of
// queries of one head with the visible blocks of keys of their segment. They are packed (gemm_tile.h), in f32, or of
// numbers rounded to bf16; a segment's keys and values are packed once by each worker that has heads of theirs.
#include <cmath>
#include <cstring>
#include <utility>

#include "core/exec/kernel.h"
#include "kernels/cpu/gemm/gemm_tile.h"
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/rows/loss_loops.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {

constexpr int64_t attention_keys = 64;  ///< keys per block
/// Queries per block: whole tiles.
inline int64_t attention_rows(const GemmTiles& tiles) { return std::max<int64_t>(1, 64 / tiles.rows) * tiles.rows; }

struct AttentionState : KernelState {
  float scale = 1, softcap = 0;
  int64_t window = 0;
};

/// A call's operands: q [b, t, h, d], k [b, t, g, d], v [b, t, g, e], segments [b, t], sinks? and slopes? [h].
struct AttentionOperands {
  AttentionOperands(const KernelState* kept, std::span<const TensorView> inputs, size_t q_at, size_t segments_at)
      : state(*static_cast<const AttentionState*>(kept)),
        q(inputs[q_at].as<float>()),
        k(inputs[q_at + 1].as<float>()),
        v(inputs[q_at + 2].as<float>()),
        segments(inputs[segments_at].as<int32_t>()),
        b(inputs[q_at].shape[0]),
        t(inputs[q_at].shape[1]),
        h(inputs[q_at].shape[2]),
        d(inputs[q_at].shape[3]),
        g(inputs[q_at + 1].shape[2]),
        e(inputs[q_at + 2].shape[3]) {
    auto vector = [&](size_t i) {
      return i < inputs.size() && inputs[i].present() ? inputs[i].as<float>() : nullptr;
    };
    sinks = vector(segments_at + 1);
    slopes = vector(segments_at + 2);
  }

  bool fits() const { return g > 0 && h % g == 0; }
  int64_t r() const { return h / g; }
  /// Calls body(row, start, end) for each segment, except padding.
  template <class Body>
  void each_segment(Body body) const {
    for (int64_t row = 0; row < b; ++row)
      for (int64_t start = 0, end; start < t; start = end) {
        const int32_t* own = segments + row * t;
        for (end = start + 1; end < t && own[end] == own[start];) ++end;
        if (own[start] >= 0) body(row, start, end);
      }
  }

  const AttentionState& state;
  const float *q, *k, *v;
  const int32_t* segments;
  const float *sinks = nullptr, *slopes = nullptr;
  const int64_t b, t, h, d, g, e;
};

struct AttentionSegment {
  int64_t row, start, end;
  int64_t count() const { return end - start; }
};

/// A worker's workspace, in bytes: keys and values packed as right sides, by blocks of keys ([keys, d] and [keys, e],
/// and transposed); queries and dy of a block, packed as left sides and as right sides; scores, their gradients,
/// their packed form, and a row.
struct AttentionWorkspace {
  AttentionWorkspace(const GemmTiles& tiles, const AttentionOperands& all, bool back)
      : rows(attention_rows(tiles)),
        blocks((all.t + attention_keys - 1) / attention_keys),
        stride(blocks * attention_keys + 16),
        transposed_keys(align(tiles.right_bytes(attention_keys, all.d))),
        values(align(back ? tiles.right_bytes(attention_keys, all.e) : tiles.right_bytes(all.e, attention_keys))),
        keys(back ? align(tiles.right_bytes(all.d, attention_keys)) : 0),
        query(align(tiles.left_bytes(rows, all.d))),
        dy(back ? align(tiles.left_bytes(rows, all.e)) : 0),
        right_query(back ? align(tiles.right_bytes(all.d, rows)) : 0),
        right_dy(back ? align(tiles.right_bytes(all.e, rows)) : 0),
        scores(align(4 * rows * stride)),
        changes(back ? scores : 0),
        part(align(std::max(tiles.left_bytes(rows, attention_keys), tiles.left_bytes(attention_keys, rows)))),
        capped(back ? align(4 * stride) : 0) {}
  int64_t bytes() const {
    return (transposed_keys + values + keys) * blocks + query + dy + right_query + right_dy + scores + changes +
           part + capped;
  }
  int64_t rows, blocks;
  int64_t stride;  ///< of scores
  int64_t transposed_keys, values, keys, query, dy, right_query, right_dy, scores, changes, part, capped;
};

/// The segments of a call, and whose keys each worker has packed: in shared scratch.
struct AttentionPlan {
  static int64_t bytes(const AttentionOperands& all, int threads) {
    return align(all.b * all.t * static_cast<int64_t>(sizeof(AttentionSegment))) + align(threads * 8);
  }
  AttentionPlan(const AttentionOperands& all, int threads, std::byte* scratch)
      : segments(reinterpret_cast<AttentionSegment*>(scratch)),
        held(reinterpret_cast<int64_t*>(scratch + bytes(all, threads) - align(threads * 8))) {
    all.each_segment([&](int64_t row, int64_t start, int64_t end) { segments[count++] = {row, start, end}; });
    std::fill_n(held, threads, -1);
  }
  AttentionSegment* segments;
  int64_t* held;
  int64_t count = 0;
};

/// One block of queries [begin, begin + rows) of a head in a segment, with keys [low, low + keys) of the row, whole
/// blocks.
struct QueryBlock {
  int64_t begin, rows, low, keys;
  /// The keys that query i of the block sees: [first, last), from `low` on.
  int64_t first(int64_t i, int64_t window) const {
    return window > 0 ? std::max<int64_t>(0, begin + i + 1 - window - low) : 0;
  }
  int64_t last(int64_t i) const { return begin + i + 1 - low; }
};

/// Shared by forward and backward: a worker's packed operands, and products of them.
template <Isa isa>
class HeadWorker {
 public:
  HeadWorker(const AttentionOperands& all, const AttentionWorkspace& workspace, std::byte* scratch,
             const AttentionSegment& segment, int64_t head)
      : all(all), workspace(workspace), segment(segment), head(head), group(head / all.r()) {
    auto take = [&](int64_t bytes) { return std::exchange(scratch, scratch + bytes); };
    transposed_keys = take(workspace.transposed_keys * workspace.blocks);
    values = take(workspace.values * workspace.blocks);
    keys = take(workspace.keys * workspace.blocks);
    query = take(workspace.query);
    dy = take(workspace.dy);
    right_query = take(workspace.right_query);
    right_dy = take(workspace.right_dy);
    scores = reinterpret_cast<float*>(take(workspace.scores));
    changes = reinterpret_cast<float*>(take(workspace.changes));
    part = take(workspace.part);
    capped = reinterpret_cast<float*>(take(workspace.capped));
  }

  /// Calls pack(block, first key, keys) for each block of keys of the segment.
  template <class Pack>
  void each_keys(Pack pack) const {
    for (int64_t j = 0; j < segment.count(); j += attention_keys)
      pack(j / attention_keys, segment.start + j, std::min(attention_keys, segment.count() - j));
  }
  /// Calls body(block) for each block of queries of the segment.
  template <class Body>
  void each_block(Body body) const {
    for (int64_t begin = segment.start; begin < segment.end; begin += workspace.rows) {
      const int64_t rows = std::min(workspace.rows, segment.end - begin), window = all.state.window;
      const int64_t seen = window > 0 ? std::max(segment.start, begin + 1 - window) : segment.start;
      const int64_t low = segment.start + (seen - segment.start) / attention_keys * attention_keys;
      const int64_t most = (begin + rows - low + attention_keys - 1) / attention_keys * attention_keys;
      body(QueryBlock{begin, rows, low, std::min(most, segment.end - low)});
    }
  }
  /// Calls body(block of keys, first key from `low` on, keys) for those of a block of queries.
  template <class Body>
  void each_keys_of(const QueryBlock& block, Body body) const {
    for (int64_t j = 0; j < block.keys; j += attention_keys)
      body((block.low - segment.start + j) / attention_keys, j, std::min(attention_keys, block.keys - j));
  }

  GemmRight right_keys(int64_t key, bool transposed) const {
    return right(all.k + ((segment.row * all.t + key) * all.g + group) * all.d, all.g * all.d, transposed);
  }
  GemmRight right_values(int64_t key, bool transposed) const {
    return right(all.v + ((segment.row * all.t + key) * all.g + group) * all.e, all.g * all.e, transposed);
  }
  static GemmRight right(const float* data, int64_t ld, bool transposed) {
    return {reinterpret_cast<const uint8_t*>(data), DType::f32, ld, transposed};
  }
  /// Packs any number of rows.
  void pack_left(const GemmLeft& a, int64_t m, int64_t k, std::byte* to) const {
    for (int64_t i = 0; i < m; i += tiles.rows)
      tiles.pack_left(a.from(i, 0), std::min(tiles.rows, m - i), k, to + i / tiles.rows * tiles.left_bytes(1, k));
  }

  /// scores [rows, keys] of a block: left [rows, width] against blocks of keys, each of `bytes`.
  void score(const QueryBlock& block, const std::byte* left, const std::byte* blocks, int64_t bytes, int64_t width,
             float* to) const {
    each_keys_of(block, [&](int64_t index, int64_t j, int64_t count) {
      tiles.block({left, blocks + index * bytes, block.rows, count, width, to + j, workspace.stride, false});
    });
  }
  /// y [rows, width] = weighted sums, from blocks of keys of `bytes` each.
  void weigh(const QueryBlock& block, const float* from, const std::byte* blocks, int64_t bytes, int64_t width,
             float* y, int64_t ldy) const {
    each_keys_of(block, [&](int64_t index, int64_t j, int64_t count) {
      pack_left({from + j, workspace.stride, false}, block.rows, count, part);
      tiles.block({part, blocks + index * bytes, block.rows, width, count, y, ldy, j > 0});
    });
  }
  /// y [keys, width] += scores^T by `queries`, the block's rows packed as a right side.
  void add_transposed(const QueryBlock& block, const float* from, const std::byte* queries, int64_t width, float* y,
                  int64_t ldy) const {
    each_keys_of(block, [&](int64_t, int64_t j, int64_t count) {
      pack_left({from + j, workspace.stride, true}, count, block.rows, part);
      tiles.block({part, queries, count, width, block.rows, y + j * ldy, ldy, true});
    });
  }
  /// Zeros outside the keys visible to query i.
  void clear_unseen(const QueryBlock& block, int64_t i, float* row) const {
    const int64_t first = block.first(i, all.state.window), last = block.last(i);
    std::memset(row, 0, static_cast<size_t>(4 * first));
    std::memset(row + last, 0, static_cast<size_t>(4 * (block.keys - last)));
  }

  const AttentionOperands& all;
  const AttentionWorkspace& workspace;
  const GemmTiles& tiles = gemm_tiles(isa);
  const ElementwiseLoops& loops = elementwise_loops(loops_of(isa));
  const AttentionSegment& segment;
  const int64_t head, group;
  std::byte *transposed_keys, *values, *keys, *query, *dy, *right_query, *right_dy, *part;
  float *scores, *changes, *capped;
};

/// Calls body(worker, segment, repacks) for each head of each segment: `repacks` if the worker has other keys packed.
template <Isa isa, class Body>
void each_head(const KernelCall& call, const AttentionOperands& all, const AttentionWorkspace& workspace, Body body) {
  const int threads = call.pool.size();
  const AttentionPlan plan(all, threads, call.scratch.data());
  std::byte* own = call.scratch.data() + AttentionPlan::bytes(all, threads);
  share(call.pool, plan.count * all.h, all.b * all.h * all.t * all.d * 64, [&](int64_t item, int index) {
    const HeadWorker<isa> worker(all, workspace, own + index * workspace.bytes(), plan.segments[item / all.h],
                                 item % all.h);
    const int64_t keys = item / all.h * all.g + worker.group;
    body(worker, item, std::exchange(plan.held[index], keys) != keys);
  });
}

/// Scales and caps a row of scores and adds distance terms; n keys, the last of which is the query's own.
template <Isa isa>
void finish_scores(const AttentionOperands& all, int64_t head, float* scores, int64_t n) {
  loss_loops(loops_of(isa)).to_logits(scores, nullptr, n, {all.state.scale, all.state.softcap});
  for (int64_t j = 0; all.slopes && j < n; ++j) scores[j] += all.slopes[head] * static_cast<float>(j + 1 - n);
}

/// Converts a row of n raw scores to p, and ds, raw products of dy and values, to gradients of the raw scores;
/// `capped` has n floats.
template <Isa isa>
void change_scores(const AttentionOperands& all, int64_t head, float* p, float* ds, int64_t n, float whole,
                   float delta, float* capped) {
  const ElementwiseLoops& loops = elementwise_loops(loops_of(isa));
  const auto sub = loops.binary[static_cast<int>(Binary::sub)], mul = loops.binary[static_cast<int>(Binary::mul)];
  const float cap = all.state.softcap;
  finish_scores<isa>(all, head, p, n);
  if (cap > 0) {
    std::memcpy(capped, p, static_cast<size_t>(4 * n));
    for (int64_t j = 0; all.slopes && j < n; ++j) capped[j] -= all.slopes[head] * static_cast<float>(j + 1 - n);
  }
  loss_loops(loops_of(isa)).changes(p, n, {}, whole, 1);
  sub(ds, 1, &delta, 0, ds, n);
  mul(ds, 1, p, 1, ds, n);
  mul(ds, 1, &all.state.scale, 0, ds, n);
  for (int64_t j = 0; cap > 0 && j < n; ++j) ds[j] *= 1 - capped[j] / cap * (capped[j] / cap);
}

}  // namespace plait::cpu
