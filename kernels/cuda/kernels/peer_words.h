#pragma once
// Words that a rank writes into the buffers of the others, each with the number of the sum (peer_sums.h): by the kernel that makes them,
// or by one of their own. In the stream such a kernel is after the end of the sum before, and before the one that waits for the words.
#include "kernels/cuda/kernels/device.h"
#include "kernels/cuda/peer_sums.h"

namespace plait::cuda {

/// The number of the collective that this kernel is part of; 0 is what buffers begin with.
PLAIT_DEVICE uint32_t number_of(const PeerRanks& o) {
  const uint32_t number = *reinterpret_cast<const uint32_t*>(o.own) + 1;
  return number ? number : 1;
}

/// Where `buffer` has word i of rank `from`.
PLAIT_DEVICE uint64_t* word_at(const PeerRanks& o, uint8_t* buffer, uint32_t number, int from, int64_t i) {
  const int64_t row = static_cast<int64_t>(number % peer_slots) * o.ranks + from;
  return reinterpret_cast<uint64_t*>(buffer + peer_words_at) + row * peer_words + i;
}

/// Writes word i of this rank to all others.
PLAIT_DEVICE void give_word(const PeerRanks& o, uint32_t number, int64_t i, uint32_t word) {
#pragma unroll
  for (int rank = 0; rank < most_peers; ++rank)
    if (rank < o.ranks && rank != o.rank) store_flagged(word_at(o, o.buffers[rank], number, o.rank, i), word, number);
}

/// The number for `give`: read before the values are there, so that these need not wait for it. 0 without other ranks.
PLAIT_DEVICE uint32_t number_if_given(const PeerRanks& o) { return o.ranks ? number_of(o) : 0; }
/// Element i of a result of f32, of which the sum is next. Nothing without other ranks.
PLAIT_DEVICE void give(const PeerRanks& o, uint32_t number, int64_t i, float value) {
  if (o.ranks) give_word(o, number, i, __float_as_uint(value));
}

}  // namespace plait::cuda
