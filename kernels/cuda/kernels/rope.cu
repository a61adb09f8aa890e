// Rotary position embedding (Su et al. 2021). y may be x.
#include "kernels/cuda/kernels/rope.h"

#include "kernels/cuda/kernels/device.h"

namespace plait::cuda {

PLAIT_KERNEL(rope_f32, rope_threads, 8, (RopeOperands o)) {
  const int64_t token = blockIdx.x, first = token * o.heads * o.d;
  const int rest = o.d - 2 * o.z, of_head = o.z + rest;  // pairs, then what is not rotated
  for (int i = threadIdx.x; i < o.heads * of_head; i += rope_threads) {
    const int head = i / of_head, j = i % of_head;
    const int64_t at = first + static_cast<int64_t>(head) * o.d;
    if (j >= o.z) {
      o.y[at + o.z + j] = o.x[at + o.z + j];
      continue;
    }
    const int64_t a = at + (o.interleaved ? 2 * j : j), b = at + (o.interleaved ? 2 * j + 1 : j + o.z);
    const float x = o.x[a], y = o.x[b], cos = o.cos[token * o.z + j], sin = o.sin[token * o.z + j];
    o.y[a] = x * cos - y * sin;
    o.y[b] = y * cos + x * sin;
  }
}

}  // namespace plait::cuda
