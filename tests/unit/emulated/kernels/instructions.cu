// One instruction each, on operands in memory.
#include "kernels/cuda/kernels/device.h"

namespace plait::test {

/// a [lane][4], b [lane][2], sums [lane][4]: registers of the lanes.
PLAIT_KERNEL(one_mma_bf16, 32, 1, (const uint32_t* a, const uint32_t* b, float* sums)) {
  const unsigned lane = threadIdx.x;
  Sums own{{0, 0, 0, 0}};
  mma_bf16(own, {{a[lane * 4], a[lane * 4 + 1], a[lane * 4 + 2], a[lane * 4 + 3]}}, b[lane * 2], b[lane * 2 + 1]);
  for (int i = 0; i < 4; ++i) sums[lane * 4 + i] = own.c[i];
}
PLAIT_KERNEL(one_mma_f16, 32, 1, (const uint32_t* a, const uint32_t* b, float* sums)) {
  const unsigned lane = threadIdx.x;
  Sums own{{0, 0, 0, 0}};
  mma_f16(own, {{a[lane * 4], a[lane * 4 + 1], a[lane * 4 + 2], a[lane * 4 + 3]}}, b[lane * 2], b[lane * 2 + 1]);
  for (int i = 0; i < 4; ++i) sums[lane * 4 + i] = own.c[i];
}
/// rows [32][8] of 16 bits -> registers [lane][4].
PLAIT_KERNEL(one_load_matrices, 32, 1, (const uint16_t* rows, uint32_t* registers, int32_t transposed)) {
  PLAIT_SHARED(uint16_t, shared, 32 * 8);
  for (int i = 0; i < 8; ++i) shared[threadIdx.x * 8 + i] = rows[threadIdx.x * 8 + i];
  __syncthreads();
  const uint16_t* row = shared + threadIdx.x * 8;
  const Fragment out = transposed ? load_matrices_transposed(row) : load_matrices(row);
  for (int i = 0; i < 4; ++i) registers[threadIdx.x * 4 + i] = out.r[i];
}

}  // namespace plait::test
