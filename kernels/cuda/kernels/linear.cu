// Products of tokens with weights. A row of x has the same bits with 1 token or with many: the order of sums depends on k only. Each
// warp adds its chunks (c = warp, warp + 8, ...) in ascending order, then the warps are added in ascending order.
#include "kernels/cuda/kernels/linear.h"

#include "kernels/cuda/kernels/gates.h"
#include "kernels/cuda/kernels/linear_weights.h"
#include "kernels/cuda/kernels/peer_words.h"
#include "kernels/cuda/kernels/sums.h"

namespace plait::cuda {
namespace {

/// What comes after the sum, in f32. `number`: as of number_if_given.
PLAIT_DEVICE void finish(const LinearOperands& o, uint32_t number, int token, int row, float sum) {
  const int64_t at = static_cast<int64_t>(token) * o.n + row;
  if (o.bias) sum += load_element(o.bias, o.bias_element, row);
  if (o.added) sum += o.added[at];
  if (o.gated) sum *= activate(o.gate, o.gated[at]);
  o.y[at] = sum;
  give(o.give, number, at, sum);
}

/// sums += a chunk: 8 units of a strip, or what is left of them if it is not `whole`.
template <class Weights, int tiles, bool whole>
PLAIT_DEVICE void multiply_chunk(Sums (&sums)[tiles], const LinearOperands& o, const uint4* strip, int groups, int chunk,
                                 int first_tile, int lane) {
  uint4 w[Weights::loads];
  const uint4* const from = strip + static_cast<int64_t>(chunk) * Weights::loads * lanes;
#pragma unroll
  for (int i = 0; i < Weights::loads; ++i)
    if (whole || chunk * Weights::loads + i < groups) w[i] = load_once(from + i * lanes);
  const uint4* const columns = static_cast<const uint4*>(o.columns) +
                               (static_cast<int64_t>(first_tile) * o.units + chunk * chunk_units) * Weights::parts * lanes + lane;
#pragma unroll
  for (int i = 0; i < chunk_units; ++i) {
    const int unit = chunk * chunk_units + i;
    if (!whole && unit >= o.units) break;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile) {
      uint4 x[Weights::parts];
#pragma unroll
      for (int j = 0; j < Weights::parts; ++j)
        x[j] = columns[(static_cast<int64_t>(tile) * o.units * Weights::parts + i * Weights::parts + j) * lanes];
      Weights::multiply_unit(sums[tile], w, i, x, o, unit, first_tile + tile, lane);
    }
  }
}

/// A strip of 16 rows for tiles x 8 tokens.
template <class Weights, int tiles>
PLAIT_DEVICE void linear(const LinearOperands& o) {
  constexpr int part = tiles * strip_rows * tile_tokens;
  PLAIT_SHARED(float, parts, linear_warps* part);
  const int lane = threadIdx.x % lanes, warp = threadIdx.x / lanes, g = lane / 4, t = lane % 4;
  const int first_tile = blockIdx.y * tiles, first_token = first_tile * tile_tokens;
  const int groups = (o.units * Weights::loads + chunk_units - 1) / chunk_units;
  const uint4* const strip = static_cast<const uint4*>(o.weights) + static_cast<int64_t>(blockIdx.x) * groups * lanes + lane;
  Sums sums[tiles];
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) sums[tile] = {{0, 0, 0, 0}};
  const int whole_chunks = o.units / chunk_units;
  for (int chunk = warp; chunk < whole_chunks; chunk += linear_warps)
    multiply_chunk<Weights, tiles, true>(sums, o, strip, groups, chunk, first_tile, lane);
  if (o.units % chunk_units && whole_chunks % linear_warps == warp)
    multiply_chunk<Weights, tiles, false>(sums, o, strip, groups, whole_chunks, first_tile, lane);
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      parts[warp * part + (tile * tile_tokens + 2 * t + i % 2) * strip_rows + g + i / 2 * 8] = sums[tile].c[i];
  const uint32_t number = number_if_given(o.give);
  __syncthreads();
  for (int at = threadIdx.x; at < part; at += linear_threads) {
    const int token = first_token + at / strip_rows, row = blockIdx.x * strip_rows + at % strip_rows;
    if (token >= o.tokens || row >= o.n) continue;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < linear_warps; ++i) sum += parts[i * part + at];
    finish(o, number, token, row, sum);
  }
}

/// x as columns: a lane's elements of a unit and tile, 16 bytes a part. Tokens and k that are not there are zeros.
template <bool is_f16, int parts>
PLAIT_DEVICE void make_columns(const ColumnOperands& o) {
  const int lane = threadIdx.x % lanes;
  const int64_t number = static_cast<int64_t>(blockIdx.x) * column_warps + threadIdx.x / lanes;  // tile, unit
  if (number >= static_cast<int64_t>(o.tiles) * o.units) return;
  const int tile = static_cast<int>(number / o.units), unit = static_cast<int>(number % o.units);
  const int token = tile * tile_tokens + lane / 4;
  const int block = unit >> o.block_shift, within = (unit & ((1 << o.block_shift) - 1)) * unit_k + lane % 4 * 8;
  uint32_t out[parts][4];
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float two[2] = {0, 0};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
        const int at = within + 2 * i + e, k = block * o.block + at;
        if (token < o.tokens && at < o.block && k < o.k) two[e] = o.x[static_cast<int64_t>(token) * o.k + k];
    }
    if (is_f16) {  // beyond its range: its largest number
      constexpr float most = 65504;
      two[0] = fminf(fmaxf(two[0], -most), most), two[1] = fminf(fmaxf(two[1], -most), most);
    }
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      const uint32_t rounded = is_f16 ? pack_f16(two[0], two[1]) : pack_bf16(two[0], two[1]);
      const float low = is_f16 ? f16_low(rounded) : bf16_low(rounded), high = is_f16 ? f16_high(rounded) : bf16_high(rounded);
      out[part][i] = rounded;
      two[0] -= low, two[1] -= high;
      sum += low, sum += high;
    }
  }
  uint4* const to = static_cast<uint4*>(o.columns) + number * parts * lanes + lane;
#pragma unroll
  for (int part = 0; part < parts; ++part) to[part * lanes] = {out[part][0], out[part][1], out[part][2], out[part][3]};
  if (!o.column_sums) return;
  sum += __shfl_xor_sync(~0U, sum, 1);
  sum += __shfl_xor_sync(~0U, sum, 2);
  if (lane % 4 == 0) o.column_sums[number * tile_tokens + lane / 4] = sum;
}

/// Weights as they are, [n, k]: a warp a row, for up to 8 tokens. For f32, and for weights that other kernels compute.
template <class T>
PLAIT_DEVICE void linear_plain(const LinearOperands& o) {
  const int lane = threadIdx.x % lanes, row = blockIdx.x * linear_warps + threadIdx.x / lanes;
  const int first_token = blockIdx.y * tile_tokens;
  if (row >= o.n) return;
  const T* const w = static_cast<const T*>(o.weights) + static_cast<int64_t>(row) * o.k;
  float sums[tile_tokens];
#pragma unroll
  for (int i = 0; i < tile_tokens; ++i) sums[i] = 0;
  for (int k = lane; k < o.k; k += lanes) {
    const float weight = value_of(w[k]);
#pragma unroll
    for (int i = 0; i < tile_tokens; ++i)
      if (first_token + i < o.tokens) sums[i] += weight * o.x[static_cast<int64_t>(first_token + i) * o.k + k];
  }
  const uint32_t number = number_if_given(o.give);
#pragma unroll
  for (int i = 0; i < tile_tokens; ++i) {
    if (first_token + i >= o.tokens) break;
    const float sum = warp_sum(sums[i]);
    if (lane == 0) finish(o, number, first_token + i, row, sum);
  }
}

}  // namespace

PLAIT_KERNEL(linear_bf16, linear_threads, 2, (LinearOperands operands)) { linear<PlainWeights<false, 2>, 1>(operands); }
PLAIT_KERNEL(linear_bf16_many, linear_threads, 1, (LinearOperands operands)) { linear<PlainWeights<false, 2>, many_tiles>(operands); }
PLAIT_KERNEL(linear_bf16_rounded, linear_threads, 2, (LinearOperands operands)) { linear<PlainWeights<false, 1>, 1>(operands); }
PLAIT_KERNEL(linear_bf16_rounded_many, linear_threads, 1, (LinearOperands operands)) { linear<PlainWeights<false, 1>, many_tiles>(operands); }
PLAIT_KERNEL(linear_f16, linear_threads, 2, (LinearOperands operands)) { linear<PlainWeights<true, 2>, 1>(operands); }
PLAIT_KERNEL(linear_f16_many, linear_threads, 1, (LinearOperands operands)) { linear<PlainWeights<true, 2>, many_tiles>(operands); }
PLAIT_KERNEL(linear_int8, linear_threads, 2, (LinearOperands operands)) { linear<BlockWeights<Int8Codes, false>, 1>(operands); }
PLAIT_KERNEL(linear_int8_many, linear_threads, 1, (LinearOperands operands)) { linear<BlockWeights<Int8Codes, false>, many_block_tiles>(operands); }
PLAIT_KERNEL(linear_int4, linear_threads, 2, (LinearOperands operands)) { linear<BlockWeights<Int4Codes, false>, 1>(operands); }
PLAIT_KERNEL(linear_int4_many, linear_threads, 1, (LinearOperands operands)) { linear<BlockWeights<Int4Codes, false>, many_block_tiles>(operands); }
PLAIT_KERNEL(linear_int8_zeros, linear_threads, 2, (LinearOperands operands)) {
  linear<BlockWeights<Int8Codes, true>, 1>(operands);
}
PLAIT_KERNEL(linear_int8_zeros_many, linear_threads, 1, (LinearOperands operands)) {
  linear<BlockWeights<Int8Codes, true>, many_block_tiles>(operands);
}
PLAIT_KERNEL(linear_int4_zeros, linear_threads, 2, (LinearOperands operands)) {
  linear<BlockWeights<Int4Codes, true>, 1>(operands);
}
PLAIT_KERNEL(linear_int4_zeros_many, linear_threads, 1, (LinearOperands operands)) {
  linear<BlockWeights<Int4Codes, true>, many_block_tiles>(operands);
}

PLAIT_KERNEL(columns_bf16, column_threads, 4, (ColumnOperands operands)) { make_columns<false, 2>(operands); }
PLAIT_KERNEL(columns_bf16_rounded, column_threads, 4, (ColumnOperands operands)) { make_columns<false, 1>(operands); }
PLAIT_KERNEL(columns_f16, column_threads, 4, (ColumnOperands operands)) { make_columns<true, 2>(operands); }
PLAIT_KERNEL(columns_f16_rounded, column_threads, 4, (ColumnOperands operands)) { make_columns<true, 1>(operands); }

PLAIT_KERNEL(linear_plain_f32, linear_threads, 2, (LinearOperands operands)) { linear_plain<float>(operands); }
PLAIT_KERNEL(linear_plain_bf16, linear_threads, 2, (LinearOperands operands)) { linear_plain<Bf16>(operands); }
PLAIT_KERNEL(linear_plain_f16, linear_threads, 2, (LinearOperands operands)) { linear_plain<F16>(operands); }

}  // namespace plait::cuda
