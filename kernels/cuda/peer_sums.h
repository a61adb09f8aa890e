#pragma once
// Sums over devices that access each other's memory, as kernels take them. Plain C++.
#include <stdint.h>

namespace plait::cuda {

constexpr int most_peers = 8;
/// A rank is one sum ahead of another at most, so that two slots would do.
constexpr int peer_slots = 3;
/// Elements of a sum that goes this way; larger ones are NCCL's.
constexpr int64_t peer_elements = 1 << 14;
constexpr int peer_threads = 256;

enum class PeerReduction : int32_t { sum, max, min };

/// data [count] of all ranks becomes their sum. A rank writes its elements, each with the sum's number, into every other rank's buffer
/// [slot][rank][peer_elements], and reads its own buffer until the numbers are there: one way over the link, and no barrier. (As NCCL's
/// protocol LL.)
struct PeerSumOperands {
  float* data;
  uint64_t* own;                  ///< this rank's buffer: number << 32 | bits of an element
  uint64_t* buffers[most_peers];  ///< by rank
  const int32_t* stop;            ///< not 0: no waiting, since a rank has failed
  int64_t count;
  int32_t rank, ranks;
  uint32_t number;  ///< of the sum, from 1 on
  PeerReduction reduction;
};

}  // namespace plait::cuda
