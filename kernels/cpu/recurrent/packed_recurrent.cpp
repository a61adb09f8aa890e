// plait.PackedConv and plait.PackedLinearAttention, and their gradients: recurrences inside the segments of packed
// rows. The arithmetic is in recurrent_tile.cpp and chunked_tile.cpp.
//
// A chunk of tokens begins with its segment, and a segment's heads are computed one by one, each by one thread: so a
// document's bits do not depend on other documents or the number of threads.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/recurrent/chunked_tile.h"
#include "kernels/cpu/recurrent/recurrent.h"
#include "kernels/cpu/recurrent/recurrent_tile.h"
#include "kernels/cpu/recurrent/register.h"
#include "kernels/cpu/simd/share.h"

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

  Runs(const TensorView& segments, std::span<std::byte> scratch)
      : list_(reinterpret_cast<Run*>(scratch.data())), tokens_(segments.elements()) {
    const int64_t t = segments.shape[1], count = tokens_;
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

  /// Zeros in the rows of an array whose tokens have no segment.
  void clear_others(float* rows, int64_t width) const {
    for (int64_t i = 0, from = 0; i <= count_; ++i) {
      const int64_t until = i < count_ ? list_[i].begin : tokens_;
      std::memset(rows + from * width, 0, static_cast<size_t>((until - from) * width) * sizeof(float));
      if (i < count_) from = list_[i].end;
    }
  }

 private:
  Run* list_;
  int64_t tokens_, count_ = 0;
};

TensorView operand(const KernelCall& call, size_t i) {
  return i < call.inputs.size() ? call.inputs[i] : TensorView{};
}
/// Output k; null if it is not wanted.
float* output(const KernelCall& call, size_t k) {
  return k < call.outputs.size() && call.outputs[k].present() ? call.outputs[k].as<float>() : nullptr;
}
/// The same, zeroed.
float* zeros(const KernelCall& call, size_t k) {
  if (!output(call, k)) return nullptr;
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

/// x [b, t, c], w [k, c] and bias? [c] are operands `first`, `first` + 1 and `first` + 3; returns the one that does
/// not fit, -1 if none.
int32_t conv_misfit(const KernelCall& call, size_t first) {
  const TensorView &x = call.inputs[first], &w = call.inputs[first + 1], bias = operand(call, first + 3);
  if (w.shape[0] < 1 || w.shape[1] != x.shape[2]) return static_cast<int32_t>(first + 1);
  return bias.present() && bias.elements() != x.shape[2] ? static_cast<int32_t>(first + 3) : -1;
}

/// Channels of one item of work: 1 KB of each row.
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

/// dy, x, w, segments, bias? -> dx?, dw?, dbias?. Sums over tokens are per channel, so one item has all of a channel.
template <Isa isa>
KernelStatus run_conv_back(const KernelCall& call) {
  const TensorView &x = call.inputs[1], &w = call.inputs[2], bias = operand(call, 4);
  if (const int32_t slot = conv_misfit(call, 1); slot >= 0) return {KernelCode::bad_value, slot, w.shape[0]};
  const Runs runs(call.inputs[3], call.scratch);
  float *dx = zeros(call, 0), *dw = zeros(call, 1), *dbias = zeros(call, 2);
  constexpr int64_t block = 64;  // so that a few hundred channels occupy several threads
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

int64_t workspace_bytes(const LinearAttentionSizes& s, const LinearAttentionState& own, int64_t tokens) {
  return align(4 * ChunkWorkspace(s.d, s.e, s.n / s.g, s.n / s.g + (own.delta ? 1 : 0), tokens).floats);
}

int64_t attention_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                          int threads) {
  const auto& own = *static_cast<const LinearAttentionState*>(state);
  const LinearAttentionSizes s(own, inputs, 0, 4);
  return Runs::bytes(inputs[3]) + threads * workspace_bytes(s, own, 0);
}

/// q, k, v, segments, decay?, beta? -> y.
template <Isa isa>
KernelStatus run_attention(const KernelCall& call) {
  const auto& own = *static_cast<const LinearAttentionState*>(call.state);
  const LinearAttentionSizes s(own, call.inputs, 0, 4);
  if (const int32_t slot = s.misfit(own, call.inputs, 0, 4); slot >= 0)
    return {KernelCode::bad_value, slot, call.inputs[static_cast<size_t>(slot)].elements()};
  const Runs runs(call.inputs[3], call.scratch);
  float* y = output(call, 0);
  runs.clear_others(y, s.n * s.e);
  std::byte* workspaces = call.scratch.data() + Runs::bytes(call.inputs[3]);
  const int64_t workspace = workspace_bytes(s, own, 0);
  share(call.pool, runs.count() * s.g, s.tokens * s.n * s.d * s.e, [&](int64_t item, int worker) {
    const Run& run = runs[item / s.g];
    const int64_t head = item % s.g;
    chunked_tiles(isa).run({.of = s.tokens_of(own, call.inputs, 0, 4, head, run.begin, run.end),
                            .y = y + (run.begin * s.n + s.result_of(head)) * s.e,
                            .y_stride = s.n * s.e,
                            .result_stride = s.e,
                            .workspace = reinterpret_cast<float*>(workspaces + worker * workspace)});
  });
  return {};
}

/// Scratch of the gradients: gradients by head of operands that several heads share, and a workspace for each thread.
struct BackScratch {
  BackScratch(const LinearAttentionSizes& s, const LinearAttentionState& state, const TensorView& segments)
      : runs(Runs::bytes(segments)),
        dq(s.h < s.n ? align(4 * s.tokens * s.n * s.d) : 0),
        dk(s.keys < s.g ? align(4 * s.tokens * s.g * s.d) : 0),
        dbeta(state.delta && !s.beta_each ? align(4 * s.tokens * s.g) : 0),
        workspace(workspace_bytes(s, state, segments.shape[1])) {}
  int64_t bytes(int threads) const { return runs + dq + dk + dbeta + threads * workspace; }
  int64_t runs, dq, dk, dbeta, workspace;
};

int64_t back_scratch(const KernelState* state, std::span<const TensorView> inputs, std::span<const TensorView>,
                     int threads) {
  const auto& own = *static_cast<const LinearAttentionState*>(state);
  return BackScratch(LinearAttentionSizes(own, inputs, 1, 5), own, inputs[4]).bytes(threads);
}

/// to [rows, width] = the sums over r of from [rows, r, width].
void sum_heads(ThreadPool& pool, const float* from, int64_t rows, int64_t r, int64_t width, float* to) {
  share_ranges(pool, rows, 1, r * width, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const float* parts = from + i * r * width;
      std::copy_n(parts, width, to + i * width);
      for (int64_t head = 1; head < r; ++head)
        for (int64_t j = 0; j < width; ++j) to[i * width + j] += parts[head * width + j];
    }
  });
}

/// dy, q, k, v, segments, decay?, beta? -> dq?, dk?, dv?, ddecay?, dbeta?.
template <Isa isa>
KernelStatus run_attention_back(const KernelCall& call) {
  const auto& own = *static_cast<const LinearAttentionState*>(call.state);
  const LinearAttentionSizes s(own, call.inputs, 1, 5);
  if (const int32_t slot = s.misfit(own, call.inputs, 1, 5); slot >= 0)
    return {KernelCode::bad_value, slot, call.inputs[static_cast<size_t>(slot)].elements()};
  if (call.inputs[0].elements() != s.tokens * s.n * s.e) return {KernelCode::bad_value, 0, call.inputs[0].elements()};
  const BackScratch scratch(s, own, call.inputs[4]);
  const Runs runs(call.inputs[4], call.scratch);
  float *dq = output(call, 0), *dk = output(call, 1), *dv = output(call, 2),
        *ddecay = own.gated ? output(call, 3) : zeros(call, 3), *dbeta = own.delta ? output(call, 4) : zeros(call, 4);
  std::byte* by_head = call.scratch.data() + scratch.runs;
  auto head_array = [&](float* whole, int64_t bytes) {
    float* out = bytes && whole ? reinterpret_cast<float*>(by_head) : whole;
    by_head += bytes;
    return out;
  };
  float *head_dq = head_array(dq, scratch.dq), *head_dk = head_array(dk, scratch.dk),
        *head_dbeta = head_array(dbeta, scratch.dbeta);
  share(call.pool, runs.count() * s.g, 4 * s.tokens * s.n * s.d * s.e, [&](int64_t item, int worker) {
    const Run& run = runs[item / s.g];
    const int64_t head = item % s.g, token = run.begin;
    const int64_t queries = scratch.dq ? s.n : s.h,
                  keys = scratch.dk ? s.g : s.keys;  // of a token, with gradients
    auto to = [](float* array, int64_t place) { return array ? array + place : nullptr; };
    chunked_tiles(isa).back(
        {.of = s.tokens_of(own, call.inputs, 1, 5, head, run.begin, run.end),
         .dy = call.inputs[0].as<float>() + (token * s.n + s.result_of(head)) * s.e,
         .dq = to(head_dq, (token * queries + (scratch.dq ? s.result_of(head) : s.query_of(head))) * s.d),
         .dk = to(head_dk, (token * keys + (scratch.dk ? head : s.key_of(head))) * s.d),
         .dv = to(dv, (token * s.g + head) * s.e),
         .ddecay = own.gated ? to(ddecay, s.decay_at(token, head)) : nullptr,
         .dbeta = own.delta ? to(head_dbeta, token * s.g + head) : nullptr,
         .y_stride = s.n * s.e,
         .result_stride = s.e,
         .dq_stride = queries * s.d,
         .dk_stride = keys * s.d,
         .dbeta_stride = s.g,
         .workspace = reinterpret_cast<float*>(call.scratch.data() + scratch.bytes(0) + worker * scratch.workspace)});
  });
  if (head_dq != dq) sum_heads(call.pool, head_dq, s.tokens * s.h, s.n / s.h, s.d, dq);
  if (head_dk != dk) sum_heads(call.pool, head_dk, s.tokens * s.keys, s.g / s.keys, s.d, dk);
  if (head_dbeta != dbeta) sum_heads(call.pool, head_dbeta, s.tokens, s.g, 1, dbeta);
  for (size_t k = 0; k < call.outputs.size(); ++k)
    if (float* rows = output(call, k))
      runs.clear_others(rows, call.outputs[k].elements() / std::max<int64_t>(s.tokens, 1));
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
              .scratch_bytes = attention_scratch,
              .run = run_attention<isa>});
  add_kernel(table, isa,
             {.op = "plait.PackedLinearAttentionBack",
              .dtypes = "f32",
              .accepts = accepts<4>,
              .prepare = prepare_linear_attention<5>,
              .scratch_bytes = back_scratch,
              .run = run_attention_back<isa>});
}

}  // namespace

void add_packed_recurrent(KernelTable& table, Isa isa) {
  if (isa == Isa::avx2) add_for<Isa::avx2>(table);
  if (isa == Isa::avx512) add_for<Isa::avx512>(table);
}

}  // namespace plait::cpu
