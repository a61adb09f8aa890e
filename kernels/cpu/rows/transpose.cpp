// Transpose of elements of whole bytes, for any permutation: copies rows if the last dimension stays last, otherwise
// squares of the two fastest dimensions, so that each cache line is touched once. Plain C++: memory dominates.
#include <cstring>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cpu/rows/register.h"
#include "kernels/cpu/simd/share.h"

namespace plait::cpu {
namespace {

struct TransposeState : KernelState {
  std::vector<int64_t> order;  ///< empty: reversed
};

std::shared_ptr<const KernelState> prepare(const NodeInfo& node) {
  auto state = std::make_shared<TransposeState>();
  state->order = node.attributes.integers("perm");
  for (int64_t axis : state->order)
    if (axis < 0 || axis >= Shape::max_rank) throw Error(Code::bad_model, cat("Transpose: perm holds ", axis));
  return state;
}

/// Dimensions of the output: sizes, and steps through the input in elements. Dimensions that stay adjacent are
/// merged.
struct Walk {
  int rank = 0;
  int64_t sizes[Shape::max_rank] = {}, steps[Shape::max_rank] = {};

  Walk(const Shape& x, const std::vector<int64_t>& order) {
    int64_t strides[Shape::max_rank], step = 1;
    for (int i = x.rank() - 1; i >= 0; --i) strides[i] = step, step *= x[i];
    for (int i = 0; i < x.rank(); ++i) {
      int axis = order.empty() ? x.rank() - 1 - i : static_cast<int>(order[static_cast<size_t>(i)]);
      if (x[axis] == 1) continue;
      if (rank && steps[rank - 1] == strides[axis] * x[axis]) {
        sizes[rank - 1] *= x[axis];
        steps[rank - 1] = strides[axis];
      } else {
        sizes[rank] = x[axis], steps[rank++] = strides[axis];
      }
    }
    if (rank == 0) sizes[0] = 1, steps[0] = 1, rank = 1;
  }

  /// The dimension along which the input is contiguous.
  int fastest() const { return static_cast<int>(std::find(steps, steps + rank, 1) - steps); }
};

/// y[i, j] = x[j, i] for a rows x columns piece: i < rows moves 1 in x, j < columns moves 1 in y.
template <class T>
void transpose(const std::byte* x, int64_t x_step, std::byte* y, int64_t y_step, int64_t rows, int64_t columns) {
  constexpr int64_t square = 16, size = sizeof(T);
  for (int64_t i0 = 0; i0 < rows; i0 += square)
    for (int64_t j0 = 0; j0 < columns; j0 += square)
      for (int64_t i = i0; i < std::min(rows, i0 + square); ++i)
        for (int64_t j = j0; j < std::min(columns, j0 + square); ++j)
          memcpy(y + (i * y_step + j) * size, x + (j * x_step + i) * size, sizeof(T));
}

void transpose(int64_t size, const std::byte* x, int64_t x_step, std::byte* y, int64_t y_step, int64_t rows,
          int64_t columns) {
  if (size == 1) transpose<uint8_t>(x, x_step, y, y_step, rows, columns);
  if (size == 2) transpose<uint16_t>(x, x_step, y, y_step, rows, columns);
  if (size == 4) transpose<uint32_t>(x, x_step, y, y_step, rows, columns);
  if (size == 8) transpose<uint64_t>(x, x_step, y, y_step, rows, columns);
}

KernelStatus run(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.outputs[0];
  const int64_t size = dtype_bits(x.dtype) / 8, count = y.elements();
  if (count == 0) return {};
  const Walk walk(x.shape, static_cast<const TransposeState*>(call.state)->order);
  const int last = walk.rank - 1, fastest = walk.fastest();
  const int64_t columns = walk.sizes[last], rows = fastest == last ? 1 : walk.sizes[fastest];
  int64_t y_steps[Shape::max_rank], step = 1;
  for (int i = last; i >= 0; --i) y_steps[i] = step, step *= walk.sizes[i];
  // All dimensions except the last and, if different, the input's fastest.
  share_ranges(call.pool, count / (rows * columns), 1, rows * columns, [&](int64_t begin, int64_t end, int) {
    for (int64_t item = begin; item < end; ++item) {
      int64_t rest = item, from = 0, to = 0;
      for (int axis = last - 1; axis >= 0; --axis) {
        if (axis == fastest) continue;
        int64_t index = rest % walk.sizes[axis];
        rest /= walk.sizes[axis];
        from += index * walk.steps[axis], to += index * y_steps[axis];
      }
      if (fastest == last) memcpy(y.data + to * size, x.data + from * size, static_cast<size_t>(columns * size));
      else
        transpose(size, x.data + from * size, walk.steps[last], y.data + to * size, y_steps[fastest], rows, columns);
    }
  });
  return {};
}

bool accepts(const NodeInfo& node) {
  int bits = dtype_bits(node.inputs[0].dtype);
  return bits >= 8 && bits <= 64;
}

}  // namespace

void add_transpose(KernelTable& table, Isa isa) {
  if (isa > Isa::avx512) return;
  add_kernel(table, isa, {.op = "Transpose", .dtypes = "any", .accepts = accepts, .prepare = prepare, .run = run});
}

}  // namespace plait::cpu
