#pragma once
// Shared by kernels that multiply by weights: the split of a product into items, and the block of outputs of an item,
// from whole or quantised weights, with few rows of x or many.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "core/base/tensor.h"
#include "core/exec/kernel.h"
#include "kernels/cpu/linear/blocked_tile.h"
#include "kernels/cpu/rows/elementwise_loops.h"
#include "kernels/cpu/linear/linear_tile.h"
#include "kernels/cpu/linear/packed_tile.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {

/// The split of a linear of n rows of w. Depends on the number of rows of x only if the bits do not.
struct LinearPlan {
  int64_t columns;  ///< rows of w in an item
  int64_t rows;     ///< rows of x in an item
};

/// Maximum rows of x at a time: bounds the scratch for the gate to rows * columns.
constexpr int64_t most_rows = 512;

/// Kernels of these instruction sets round x to bf16.
constexpr bool rounds_x(Isa isa) { return isa >= Isa::avx512_bf16; }
/// The instruction set of f32 loops, for one that has none of its own.
constexpr Isa loops_of(Isa isa) { return rounds_x(isa) ? Isa::avx512 : isa; }
/// Up to this many rows of x memory dominates: w is read once, in place.
constexpr int64_t few_rows(Isa isa) { return isa == Isa::avx2 ? 6 : 12; }
constexpr bool packs_x(Isa isa, int64_t m) { return rounds_x(isa) || m > few_rows(isa); }

/// A block of w in f32 should take no more than half of a 1 MB L2, with about 4 items per thread.
inline int64_t plan_columns(Isa isa, int64_t n, int64_t k, int threads) {
  const int64_t multiple = std::max<int64_t>(packed_tiles(isa).columns, 16);
  int64_t fits = (512 << 10) / (4 * std::max<int64_t>(k, 1)), fair = n / (4 * threads);
  return std::clamp<int64_t>(std::min(fits, fair) / multiple * multiple, multiple, 64);
}

/// Rows of w in an item. Few rows of x do not reuse w: long items, to read memory in long streams.
inline int64_t item_columns(Isa isa, int64_t m, int64_t n, int64_t k, int threads) {
  if (m > few_rows(isa)) return plan_columns(isa, n, k, threads);
  return std::clamp<int64_t>(n / (4 * threads) / 8 * 8, 16, 1024);
}

inline LinearPlan make_plan(Isa isa, int64_t m, int64_t n, int64_t k, int threads) {
  LinearPlan plan{item_columns(isa, m, n, k, threads), std::min(m, most_rows)};
  int64_t items = (n + plan.columns - 1) / plan.columns;
  // Few rows of w, many of x: also splits x, into parts of at least 48 rows, which amortise converting w again.
  if (items < 4 * threads && m > 96) {
    int64_t parts = std::min((4 * threads + items - 1) / std::max<int64_t>(items, 1), m / 48);
    plan.rows = std::min(plan.rows, (m + parts - 1) / parts);
  }
  if (packs_x(isa, m)) {
    const int64_t group = packed_tiles(isa).group(m);
    plan.rows = (plan.rows + group - 1) / group * group;
  }
  return plan;
}

/// A weight of a linear: [n, k], or codes [n, c, l] with scales and zero points.
struct Weight {
  const uint8_t* data = nullptr;
  DType dtype = DType::none;  ///< none: there is no weight
  int64_t n = 0;
  bool is_blocked = false;
  BlockedWeight blocked{};

  bool present() const { return dtype != DType::none; }
  /// Elements of a row of x in the product; x has `k`.
  int64_t inner(int64_t k) const { return is_blocked ? blocked.padded() : k; }
};

/// The weight with these operands: of rank 2 or 3, with scales and zero points of rank 2 (or absent); or number
/// `index` of a stack of such, all of one rank more.
inline Weight weight_of(const TensorView& w, const TensorView& scales, const TensorView& zeros, float zero,
                        int stacked = 0, int64_t index = 0) {
  const int rank = w.shape.rank() - stacked;
  auto part = [&](const TensorView& view) {  // of one in the stack
    if (!stacked || !view.present()) return view.as<const uint8_t>();
    return view.as<const uint8_t>() + index * view.shape.elements(1, view.shape.rank()) * dtype_bits(view.dtype) / 8;
  };
  Weight out{part(w), w.dtype, w.shape[stacked], rank == 3, {}};
  if (!out.is_blocked || !scales.present()) return out;
  out.blocked = {out.data, w.dtype, out.n, w.shape[stacked + 1], w.shape[stacked + 2], part(scales), scales.dtype};
  out.blocked.zero = zero;
  if (zeros.present()) {
    out.blocked.zeros = part(zeros);
    out.blocked.zero_dtype = zeros.dtype;
  }
  return out;
}

/// Whether a node's operand can be a weight_of: its dtype, and those of its scales and zero points.
inline bool is_weight(const OperandInfo& w) {
  return w.rank == 2 && (w.dtype == DType::f32 || w.dtype == DType::bf16 || w.dtype == DType::f16);
}
inline bool is_absent(const NodeInfo& node, size_t i) {
  return i >= node.inputs.size() || node.inputs[i].dtype == DType::none;
}
/// Whole, or quantised with its scales and zero points.
inline bool is_weight(const NodeInfo& node, size_t w, size_t scales, size_t zeros) {
  if (node.inputs[w].rank != 3) return is_weight(node.inputs[w]) && is_absent(node, scales) && is_absent(node, zeros);
  const int bits = dtype_bits(node.inputs[w].dtype);
  const DType codes = node.inputs[w].dtype;
  if (!(bits == 2 || bits == 4 || codes == DType::u8 || codes == DType::i8)) return false;
  if (is_absent(node, scales) || !is_weight(node.inputs[scales])) return false;
  if (is_absent(node, zeros)) return true;
  const DType dtype = node.inputs[zeros].dtype;
  return is_weight(node.inputs[zeros]) ||
         (node.inputs[zeros].rank == 2 && (dtype == DType::u8 || dtype == DType::i8));
}

/// What an item works with.
struct Worker {
  const float* x;           ///< [m, k]
  int64_t k;                ///< in the product
  const std::byte* packed;  ///< null: x is not packed
  int64_t group;
  float* block;
  float* side;
  float* rows;
  int threads;
};

/// Quantised weights and rows of x that were not packed.
template <Isa isa>
void run_few(const Worker& worker, const BlockedWeight& w, int64_t i, int64_t rows, int64_t j, int64_t columns,
             float* y, int64_t ldy) {
  const BlockedTiles& tiles = blocked_tiles(isa);
  const float* x = worker.x + i * worker.k;
  if (w.grouped() && rows <= tiles.most_dot_rows) return tiles.dot({x, rows, w, j, columns, y, ldy, worker.rows});
  constexpr int64_t together = 8;
  for (int64_t end = j + columns; j < end; j += together, y += together) {
    const int64_t count = std::min(together, end - j);
    tiles.unpack(w, j, count, worker.rows, worker.rows + together * worker.k);
    linear_tiles(isa).block(
        {x, worker.k, rows, reinterpret_cast<const uint8_t*>(worker.rows), DType::f32, count, worker.k, y, ldy});
  }
}

/// Rows [i, i + rows) of x with rows [j, j + columns) of w. `next` is prefetched.
template <Isa isa>
void run_block(const Worker& worker, const Weight& weight, int64_t i, int64_t rows, int64_t j, int64_t columns,
               float* y, int64_t ldy, const uint8_t* next) {
  const int64_t k = worker.k;
  if (weight.is_blocked) {
    if constexpr (!rounds_x(isa)) {
      if (worker.packed)
        packed_tiles(isa).block({worker.packed, worker.group, i, rows, nullptr, DType::f32, columns, k, y, ldy,
                                 worker.block, nullptr, &weight.blocked, j, worker.rows});
      else run_few<isa>(worker, weight.blocked, i, rows, j, columns, y, ldy);
    }
    return;
  }
  const uint8_t* weights = weight.data + j * k * dtype_bits(weight.dtype) / 8;
  if (worker.packed)
    packed_tiles(isa).block(
        {worker.packed, worker.group, i, rows, weights, weight.dtype, columns, k, y, ldy, worker.block, next});
  else if constexpr (!rounds_x(isa))
    linear_tiles(isa).block({worker.x + i * k, k, rows, weights, weight.dtype, columns, k, y, ldy});
}

/// The loop of attribute "activation". Throws Error(bad_model), with the op's name, for an unknown one.
Unary unary_activation(const NodeInfo& node);

/// Adds elements [j, j + columns) of a bias in f32, bf16 or f16 to rows of y. `buffer` has columns floats.
inline void add_bias(const ElementwiseLoops& loops, const uint8_t* bias, DType dtype, int64_t j, int64_t rows,
                     int64_t columns, float* y, int64_t ldy, float* buffer) {
  bias += j * dtype_bits(dtype) / 8;
  if (dtype == DType::bf16) loops.widen_bf16(bias, buffer, columns);
  else if (dtype == DType::f16) loops.widen_f16(bias, buffer, columns);
  else memcpy(buffer, bias, static_cast<size_t>(columns) * sizeof(float));
  for (int64_t row = 0; row < rows; ++row)
    loops.binary[static_cast<int>(Binary::add)](y + row * ldy, 1, buffer, 1, y + row * ldy, columns);
}

}  // namespace plait::cpu
