#pragma once
// What ranks say to each other. A communicator is a group of ranks as one of them sees it; it is passed to whoever
// needs it and never global. Threads and processes of one machine have the same one (collectives.h); one that moves
// tensors of another memory, such as a GPU's, is another class with this interface.
#include <memory>
#include <string>
#include <string_view>

#include "core/base/tensor.h"

namespace plait {

enum class Reduction : uint8_t { sum, max, min };
std::string_view reduction_name(Reduction reduction);

/// The ranks of a group are 0 to size() - 1. Every rank of the group makes the same calls in the same order, with the
/// same sizes and dtypes; what differs is an Error(invalid_argument) on all ranks that names both calls, and ends the
/// world. One thread at a time may call a communicator, and the groups that it was split into; `abort` and
/// `failed_rank` may be called from any.
///
/// Tensors are contiguous and need no alignment. An input may be the output, or the part of it that is this rank's;
/// otherwise they do not overlap. Reductions go through ranks in ascending order, f16 and bf16 in f32 with one rounding
/// at the end, integers modulo 2^bits, max and min hand on NaN: so each rank has the same bits, whatever the transport
/// and the size. They take f32, f64, f16, bf16 and integers; all else takes any dtype whose parts are whole bytes.
///
/// Errors: invalid_argument for operands that cannot be, thrown before anything is sent; closed once the world is over,
/// because a rank aborted, left, died, or kept another waiting beyond the deadline. It names that rank, and every later
/// call throws it, too. Tensors that were being written are then undefined.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The number in the world, by which errors name ranks, of a rank of this group.
  virtual int world_rank(int rank) const = 0;

  /// data [n] becomes the reduction of all ranks' data.
  virtual void all_reduce(const TensorView& data, Reduction reduction) = 0;
  /// part [n] of each rank, all [size * n]: the parts in the order of ranks.
  virtual void all_gather(const TensorView& part, const TensorView& all) = 0;
  /// all [size * n], part [n]: this rank's part of the reduction.
  virtual void reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) = 0;
  /// from [size * n], to [size * n]: part i of `from` goes to rank i, part i of `to` comes from rank i.
  virtual void all_to_all(const TensorView& from, const TensorView& to) = 0;
  /// data [n] becomes the root's.
  virtual void broadcast(const TensorView& data, int root) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  /// Never waits: the data is copied. What is sent to a rank arrives in this order, and is received with the same number
  /// of elements and dtype. Throws Error(overloaded) when too much is in flight (CommOptions::in_flight_bytes).
  virtual void send(const TensorView& data, int to) = 0;
  virtual void recv(const TensorView& data, int from) = 0;

  /// Seconds that this rank has waited for others so far, in all calls of all groups of its world.
  virtual double waited_s() const = 0;

  /// All ranks call it; those with the same color form a group, ordered by key, then by their rank here.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Ends the world for all its ranks, wherever they wait. Later calls throw an error with this rank and message; the
  /// first abort counts.
  virtual void abort(std::string_view message) noexcept = 0;
  /// The world's number of the rank that ended it, -1 while it lives.
  virtual int failed_rank() const noexcept = 0;
};

}  // namespace plait
