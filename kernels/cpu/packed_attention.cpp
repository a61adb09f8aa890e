// plait.PackedAttention and its gradient in f32: blocks of queries of one head against the keys of their segment that they
// see. Keys and values of a segment are made contiguous once; the products are those of linear_tile.h and matmul_tile.h.
#include <cmath>
#include <cstring>

#include "kernels/cpu/elementwise_loops.h"
#include "kernels/cpu/linear_tile.h"
#include "kernels/cpu/matmul_tile.h"
#include "kernels/cpu/register.h"
#include "kernels/cpu/share.h"

namespace plait::cpu {
namespace {

constexpr int64_t block_rows = 64;  ///< queries at a time

struct AttentionState : KernelState {
  float scale = 1, softcap = 0;
  int64_t window = 0;
};

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<AttentionState>();
  state->scale = static_cast<float>(node.attributes.real("scale", 1));
  state->softcap = static_cast<float>(node.attributes.real("softcap", 0));
  state->window = node.attributes.integer("window", 0);
  return state;
}

bool is_f32(const NodeInfo& node, size_t i) {
  return i >= node.inputs.size() || node.inputs[i].dtype == DType::none || node.inputs[i].dtype == DType::f32;
}
bool accepts_forward(const NodeInfo& node) {
  for (size_t i : {0, 1, 2, 4, 5})
    if (!is_f32(node, i)) return false;
  return node.inputs[3].dtype == DType::i32;
}
bool accepts_back(const NodeInfo& node) {
  for (size_t i : {0, 1, 2, 3, 4, 5, 7, 8})
    if (!is_f32(node, i)) return false;
  return node.inputs[6].dtype == DType::i32;
}

/// A call's operands: q [b, t, h, d], k [b, t, g, d], v [b, t, g, e], segments [b, t], sinks? and slopes? [h].
struct Operands {
  Operands(const KernelState* kept, std::span<const TensorView> inputs, size_t q_at, size_t segments_at)
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
  /// Where the segment that token `i` begins ends.
  int64_t end_of(int64_t row, int64_t i) const {
    const int32_t* own = segments + row * t;
    int64_t end = i + 1;
    while (end < t && own[end] == own[i]) ++end;
    return end;
  }

  const AttentionState& state;
  const float *q, *k, *v;
  const int32_t* segments;
  const float *sinks = nullptr, *slopes = nullptr;
  const int64_t b, t, h, d, g, e;
};

int64_t align(int64_t floats) { return (floats + 15) / 16 * 16; }

/// What a worker needs, in floats.
struct Room {
  Room(const Operands& all, bool back)
      : keys(align(all.t * all.d)),
        values(align(all.t * all.e)),
        query(align(block_rows * all.d)),
        gradient(back ? align(block_rows * all.e) : 0),
        scores(align(block_rows * all.t)),
        sums(back ? keys + values : 0) {}
  int64_t floats() const {
    return keys + values + query + gradient + scores * (gradient ? 3 : 1) + sums + matmul_panel;
  }
  int64_t keys, values, query, gradient, scores, sums;
};

/// Copies rows of `width` that lie `stride` apart.
void gather(const float* from, int64_t stride, int64_t rows, int64_t width, float* to) {
  for (int64_t i = 0; i < rows; ++i) std::memcpy(to + i * width, from + i * stride, static_cast<size_t>(4 * width));
}

/// x [m, k] w [n, k]^T -> y [m, n].
template <Isa isa>
void products(const float* x, int64_t m, const float* w, int64_t n, int64_t k, float* y) {
  linear_tiles(isa).block({x, k, m, reinterpret_cast<const uint8_t*>(w), DType::f32, n, k, y, n});
}

/// One block of queries [begin, begin + rows) of a segment that begins at `start`; they see keys from `low` on.
struct Block {
  int64_t row, head, start, begin, rows, low;
  int64_t keys() const { return begin + rows - low; }
  /// The keys that query i of the block sees: [first, last), from `low` on.
  int64_t first(int64_t i, int64_t window) const {
    return window > 0 ? std::max<int64_t>(0, begin + i + 1 - window - low) : 0;
  }
  int64_t last(int64_t i) const { return begin + i + 1 - low; }
};

/// A row of scores: scaled, capped, with what distance adds; n keys, the last of which is the query's own.
template <Isa isa>
void finish_scores(const Operands& all, int64_t head, float* scores, int64_t n) {
  const ElementwiseLoops& loops = elementwise_loops(isa);
  const auto multiply_by = [&](float factor) {
    loops.binary[static_cast<int>(Binary::mul)](scores, 1, &factor, 0, scores, n);
  };
  if (const float cap = all.state.softcap; cap > 0) {
    multiply_by(all.state.scale / cap);
    loops.unary[static_cast<int>(Unary::tanh)](scores, scores, n);
    multiply_by(cap);
  } else {
    multiply_by(all.state.scale);
  }
  if (all.slopes)
    for (int64_t j = 0; j < n; ++j) scores[j] += all.slopes[head] * static_cast<float>(j + 1 - n);
}

/// Calls body(block) for each block of queries of a segment.
template <class Body>
void each_block(const Operands& all, int64_t row, int64_t head, int64_t start, int64_t end, Body body) {
  for (int64_t begin = start; begin < end; begin += block_rows) {
    const int64_t low = all.state.window > 0 ? std::max(start, begin + 1 - all.state.window) : start;
    body(Block{row, head, start, begin, std::min(block_rows, end - begin), low});
  }
}

/// Calls body(row, key head, start, end, worker) for each segment and key head; what does not count gets no call.
template <class Body>
void each_segment(const KernelCall& call, const Operands& all, Body body) {
  share(call.pool, all.b * all.g, all.b * all.h * all.t * all.d * 64, [&](int64_t item, int worker) {
    const int64_t row = item / all.g;
    for (int64_t start = 0, end; start < all.t; start = end) {
      end = all.end_of(row, start);
      if (all.segments[row * all.t + start] >= 0) body(row, item % all.g, start, end, worker);
    }
  });
}

template <Isa isa>
int64_t forward_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                        int threads) {
  return 4 * threads * Room(Operands(state, inputs, 0, 3), false).floats();
}

template <Isa isa>
KernelStatus run_forward(const KernelCall& call) {
  const Operands all(call.state, call.inputs, 0, 3);
  if (!all.fits()) return {KernelCode::bad_value, 1, all.g};
  float* y = call.outputs[0].as<float>();
  const bool wanted = call.outputs.size() > 1 && call.outputs[1].present();
  float* statistics = wanted ? call.outputs[1].as<float>() : nullptr;
  for (int64_t i = 0; i < all.b * all.t; ++i)
    if (all.segments[i] < 0) {
      std::memset(y + i * all.h * all.e, 0, static_cast<size_t>(4 * all.h * all.e));
      if (statistics) std::memset(statistics + i * all.h, 0, static_cast<size_t>(4 * all.h));
    }
  const Room room(all, false);
  const ElementwiseLoops& loops = elementwise_loops(isa);
  each_segment(call, all, [&](int64_t row, int64_t group, int64_t start, int64_t end, int worker) {
    float* keys = reinterpret_cast<float*>(call.scratch.data()) + worker * room.floats();
    float *values = keys + room.keys, *query = values + room.values, *scores = query + room.query,
          *panel = scores + room.scores;
    const int64_t first_key = (row * all.t + start) * all.g + group;
    gather(all.k + first_key * all.d, all.g * all.d, end - start, all.d, keys);
    gather(all.v + first_key * all.e, all.g * all.e, end - start, all.e, values);
    for (int64_t head = group * all.r(); head < (group + 1) * all.r(); ++head)
      each_block(all, row, head, start, end, [&](const Block& block) {
        const int64_t n = block.keys(), at = (row * all.t + block.begin) * all.h + head;
        gather(all.q + at * all.d, all.h * all.d, block.rows, all.d, query);
        products<isa>(query, block.rows, keys + (block.low - start) * all.d, n, all.d, scores);
        for (int64_t i = 0; i < block.rows; ++i) {
          const int64_t first = block.first(i, all.state.window), last = block.last(i), count = last - first;
          float* seen = scores + i * n + first;
          finish_scores<isa>(all, head, seen, count);
          float top = all.sinks ? all.sinks[head] : -HUGE_VALF;
          for (int64_t j = 0; j < count; ++j) top = std::max(top, seen[j]);
          loops.binary[static_cast<int>(Binary::sub)](seen, 1, &top, 0, seen, count);
          loops.unary[static_cast<int>(Unary::exp)](seen, seen, count);
          float sum = all.sinks ? std::exp(all.sinks[head] - top) : 0;
          for (int64_t j = 0; j < count; ++j) sum += seen[j];
          loops.binary[static_cast<int>(Binary::div)](seen, 1, &sum, 0, seen, count);
          std::memset(scores + i * n, 0, static_cast<size_t>(4 * first));
          std::memset(scores + i * n + last, 0, static_cast<size_t>(4 * (n - last)));
          if (statistics) statistics[at + i * all.h] = top + std::log(sum);
        }
        multiply(isa, {scores, n, block.rows, values + (block.low - start) * all.e, all.e, all.e, n, y + at * all.e,
                       all.h * all.e, panel, false});
      });
  });
  return {};
}

template <Isa isa>
int64_t back_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                     int threads) {
  const Operands all(state, inputs, 1, 6);
  return 4 * (threads * Room(all, true).floats() + align(all.b * all.h));
}

/// dy, q, k, v, y, statistics, segments, sinks?, slopes? -> dq?, dk?, dv?, dsinks?. As FlashAttention 2 (Dao 2023).
template <Isa isa>
KernelStatus run_back(const KernelCall& call) {
  const Operands all(call.state, call.inputs, 1, 6);
  if (!all.fits()) return {KernelCode::bad_value, 2, all.g};
  const float *dy = call.inputs[0].as<float>(), *y = call.inputs[4].as<float>(),
              *statistics = call.inputs[5].as<float>();
  auto result = [&](size_t k) -> float* {
    if (k >= call.outputs.size() || !call.outputs[k].present()) return nullptr;
    std::memset(call.outputs[k].data, 0, static_cast<size_t>(call.outputs[k].bytes()));
    return call.outputs[k].as<float>();
  };
  float *dq = result(0), *dk = result(1), *dv = result(2), *dsinks = result(3);
  const Room room(all, true);
  auto* of_sinks = reinterpret_cast<float*>(call.scratch.data()) + call.pool.size() * room.floats();
  std::memset(of_sinks, 0, static_cast<size_t>(4 * all.b * all.h));
  const ElementwiseLoops& loops = elementwise_loops(isa);
  each_segment(call, all, [&](int64_t row, int64_t group, int64_t start, int64_t end, int worker) {
    float* keys = reinterpret_cast<float*>(call.scratch.data()) + worker * room.floats();
    float *values = keys + room.keys, *query = values + room.values, *gradient = query + room.query,
          *scores = gradient + room.gradient, *changes = scores + room.scores, *turned = changes + room.scores,
          *own_dk = turned + room.scores, *own_dv = own_dk + room.keys, *panel = own_dv + room.values;
    const int64_t count = end - start, first_key = (row * all.t + start) * all.g + group;
    gather(all.k + first_key * all.d, all.g * all.d, count, all.d, keys);
    gather(all.v + first_key * all.e, all.g * all.e, count, all.e, values);
    std::memset(own_dk, 0, static_cast<size_t>(4 * count * all.d));
    std::memset(own_dv, 0, static_cast<size_t>(4 * count * all.e));
    for (int64_t head = group * all.r(); head < (group + 1) * all.r(); ++head)
      each_block(all, row, head, start, end, [&](const Block& block) {
        const int64_t n = block.keys(), at = (row * all.t + block.begin) * all.h + head, low = block.low - start;
        gather(all.q + at * all.d, all.h * all.d, block.rows, all.d, query);
        gather(dy + at * all.e, all.h * all.e, block.rows, all.e, gradient);
        products<isa>(query, block.rows, keys + low * all.d, n, all.d, scores);
        products<isa>(gradient, block.rows, values + low * all.e, n, all.e, changes);
        for (int64_t i = 0; i < block.rows; ++i) {
          const int64_t first = block.first(i, all.state.window), last = block.last(i), seen = last - first;
          const int64_t query_at = at + i * all.h;
          float delta = 0;
          for (int64_t j = 0; j < all.e; ++j) delta += dy[query_at * all.e + j] * y[query_at * all.e + j];
          const float whole = statistics[query_at];
          if (all.sinks) of_sinks[row * all.h + head] -= std::exp(all.sinks[head] - whole) * delta;
          float *p = scores + i * n + first, *ds = changes + i * n + first, *kept = turned;
          finish_scores<isa>(all, head, p, seen);
          if (all.state.softcap > 0) {
            std::memcpy(kept, p, static_cast<size_t>(4 * seen));
            if (all.slopes)
              for (int64_t j = 0; j < seen; ++j) kept[j] -= all.slopes[head] * static_cast<float>(j + 1 - seen);
          }
          loops.binary[static_cast<int>(Binary::sub)](p, 1, &whole, 0, p, seen);
          loops.unary[static_cast<int>(Unary::exp)](p, p, seen);
          for (int64_t j = 0; j < seen; ++j) ds[j] = p[j] * (ds[j] - delta) * all.state.scale;
          if (const float cap = all.state.softcap; cap > 0)
            for (int64_t j = 0; j < seen; ++j) ds[j] *= 1 - kept[j] / cap * (kept[j] / cap);
          for (float* of_row : {scores + i * n, changes + i * n}) {
            std::memset(of_row, 0, static_cast<size_t>(4 * first));
            std::memset(of_row + last, 0, static_cast<size_t>(4 * (n - last)));
          }
        }
        auto turn = [&](const float* from) {
          for (int64_t i = 0; i < block.rows; ++i)
            for (int64_t j = 0; j < n; ++j) turned[j * block.rows + i] = from[i * n + j];
          return turned;
        };
        multiply(isa, {turn(scores), block.rows, n, gradient, all.e, all.e, block.rows, own_dv + low * all.e, all.e,
                       panel, true});
        if (dq)
          multiply(isa, {changes, n, block.rows, keys + low * all.d, all.d, all.d, n, dq + at * all.d, all.h * all.d,
                         panel, false});
        multiply(isa, {turn(changes), block.rows, n, query, all.d, all.d, block.rows, own_dk + low * all.d, all.d,
                       panel, true});
      });
    for (int64_t j = 0; j < count; ++j) {
      const int64_t key = first_key + j * all.g;
      if (dk) std::memcpy(dk + key * all.d, own_dk + j * all.d, static_cast<size_t>(4 * all.d));
      if (dv) std::memcpy(dv + key * all.e, own_dv + j * all.e, static_cast<size_t>(4 * all.e));
    }
  });
  for (int64_t i = 0; dsinks && i < all.b * all.h; ++i) dsinks[i % all.h] += of_sinks[i];
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.PackedAttention",
              .dtypes = "f32",
              .accepts = accepts_forward,
              .prepare = prepare,
              .scratch_bytes = forward_scratch<isa>,
              .run = run_forward<isa>});
  add_kernel(table, isa,
             {.op = "plait.PackedAttentionBack",
              .dtypes = "f32",
              .accepts = accepts_back,
              .prepare = prepare,
              .scratch_bytes = back_scratch<isa>,
              .run = run_back<isa>});
}

}  // namespace

void add_packed_attention(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
