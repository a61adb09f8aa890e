// plait.PackedConv and plait.PackedLinearAttention, and their gradients: recurrences inside the segments of packed rows. The
// arithmetic is in recurrent_tile.cpp.
//
// The gradient of a state goes from a segment's last token to its first, and meets the states that the tokens found. These are
// computed again, in blocks of sqrt(n) of n tokens, from states that a pass from the first token on has left at the beginnings
// of blocks: so 2 sqrt(n) states of one head stand in memory for each thread, whatever the row's length makes of n.
#include <cstring>

#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/recurrent_tile.h"
#include "kernels/cpu/register.h"
#include "kernels/cpu/share.h"

namespace plait::cpu {
namespace {

/// Tokens of one segment, counted over all rows.
struct Run {
  int64_t begin, end;
};

/// The segments of rows [b, t] that have tokens.
class Runs {
 public:
  static int64_t bytes(const TensorView& segments) { return align(segments.elements() * int64_t{sizeof(Run)}); }

  Runs(const TensorView& segments, std::span<std::byte> scratch) : list_(reinterpret_cast<Run*>(scratch.data())) {
    const int64_t t = segments.shape[1], count = segments.elements();
    auto number = [&](int64_t i) {
      int32_t out;
      std::memcpy(&out, segments.data + i * 4, sizeof out);
      return out;
    };
    for (int64_t i = 0; i < count;) {
      const int64_t begin = i;
      const int32_t segment = number(i);
      do ++i;
      while (i % t && number(i) == segment);
      if (segment >= 0) list_[count_++] = {begin, i};
    }
  }
  int64_t count() const { return count_; }
  const Run& operator[](int64_t i) const { return list_[i]; }

 private:
  Run* list_;
  int64_t count_ = 0;
};

TensorView operand(const KernelCall& call, size_t i) {
  return i < call.inputs.size() ? call.inputs[i] : TensorView{};
}
/// Output k as zeros; null where nobody wants it.
float* zeros(const KernelCall& call, size_t k) {
  if (k >= call.outputs.size() || !call.outputs[k].present()) return nullptr;
  std::memset(call.outputs[k].data, 0, static_cast<size_t>(call.outputs[k].bytes()));
  return call.outputs[k].as<float>();
}

/// Operand `segments` is of i32, all others of f32.
template <size_t segments>
bool accepts(const NodeInfo& node) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (i == segments ? !is(node, i, DType::i32) : !is_f32_or_absent(node, i)) return false;
  return true;
}

template <size_t segments>
int64_t runs_scratch(const KernelState*, std::span<const TensorView> inputs, std::span<const TensorView>, int) {
  return Runs::bytes(inputs[segments]);
}

/// x [b, t, c], w [k, c] and bias? [c] are operands `first`, `first` + 1 and `first` + 3; -1: they fit, else which does not.
int32_t conv_misfit(const KernelCall& call, size_t first) {
  const TensorView &x = call.inputs[first], &w = call.inputs[first + 1], bias = operand(call, first + 3);
  if (w.shape[0] < 1 || w.shape[1] != x.shape[2]) return static_cast<int32_t>(first + 1);
  return bias.present() && bias.elements() != x.shape[2] ? static_cast<int32_t>(first + 3) : -1;
}

/// Channels that one item of work has: 1 KB of each row.
constexpr int64_t channel_block = 256;

/// x [b, t, c], w [k, c], segments [b, t], bias? [c] -> y [b, t, c].
template <Isa isa>
KernelStatus run_conv(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], bias = operand(call, 3);
  if (const int32_t slot = conv_misfit(call, 0); slot >= 0) return {KernelCode::bad_value, slot, w.shape[0]};
  const Runs runs(call.inputs[2], call.scratch);
  float* y = zeros(call, 0);
  const int64_t c = x.shape[2], blocks = (c + channel_block - 1) / channel_block;
  share(call.pool, runs.count() * blocks, x.elements() * w.shape[0], [&](int64_t item, int) {
    const Run& run = runs[item / blocks];
    const int64_t first = item % blocks * channel_block;
    recurrent_tiles(isa).conv({.x = x.as<float>() + run.begin * c + first,
                               .w = w.as<float>() + first,
                               .bias = bias.present() ? bias.as<float>() + first : nullptr,
                               .past = nullptr,
                               .kept = nullptr,
                               .y = y + run.begin * c + first,
                               .tokens = run.end - run.begin,
                               .taps = w.shape[0],
                               .channels = std::min(channel_block, c - first),
                               .stride = c,
                               .silu = static_cast<const ConvState*>(call.state)->silu});
  });
  return {};
}

/// dy, x, w, segments, bias? -> dx?, dw?, dbias?. Sums over tokens belong to channels, so one item has a channel's all.
template <Isa isa>
KernelStatus run_conv_back(const KernelCall& call) {
  const TensorView &x = call.inputs[1], &w = call.inputs[2], bias = operand(call, 4);
  if (const int32_t slot = conv_misfit(call, 1); slot >= 0) return {KernelCode::bad_value, slot, w.shape[0]};
  const Runs runs(call.inputs[3], call.scratch);
  float *dx = zeros(call, 0), *dw = zeros(call, 1), *dbias = zeros(call, 2);
  constexpr int64_t block = 64;  // so that a few hundred channels keep several threads busy
  const int64_t c = x.shape[2], blocks = (c + block - 1) / block;
  share(call.pool, blocks, 3 * x.elements() * w.shape[0], [&](int64_t item, int) {
    const int64_t first = item * block;
    for (int64_t i = 0; i < runs.count(); ++i) {
      const int64_t at = runs[i].begin * c + first;
      recurrent_tiles(isa).conv_back({.dy = call.inputs[0].as<float>() + at,
                                      .x = x.as<float>() + at,
                                      .w = w.as<float>() + first,
                                      .bias = bias.present() ? bias.as<float>() + first : nullptr,
                                      .dx = dx ? dx + at : nullptr,
                                      .dw = dw ? dw + first : nullptr,
                                      .dbias = dbias ? dbias + first : nullptr,
                                      .tokens = runs[i].end - runs[i].begin,
                                      .taps = w.shape[0],
                                      .channels = std::min(block, c - first),
                                      .stride = c,
                                      .silu = static_cast<const ConvState*>(call.state)->silu});
    }
  });
  return {};
}

/// A worker's block of a state, and a factor for each of its keys.
int64_t worker_bytes(int64_t d, int64_t columns) { return align(d * (columns + 1) * 4); }

template <Isa isa>
int64_t attention_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                          int threads) {
  const LinearAttentionSizes s(*static_cast<const LinearAttentionState*>(state), inputs, 0, 4);
  return Runs::bytes(inputs[3]) + threads * worker_bytes(s.d, recurrent_tiles(isa).narrow);
}

/// q, k, v, segments, decay?, beta? -> y.
template <Isa isa>
KernelStatus run_attention(const KernelCall& call) {
  const auto& own = *static_cast<const LinearAttentionState*>(call.state);
  const RecurrentTiles& tiles = recurrent_tiles(isa);
  const LinearAttentionSizes s(own, call.inputs, 0, 4);
  if (const int32_t slot = s.misfit(own, call.inputs, 0, 4); slot >= 0)
    return {KernelCode::bad_value, slot, call.inputs[static_cast<size_t>(slot)].elements()};
  const Runs runs(call.inputs[3], call.scratch);
  float* y = zeros(call, 0);
  const int64_t columns = tiles.narrow, blocks = (s.e + columns - 1) / columns;
  share(call.pool, runs.count() * s.g * blocks, s.tokens * s.n * s.d * s.e, [&](int64_t item, int worker) {
    const Run& run = runs[item / (s.g * blocks)];
    const int64_t head = item / blocks % s.g, first = item % blocks * columns, token = run.begin;
    const int64_t result = head * (s.n / s.g), query = result * s.h / s.n;
    auto at = [&](size_t i, int64_t place) { return call.inputs[i].as<float>() + place; };
    auto* room = reinterpret_cast<float*>(call.scratch.data() + Runs::bytes(call.inputs[3]) +
                                          worker * worker_bytes(s.d, columns));
    tiles.state({.q = at(0, (token * s.h + query) * s.d),
                 .k = at(1, (token * s.keys + head * s.keys / s.g) * s.d),
                 .v = at(2, (token * s.g + head) * s.e + first),
                 .decay = own.gated ? at(4, (token * s.g + head) * (s.decay_each ? s.d : 1)) : nullptr,
                 .beta = own.delta ? at(5, s.beta_each ? token * s.g + head : token) : nullptr,
                 .past = nullptr,
                 .kept = nullptr,
                 .y = y + (token * s.n + result) * s.e + first,
                 .q_stride = s.h * s.d,
                 .k_stride = s.keys * s.d,
                 .v_stride = s.g * s.e,
                 .decay_stride = s.g * (s.decay_each ? s.d : 1),
                 .beta_stride = s.beta_each ? s.g : 1,
                 .y_stride = s.n * s.e,
                 .tokens = run.end - run.begin,
                 .d = s.d,
                 .e = s.e,
                 .columns = std::min(columns, s.e - first),
                 .queries = s.n / s.g,
                 .query_stride = s.d,
                 .result_stride = s.e,
                 .decay_each = s.decay_each,
                 .scale = s.scale,
                 .tile = room,
                 .factors = room + s.d * columns});
  });
  return {};
}

/// Tokens whose states are computed at once, of `tokens` of a segment.
int64_t block_of(int64_t tokens) { return static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(tokens)))); }

/// Scratch of the gradients: gradients by head of what several heads share, and a room for each thread.
struct BackScratch {
  BackScratch(const LinearAttentionSizes& s, const LinearAttentionState& state, const TensorView& segments,
              int64_t wide)
      : runs(Runs::bytes(segments)),
        dq(s.h < s.n ? align(4 * s.tokens * s.n * s.d) : 0),
        dk(s.keys < s.g ? align(4 * s.tokens * s.g * s.d) : 0),
        dbeta(state.delta && !s.beta_each ? align(4 * s.tokens * s.g) : 0),
        room(align(4 * back_room(segments.shape[1], block_of(segments.shape[1]), s.d, std::min(wide, s.e)))) {}
  int64_t bytes(int threads) const { return runs + dq + dk + dbeta + threads * room; }
  int64_t runs, dq, dk, dbeta, room;
};

template <Isa isa>
int64_t back_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                     int threads) {
  const auto& own = *static_cast<const LinearAttentionState*>(state);
  const LinearAttentionSizes s(own, inputs, 1, 5);
  return BackScratch(s, own, inputs[4], recurrent_tiles(isa).wide).bytes(threads);
}

/// to [rows, width] = the sums over r of from [rows, r, width].
void sum_heads(const float* from, int64_t rows, int64_t r, int64_t width, float* to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t head = 0; head < r; ++head)
      for (int64_t j = 0; j < width; ++j) to[i * width + j] += from[(i * r + head) * width + j];
}

/// dy, q, k, v, segments, decay?, beta? -> dq?, dk?, dv?, ddecay?, dbeta?.
template <Isa isa>
KernelStatus run_attention_back(const KernelCall& call) {
  const auto& own = *static_cast<const LinearAttentionState*>(call.state);
  const RecurrentTiles& tiles = recurrent_tiles(isa);
  const LinearAttentionSizes s(own, call.inputs, 1, 5);
  if (const int32_t slot = s.misfit(own, call.inputs, 1, 5); slot >= 0)
    return {KernelCode::bad_value, slot, call.inputs[static_cast<size_t>(slot)].elements()};
  if (call.inputs[0].elements() != s.tokens * s.n * s.e) return {KernelCode::bad_value, 0, call.inputs[0].elements()};
  const BackScratch scratch(s, own, call.inputs[4], tiles.wide);
  const Runs runs(call.inputs[4], call.scratch);
  float *dq = zeros(call, 0), *dk = zeros(call, 1), *dv = zeros(call, 2), *ddecay = zeros(call, 3),
        *dbeta = zeros(call, 4);
  std::byte* by_head = call.scratch.data() + scratch.runs;
  std::memset(by_head, 0, static_cast<size_t>(scratch.dq + scratch.dk + scratch.dbeta));
  auto head_array = [&](float* whole, int64_t bytes) {
    float* out = bytes && whole ? reinterpret_cast<float*>(by_head) : whole;
    by_head += bytes;
    return out;
  };
  float *head_dq = head_array(dq, scratch.dq), *head_dk = head_array(dk, scratch.dk),
        *head_dbeta = head_array(dbeta, scratch.dbeta);
  share(call.pool, runs.count() * s.g, 4 * s.tokens * s.n * s.d * s.e, [&](int64_t item, int worker) {
    const Run& run = runs[item / s.g];
    const int64_t head = item % s.g, token = run.begin, result = head * (s.n / s.g), query = result * s.h / s.n;
    const int64_t own_queries = scratch.dq ? s.n : s.h, own_keys = scratch.dk ? s.g : s.keys;
    auto at = [&](size_t i, int64_t place) { return call.inputs[i].as<float>() + place; };
    auto to = [&](float* array, int64_t place) { return array ? array + place : nullptr; };
    const int64_t decay = (token * s.g + head) * (s.decay_each ? s.d : 1),
                  beta = s.beta_each ? token * s.g + head : token;
    for (int64_t first = 0; first < s.e; first += tiles.wide)
      tiles.state_back(
          {.dy = at(0, (token * s.n + result) * s.e + first),
           .q = at(1, (token * s.h + query) * s.d),
           .k = at(2, (token * s.keys + head * s.keys / s.g) * s.d),
           .v = at(3, (token * s.g + head) * s.e + first),
           .decay = own.gated ? at(5, decay) : nullptr,
           .beta = own.delta ? at(6, beta) : nullptr,
           .dq = to(head_dq, (token * own_queries + (scratch.dq ? result : query)) * s.d),
           .dk = to(head_dk, (token * own_keys + head * own_keys / s.g) * s.d),
           .dv = to(dv, (token * s.g + head) * s.e + first),
           .ddecay = own.gated ? to(ddecay, decay) : nullptr,
           .dbeta = own.delta ? to(head_dbeta, token * s.g + head) : nullptr,
           .y_stride = s.n * s.e,
           .q_stride = s.h * s.d,
           .k_stride = s.keys * s.d,
           .v_stride = s.g * s.e,
           .decay_stride = s.g * (s.decay_each ? s.d : 1),
           .beta_stride = s.beta_each ? s.g : 1,
           .dq_stride = own_queries * s.d,
           .dk_stride = own_keys * s.d,
           .dbeta_stride = s.g,
           .tokens = run.end - run.begin,
           .d = s.d,
           .columns = std::min(tiles.wide, s.e - first),
           .queries = s.n / s.g,
           .query_stride = s.d,
           .result_stride = s.e,
           .decay_each = s.decay_each,
           .scale = s.scale,
           .block = block_of(run.end - run.begin),
           .room = reinterpret_cast<float*>(call.scratch.data() + scratch.bytes(0) + worker * scratch.room)});
  });
  if (head_dq != dq) sum_heads(head_dq, s.tokens * s.h, s.n / s.h, s.d, dq);
  if (head_dk != dk) sum_heads(head_dk, s.tokens * s.keys, s.g / s.keys, s.d, dk);
  if (head_dbeta != dbeta) sum_heads(head_dbeta, s.tokens, s.g, 1, dbeta);
  return {};
}

template <Isa isa>
void add_for(KernelTable& table) {
  add_kernel(table, isa,
             {.op = "plait.PackedConv",
              .dtypes = "f32",
              .accepts = accepts<2>,
              .prepare = prepare_conv,
              .scratch_bytes = runs_scratch<2>,
              .run = run_conv<isa>});
  add_kernel(table, isa,
             {.op = "plait.PackedConvBack",
              .dtypes = "f32",
              .accepts = accepts<3>,
              .prepare = prepare_conv,
              .scratch_bytes = runs_scratch<3>,
              .run = run_conv_back<isa>});
  add_kernel(table, isa,
             {.op = "plait.PackedLinearAttention",
              .dtypes = "f32",
              .accepts = accepts<3>,
              .prepare = prepare_linear_attention<4>,
              .scratch_bytes = attention_scratch<isa>,
              .run = run_attention<isa>});
  add_kernel(table, isa,
             {.op = "plait.PackedLinearAttentionBack",
              .dtypes = "f32",
              .accepts = accepts<4>,
              .prepare = prepare_linear_attention<5>,
              .scratch_bytes = back_scratch<isa>,
              .run = run_attention_back<isa>});
}

}  // namespace

void add_packed_recurrent(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
