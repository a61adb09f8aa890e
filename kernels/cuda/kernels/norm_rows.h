#pragma once
// A norm of a row, for kernels of a block a row: RMSNorm (Zhang and Sennrich 2019) and LayerNorm (Ba et al. 2016), of x or of x + added.
#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/norm.h"
#include "kernels/cuda/kernels/sums.h"

namespace plait::cuda {

PLAIT_DEVICE float norm_factor(const NormRow& row, int i) { return load_element(row.data, row.element, i * row.stride); }

/// y = (x - mean) inverse scale + bias; `centre` false: mean is 0. A row's result depends on no other row.
template <bool centre, class T>
PLAIT_DEVICE void norm(const T* x, T* y, const NormOperands& o) {
  const int64_t row = blockIdx.x, begin = row * o.width;
  const float* added = o.added ? o.added + row % o.added_rows * o.width : nullptr;
  const auto value = [&](int i) { return value_of(x[begin + i]) + (added ? added[i] : 0); };
  float mean = 0, squares = 0;
  if (centre) {
    for (int i = threadIdx.x; i < o.width; i += norm_threads) mean += value(i);
    mean = block_sum<norm_threads>(mean) / o.width;
  }
  for (int i = threadIdx.x; i < o.width; i += norm_threads) {
    const float distance = value(i) - mean;
    squares += distance * distance;
  }
  const float inverse = rsqrtf(block_sum<norm_threads>(squares) / o.width + o.epsilon);
  for (int i = threadIdx.x; i < o.width; i += norm_threads) {
    const float of_x = value(i);
    if (o.sum) o.sum[begin + i] = of_x;
    const float scaled = (of_x - mean) * inverse * norm_factor(o.scale, i);
    store(y + begin + i, o.bias.data ? scaled + norm_factor(o.bias, i) : scaled);
  }
  if (threadIdx.x == 0) {
    if (o.means) o.means[row] = mean;
    if (o.inverses) o.inverses[row] = inverse;
  }
}

}  // namespace plait::cuda
