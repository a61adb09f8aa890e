// Norms of rows, and softmax.
#include "kernels/cuda/kernels/norm_rows.h"

namespace plait::cuda {

PLAIT_KERNEL(rms_norm_f32, norm_threads, 4, (const float* x, float* y, NormOperands operands)) {
  norm<false>(x, y, operands);
}
PLAIT_KERNEL(rms_norm_bf16, norm_threads, 4, (const Bf16* x, Bf16* y, NormOperands operands)) {
  norm<false>(x, y, operands);
}
PLAIT_KERNEL(rms_norm_f16, norm_threads, 4, (const F16* x, F16* y, NormOperands operands)) {
  norm<false>(x, y, operands);
}
PLAIT_KERNEL(layer_norm_f32, norm_threads, 4, (const float* x, float* y, NormOperands operands)) {
  norm<true>(x, y, operands);
}
PLAIT_KERNEL(layer_norm_bf16, norm_threads, 4, (const Bf16* x, Bf16* y, NormOperands operands)) {
  norm<true>(x, y, operands);
}
PLAIT_KERNEL(layer_norm_f16, norm_threads, 4, (const F16* x, F16* y, NormOperands operands)) {
  norm<true>(x, y, operands);
}

/// A row of only -infinity becomes zeros.
PLAIT_KERNEL(softmax_f32, norm_threads, 4, (SoftmaxOperands o)) {
  const float* const x = o.x + blockIdx.x * o.width;
  float* const y = o.y + blockIdx.x * o.width;
  float most = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < o.width; i += norm_threads) most = fmaxf(most, x[i]);
  most = block_max<norm_threads>(most);
  for (int64_t i = threadIdx.x; i < o.width; i += norm_threads) sum += most == -INFINITY ? 0 : expf(x[i] - most);
  sum = block_sum<norm_threads>(sum);
  for (int64_t i = threadIdx.x; i < o.width; i += norm_threads) y[i] = most == -INFINITY ? 0 : expf(x[i] - most) / sum;
}

}  // namespace plait::cuda
