#pragma once
// Where the ranks of an NCCL group meet: memory that the threads and processes of one machine share. What a rank asks for is posted
// with a copy of its data, and each rank makes its own result of all copies.
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/nccl.h"

namespace plait::emulated {

/// What a rank asks for. All ranks of a group ask for the same.
struct CollectiveCall {
  enum class Kind : int32_t { all_reduce, all_gather, reduce_scatter, broadcast };
  Kind kind = Kind::all_reduce;
  int32_t number = -1;  ///< reduction, or root; -1 if neither
  uint64_t count = 0;
  cuda::NcclType type = cuda::NcclType::u8;
  int32_t captured = 0;

  const char* function() const;
  std::string text(int rank) const;
  bool operator==(const CollectiveCall&) const = default;
};

/// A rank's view of its group. Thread-safe as far as what is called for one stream comes in order.
class Board {
 public:
  /// Ranks of a group; collectives and messages that a rank is ahead of others at most.
  static constexpr int most_ranks = 16, most_posts = 64, most_letters = 16;

  /// The board of a new group, for all its ranks on this machine.
  static cuda::NcclId make();
  /// Comes to it as a rank; null if it is gone, or the ranks do not fit.
  static std::shared_ptr<Board> open(const cuda::NcclId& id, int ranks, int rank, int device);
  ~Board();
  Board(const Board&) = delete;

  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  bool complete() const;
  /// Ends the group, unless something has before.
  void fail(const std::string& error);
  bool failed() const;
  /// "" until it has failed. Lives as long as the board.
  const char* error() const;

  /// The rank's collective `number`, from 1 on, with `bytes` at `data`; null: memory that it cannot access. False: no room, until
  /// slower ranks have read earlier ones.
  bool post(int64_t number, const CollectiveCall& call, uint64_t seed, const std::byte* data, size_t bytes);
  /// Whether all ranks have posted it.
  bool posted(int64_t number) const;
  struct Posted {
    CollectiveCall call;
    uint64_t seed = 0;
    bool accessible = true;
    std::vector<std::byte> data;
  };
  /// What rank `from` has posted; once for each number.
  Posted take(int64_t number, int from);

  /// Messages, in order. `send` and `receive` only if there is room, or a letter.
  bool has_room(int to) const;
  void send(int to, const std::byte* data, size_t bytes);
  bool has_letter(int from) const;
  std::vector<std::byte> receive(int from);

 private:
  struct Shared;
  Board() = default;
  /// A copy of data in the file of the process that has it.
  struct Copy {
    int64_t at = 0;
    uint64_t bytes = 0;
  };
  std::vector<std::byte> read(int from, const Copy& copy, bool last);
  int file_of(int rank);

  Shared* shared_ = nullptr;
  int file_ = -1;  ///< of the board, where this process has made it
  int ranks_ = 0, rank_ = 0;
  std::vector<int> files_;  ///< by rank, where its process has copies; -1: not open yet
};

}  // namespace plait::emulated
