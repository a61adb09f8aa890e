// plait.CausalConv and plait.LinearAttention: segments, heads and blocks of columns distributed over threads. The
// arithmetic is in recurrent_tile.cpp.
//
// Columns of a state are independent: column j of the state and element j of the values make element j of the
// results. So a block of columns stays in L1 (128 keys x 32 columns of f32 are 16 KB) while all tokens of a segment
// pass, and a decoding step reads each state once and writes it once, in 1.2 times the time that memcpy needs for as
// many bytes (16 heads of 128 x 128, 16 segments, AVX-512). A column's bits depend only on its own segment's tokens,
// and not on their split into steps: between tokens the state equals what its slot would hold.
#include "kernels/cpu/recurrent/recurrent.h"
#include "kernels/cpu/recurrent/recurrent_tile.h"
#include "kernels/cpu/recurrent/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

/// The tokens of a segment, and the slots of its previous and next state; -1: none.
struct Run {
  int32_t begin, end, from, to;
};

/// Operands `at` and `at` + 1 of the call, segments and slots, as one run for each segment with tokens.
class Runs {
 public:
  static int64_t bytes(const TensorView& slots) {
    return align(slots.shape[0] * int64_t{sizeof(Run)}) + align(slots.shape[0]);
  }

  Runs(const KernelCall& call, size_t at) : call_(call), at_(at), rows_(call.inputs[at + 1].shape[0]) {
    list_ = reinterpret_cast<Run*>(call.scratch.data());
    seen_ = reinterpret_cast<uint8_t*>(call.scratch.data() + align(rows_ * int64_t{sizeof(Run)}));
  }

  KernelStatus read(int64_t states, void (*clear)(const KernelCall& call, int64_t token)) {
    const TensorView& segments = call_.inputs[at_];
    const auto slot = static_cast<int32_t>(at_);
    memset(seen_, 0, static_cast<size_t>(rows_));
    for (int64_t i = 0, tokens = segments.elements(); i < tokens;) {
      const int32_t segment = number(segments, i);
      const auto begin = static_cast<int32_t>(i);
      while (i < tokens && number(segments, i) == segment) {
        if (segment == -1) clear(call_, i);
        ++i;
      }
      if (segment == -1) continue;
      if (segment < 0 || segment >= rows_) return {KernelCode::index_out_of_range, slot, segment};
      if (seen_[segment]) return {KernelCode::bad_value, slot, segment};  // its tokens are not contiguous
      seen_[segment] = 1;
      Run run{begin, static_cast<int32_t>(i), number(call_.inputs[at_ + 1], int64_t{2} * segment),
              number(call_.inputs[at_ + 1], int64_t{2} * segment + 1)};
      for (int32_t one : {run.from, run.to})
        if (one < -1 || one >= states) return {KernelCode::index_out_of_range, slot + 1, one};
      list_[count_++] = run;
    }
    return {};
  }

  int64_t count() const { return count_; }
  const Run& operator[](int64_t i) const { return list_[i]; }

 private:
  static int32_t number(const TensorView& tensor, int64_t i) {
    int32_t out;
    memcpy(&out, tensor.data + i * 4, sizeof out);
    return out;
  }

  const KernelCall& call_;
  size_t at_;
  int64_t rows_, count_ = 0;
  Run* list_;
  uint8_t* seen_;
};

/// Tokens without a segment give zeros.
void clear_row(const KernelCall& call, int64_t token) {
  const TensorView& y = call.outputs[1];
  const int64_t width = y.shape.back(1);
  memset(y.as<float>() + token * width, 0, static_cast<size_t>(width) * sizeof(float));
}

/// States normally stay in place.
void keep_slots(const KernelCall& call) {
  if (call.outputs[0].data != call.inputs[0].data)
    memcpy(call.outputs[0].data, call.inputs[0].data, static_cast<size_t>(call.inputs[0].bytes()));
}

bool accepts_conv(const NodeInfo& node) {
  return is(node, 0, DType::f32) && is(node, 1, DType::f32) && is(node, 2, DType::f32) && is(node, 3, DType::i32) &&
         is(node, 4, DType::i32) && is_f32_or_absent(node, 5);
}

int64_t conv_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>, int) {
  return Runs::bytes(inputs[4]);
}

/// state [u, k - 1, c], x [b, t, c], w [k, c], segments [b, t], slots [n, 2], bias? [c] -> state, y [b, t, c].
template <Isa isa>
KernelStatus run_conv(const KernelCall& call) {
  const TensorView &state = call.outputs[0], &x = call.inputs[1], &w = call.inputs[2];
  const int64_t c = x.shape[2], taps = w.shape[0], before = taps - 1;
  const bool biased = call.inputs.size() > 5 && call.inputs[5].present();
  if (taps < 1 || w.shape[1] != c) return {KernelCode::bad_value, 2, w.shape[1]};
  if (state.shape[1] != before || state.shape[2] != c) return {KernelCode::bad_value, 0, state.shape[1]};
  if (biased && call.inputs[5].elements() != c) return {KernelCode::bad_value, 5, call.inputs[5].elements()};
  Runs runs(call, 3);
  if (KernelStatus status = runs.read(state.shape[0], clear_row); status.code != KernelCode::ok) return status;
  keep_slots(call);
  constexpr int64_t block = 256;  // channels: 1 KB of each row
  const int64_t blocks = (c + block - 1) / block;
  share(call.pool, runs.count() * blocks, x.elements() * taps, [&](int64_t item, int) {
    const Run& run = runs[item / blocks];
    const int64_t first = item % blocks * block;
    auto slot = [&](int32_t index) { return index < 0 ? nullptr : state.as<float>() + index * before * c + first; };
    recurrent_tiles(isa).conv({.x = x.as<float>() + run.begin * c + first,
                               .w = w.as<float>() + first,
                               .bias = biased ? call.inputs[5].as<float>() + first : nullptr,
                               .past = slot(run.from),
                               .kept = slot(run.to),
                               .y = call.outputs[1].as<float>() + run.begin * c + first,
                               .tokens = run.end - run.begin,
                               .taps = taps,
                               .channels = std::min(block, c - first),
                               .stride = c,
                               .silu = static_cast<const ConvState*>(call.state)->silu});
  });
  return {};
}

bool accepts_attention(const NodeInfo& node) {
  for (size_t i = 0; i < 4; ++i)
    if (!is(node, i, DType::f32)) return false;
  return is(node, 4, DType::i32) && is(node, 5, DType::i32) && is_f32_or_absent(node, 6) && is_f32_or_absent(node, 7);
}

/// A worker's block of a state, and a factor for each of its keys.
int64_t worker_bytes(int64_t d, int64_t columns) { return align(d * (columns + 1) * 4); }

template <Isa isa>
int64_t attention_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>,
                          int threads) {
  return Runs::bytes(inputs[5]) + threads * worker_bytes(inputs[0].shape[2], recurrent_tiles(isa).wide);
}

/// state [u, g, d, e], q [b, t, h d], k [b, t, keys d], v [b, t, g e], segments [b, t], slots [n, 2], decay?, beta?
/// -> state, y [b, t, n e].
template <Isa isa>
KernelStatus run_attention(const KernelCall& call) {
  const auto& own = *static_cast<const LinearAttentionState*>(call.state);
  const RecurrentTiles& tiles = recurrent_tiles(isa);
  const TensorView& state = call.outputs[0];
  const LinearAttentionSizes s(own, call.inputs, 1, 6);
  if (int32_t slot = s.misfit(own, call.inputs, 1, 6); slot >= 0)
    return {KernelCode::bad_value, slot, call.inputs[static_cast<size_t>(slot)].elements()};
  if (state.shape[1] != s.g || state.shape[2] != s.d || state.shape[3] != s.e)
    return {KernelCode::bad_value, 0, state.elements()};
  Runs runs(call, 4);
  if (KernelStatus status = runs.read(state.shape[0], clear_row); status.code != KernelCode::ok) return status;
  keep_slots(call);
  // With one token per segment states are read in place; otherwise a block is kept in L1.
  const int64_t columns = runs.count() == s.tokens ? tiles.wide : tiles.narrow;
  const int64_t blocks = (s.e + columns - 1) / columns, scratch = worker_bytes(s.d, tiles.wide);
  share(call.pool, runs.count() * s.g * blocks, s.tokens * s.n * s.d * s.e, [&](int64_t item, int worker) {
    const Run& run = runs[item / (s.g * blocks)];
    const int64_t head = item / blocks % s.g, first = item % blocks * columns;
    auto slot = [&](int32_t index) {
      return index < 0 ? nullptr : state.as<float>() + (index * s.g + head) * s.d * s.e + first;
    };
    StateTokens tokens = s.tokens_of(own, call.inputs, 1, 6, head, run.begin, run.end);
    tokens.v += first;
    auto* own_scratch =
        reinterpret_cast<float*>(call.scratch.data() + Runs::bytes(call.inputs[5]) + worker * scratch);
    tiles.state({.of = tokens,
                 .past = slot(run.from),
                 .kept = slot(run.to),
                 .y = call.outputs[1].as<float>() + (run.begin * s.n + s.result_of(head)) * s.e + first,
                 .y_stride = s.n * s.e,
                 .result_stride = s.e,
                 .columns = std::min(columns, s.e - first),
                 .tile = own_scratch,
                 .factors = own_scratch + s.d * tiles.wide});
  });
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.CausalConv",
              .dtypes = "f32",
              .accepts = accepts_conv,
              .prepare = prepare_conv,
              .scratch_bytes = conv_scratch,
              .run = run_conv<isa>});
  add_kernel(table, isa,
             {.op = "plait.LinearAttention",
              .dtypes = "f32",
              .accepts = accepts_attention,
              .prepare = prepare_linear_attention<6>,
              .scratch_bytes = attention_scratch<isa>,
              .run = run_attention<isa>});
}

}  // namespace

void add_recurrent(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
