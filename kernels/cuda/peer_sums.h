#pragma once
// Collectives over devices that access each other's memory, as kernels take them. Plain C++.
//
// A rank has a buffer, into which the others write, and a number of the collective, which its own kernels count: so launches are the same
// each time, and a graph can have them. There are two slots, used in turn: a rank ends a collective after all others have begun it, so
// none is two ahead of another.
#include <stdint.h>

namespace plait::cuda {

constexpr int most_peers = 8;
constexpr int peer_slots = 2;
constexpr int peer_threads = 256;
/// Words of 4 bytes of a reduction in one step (64 KB); larger ones take two.
constexpr int64_t peer_words = 1 << 14;
/// Bytes that a thread moves in collectives of two steps, and how many such lines go at a time (1 MB).
constexpr int64_t peer_line = 16, peer_lines = 1 << 16;
/// Of the chunk of a rank.
constexpr int64_t peer_blocks = peer_lines / 2 / peer_threads;

enum class PeerReduction : int32_t { sum, max, min };
/// Elements that are reduced; bytes are not.
enum class PeerElement : int32_t { f32, bf16, f16, bytes };

// Parts of a buffer, in bytes from its beginning.
/// u32: the number of the last collective, from 1 on; u32: blocks that have finished the present one.
constexpr int64_t peer_state_bytes = 256;
/// u32 [slot][step][from rank][block]: the number, once the block of lines is there.
constexpr int64_t peer_flags_at = peer_state_bytes;
/// u64 [slot][from rank][peer_words]: number << 32 | word.
constexpr int64_t peer_words_at = peer_flags_at + peer_slots * 2 * most_peers * peer_blocks * 4;
constexpr int64_t peer_word_bytes = peer_words * 8;
/// [slot][step][from rank][lines of a chunk].
constexpr int64_t peer_lines_at(int ranks) { return peer_words_at + peer_slots * ranks * peer_word_bytes; }
constexpr int64_t peer_chunk_lines(int ranks) { return (peer_lines + ranks - 1) / ranks; }
constexpr int64_t peer_buffer_bytes(int ranks) {
  return peer_lines_at(ranks) + peer_slots * 2 * ranks * peer_chunk_lines(ranks) * peer_line;
}

/// The ranks of a collective, for kernels that write to them.
struct PeerRanks {
  uint8_t* own;                  ///< this rank's buffer
  uint8_t* buffers[most_peers];  ///< by rank
  int32_t rank, ranks;           ///< 0 ranks: nothing is written
};

/// In one step (peer_write, peer_sum): out [bytes] = the reduction of all ranks' in [bytes]. A rank writes its words, each with the number,
/// to every other rank, and reads its own buffer until the numbers are there: one way over the link, and no barrier. (As NCCL's protocol
/// LL.) The kernel that makes `in` may do what peer_write does (peer_words.h).
///
/// In two: the array is a chunk for each rank, `stride` bytes apart. peer_scatter writes the chunks of `in` to their ranks, peer_combine
/// reduces a rank's own and, if it `gives`, writes it to all others, peer_collect copies theirs to `out`. So an all-reduce is all three, a
/// reduce-scatter the first two, and an all-gather, of bytes, the last two.
struct PeerOperands : PeerRanks {
  const uint8_t* in;
  uint8_t* out;
  const int32_t* stop;  ///< not 0: no waiting, since a rank has failed
  int64_t bytes;        ///< of the array; in two steps up to the end of the last chunk, which may be shorter
  int64_t chunk, stride;
  PeerElement element;
  PeerReduction reduction;
  int32_t gives;
  int32_t aligned;  ///< whether all chunks begin at multiples of a line
};

}  // namespace plait::cuda
