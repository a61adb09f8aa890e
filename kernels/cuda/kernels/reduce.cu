// Reductions over any dims, and the first of rows. The order of a sum depends on the number of elements only.
#include "kernels/cuda/kernels/reduce.h"

#include "kernels/cuda/kernels/indices.h"
#include "kernels/cuda/kernels/order.h"
#include "kernels/cuda/kernels/sums.h"

namespace plait::cuda {
namespace {

PLAIT_DEVICE int64_t number_of_warp() {
  return static_cast<int64_t>(blockIdx.x) * reduce_warps + threadIdx.x / 32;
}

/// A bit for each dim that is reduced.
PLAIT_DEVICE uint32_t reduced_dims(const ReduceOperands& o) {
  if (!o.entries) return o.without_axes ? ~0U : 0;
  uint32_t out = 0;
  for (int64_t i = 0; i < o.entries; ++i) {
    const int64_t named = load_index(o.axes, i), axis = named < 0 ? named + o.rank : named;
    if (axis < 0 || axis >= o.rank) report_index(o.report, 1, named);
    else out |= 1U << axis;
  }
  return out;
}

/// Where element `kept` of y begins in x, or element `within` of those that it reduces is from there.
PLAIT_DEVICE int64_t place_in(const ReduceOperands& o, uint32_t dims, int64_t number) {
  int64_t at = 0, step = 1;
  for (int dim = static_cast<int>(o.rank) - 1; dim >= 0; --dim) {
    if (dims >> dim & 1) at += number % o.sizes[dim] * step, number /= o.sizes[dim];
    step *= o.sizes[dim];
  }
  return at;
}

/// NaN if one is NaN.
PLAIT_DEVICE float joined(Reduction reduction, float a, float b) {
  if (reduction == Reduction::maximum) return a != a || a > b ? a : b;
  if (reduction == Reduction::minimum) return a != a || a < b ? a : b;
  return a + b;
}

}  // namespace

PLAIT_KERNEL(reduce_f32, reduce_threads, 4, (ReduceOperands o)) {
  const int64_t i = number_of_warp();
  if (i >= o.count) return;
  const uint32_t reduced = reduced_dims(o);
  int64_t elements = 1;
  for (int dim = 0; dim < o.rank; ++dim) elements *= reduced >> dim & 1 ? o.sizes[dim] : 1;
  const float* const x = o.x + place_in(o, ~reduced, i);
  float value = o.reduction == Reduction::maximum ? -INFINITY : o.reduction == Reduction::minimum ? INFINITY : 0;
  for (int64_t k = threadIdx.x % 32; k < elements; k += 32) value = joined(o.reduction, value, x[place_in(o, reduced, k)]);
#pragma unroll
  for (int by = 16; by; by /= 2) value = joined(o.reduction, value, __shfl_xor_sync(~0U, value, by));
  if (o.reduction == Reduction::mean) value = value / static_cast<float>(elements) / o.factor;
  if (threadIdx.x % 32 == 0) o.y[i] = value;
}

PLAIT_KERNEL(top_k_f32, reduce_threads, 4, (TopKOperands o)) {
  const int64_t row = number_of_warp();
  if (row >= o.rows) return;
  const float* const x = o.x + row * o.width;
  const uint32_t flip = o.largest ? 0 : ~0U;  // NaN is the largest
  uint64_t last = 0;
  for (int64_t k = 0; k < o.k; ++k) {
    uint64_t best = ~uint64_t{0};
    for (int64_t i = threadIdx.x % 32; i < o.width; i += 32) {
      const uint64_t order = static_cast<uint64_t>(descending_bits(x[i]) ^ flip) << 32 | static_cast<uint32_t>(i);
      if ((k == 0 || order > last) && order < best) best = order;
    }
    last = warp_min(best);
    const auto at = static_cast<uint32_t>(last);
    if (threadIdx.x % 32) continue;
    if (o.values) o.values[row * o.k + k] = x[at];
    if (o.indices) o.indices[row * o.k + k] = at;
  }
}

}  // namespace plait::cuda
