// Sums over devices, in ascending order of ranks: the same bits on all of them. The writes are a launch of their own, which waits for
// nothing, so that any order of blocks ends.
#include "kernels/cuda/peer_sums.h"

#include "kernels/cuda/kernels/device.h"

namespace plait::cuda {
namespace {

PLAIT_DEVICE int64_t element_at() {
  return static_cast<int64_t>(blockIdx.x) * peer_threads + threadIdx.x;
}
PLAIT_DEVICE int64_t place_of(const PeerSumOperands& o, int rank, int64_t i) {
  return (static_cast<int64_t>(o.number % peer_slots) * o.ranks + rank) * peer_elements + i;
}

/// NaN if one is NaN.
PLAIT_DEVICE float joined(PeerReduction reduction, float a, float b) {
  if (reduction == PeerReduction::max) return a != a || a > b ? a : b;
  if (reduction == PeerReduction::min) return a != a || a < b ? a : b;
  return a + b;
}

}  // namespace

PLAIT_KERNEL(peer_write, peer_threads, 4, (PeerSumOperands o)) {
  const int64_t i = element_at();
  if (i >= o.count) return;
  const uint32_t bits = __float_as_uint(o.data[i]);
#pragma unroll
  for (int rank = 0; rank < most_peers; ++rank)
    if (rank < o.ranks && rank != o.rank) store_flagged(o.buffers[rank] + place_of(o, o.rank, i), bits, o.number);
}

PLAIT_KERNEL(peer_sum, peer_threads, 4, (PeerSumOperands o)) {
  const int64_t i = element_at();
  if (i >= o.count) return;
  const float own = o.data[i];
  float sum = 0;
  for (int rank = 0; rank < o.ranks; ++rank) {
    float value = own;
    if (rank != o.rank) {
      uint32_t bits = 0;
      if (!spin_until(o.own + place_of(o, rank, i), o.number, o.stop, bits)) return;
      value = __uint_as_float(bits);
    }
    sum = rank ? joined(o.reduction, sum, value) : value;
  }
  o.data[i] = sum;
}

}  // namespace plait::cuda
