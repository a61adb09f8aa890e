#pragma once
// Communication between ranks. A communicator is a group of ranks as seen by one of them; it is passed explicitly,
// never global. Threads and processes of one machine share one class (collectives.h); one for other memory, such as a
// GPU's, is another class with this interface.
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/collective.h"
#include "core/base/function_ref.h"
#include "core/base/tensor.h"
#include "core/comm/options.h"

namespace plait {

enum class Reduction : uint8_t { sum, max, min };
std::string_view reduction_name(Reduction reduction);

/// The ranks of a group are 0 to size() - 1. Every rank of the group makes the same calls in the same order, with the
/// same sizes and dtypes; a mismatch is Error(invalid_argument) on all ranks, naming both calls, and ends the world.
/// One thread at a time may call a communicator and the groups split from it; `abort` and `failed_rank` are
/// thread-safe.
/// Tensors are contiguous and need no alignment. An input may be the output, or this rank's part of it; otherwise
/// they do not overlap. Reductions go in ascending rank order, f16 and bf16 in f32 with one rounding at the end,
/// integers modulo 2^bits, max and min propagate NaN: so all ranks get the same bits, for any transport and size.
/// They accept f32, f64, f16, bf16 and integers; other calls accept any dtype whose parts are whole bytes.
/// Errors: invalid_argument for invalid operands, thrown before anything is sent; closed once the world is over
/// because a rank aborted, left, died, or missed the deadline. It names that rank and is thrown by every later call.
/// Tensors being written are then undefined.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The world rank of a rank of this group; errors name ranks by it.
  virtual int world_rank(int rank) const = 0;

  /// data [n]: replaced by the reduction over all ranks.
  virtual void all_reduce(const TensorView& data, Reduction reduction) = 0;
  /// out [n] = the reduction over all ranks of in [n], which is kept unless it is the same memory. As a copy and all_reduce in host memory.
  virtual void all_reduce_into(const TensorView& in, const TensorView& out, Reduction reduction) {
    if (in.data != out.data && in.bytes()) std::memcpy(out.data, in.data, static_cast<size_t>(in.bytes()));
    all_reduce(out, reduction);
  }
  /// part [n] of each rank, all [size * n]: the parts in rank order.
  virtual void all_gather(const TensorView& part, const TensorView& all) = 0;
  /// all [size * n], part [n]: this rank's part of the reduction.
  virtual void reduce_scatter(const TensorView& all, const TensorView& part, Reduction reduction) = 0;
  /// from [size * n], to [size * n]: part i of `from` goes to rank i, part i of `to` comes from rank i.
  virtual void all_to_all(const TensorView& from, const TensorView& to) = 0;
  /// data [n]: replaced by the root's.
  virtual void broadcast(const TensorView& data, int root) = 0;
  /// Returns when all ranks have called it.
  virtual void barrier() = 0;

  /// Copies the data and returns at once. Throws Error(overloaded) beyond CommOptions::in_flight_bytes.
  virtual void send(const TensorView& data, int to, int64_t tag = 0) = 0;
  /// The next message with that tag of a rank, of equal size and dtype (otherwise Error(invalid_argument) on all
  /// ranks, naming both calls). Messages of a tag arrive in order. What arrives before it with other tags is set
  /// aside for later calls; throws Error(overloaded) if that exceeds CommOptions::in_flight_bytes or 1024 messages of
  /// a rank.
  virtual void recv(const TensorView& data, int from, int64_t tag = 0, Patience patience = Patience::deadline) = 0;

  /// Seconds this rank has waited for others in all calls of all groups of its world.
  virtual double waited_s() const = 0;

  /// Collective: ranks with the same color form a group, ordered by key, then by rank here.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Ends the world for all its ranks, also waiting ones. Later calls throw an error with this rank and message; the
  /// first abort wins.
  virtual void abort(std::string_view message) noexcept = 0;
  /// The world rank that ended the world; -1 if none.
  virtual int failed_rank() const noexcept = 0;

  // What only some communicators can do.

  /// Whether a device can record such calls (Device::capture): they only enqueue its work. All ranks then record and replay the same
  /// calls, as they make the same calls otherwise.
  virtual bool captures(CollectiveKind, DType) const { return false; }
  /// Calls `launch`, which launches the kernel that makes `part` [n], this rank's part of the group's next all-reduce by sum (`sum_into`,
  /// `all_reduce_into` or `all_reduce`, in the same queue). The kernel may write its result to the other ranks as it makes it; nothing
  /// else writes `part` before the sum. By default it does not, and it need not do so on all ranks.
  virtual void begin_sum(const TensorView& part, FunctionRef<void()> launch) {
    (void)part;
    launch();
  }
  /// An all-reduce by sum of `part` [n], whose result the kernel that `launch` launches takes in place of an operand, whose data are not
  /// read then. False: not of such an array, and nothing has been done. As a collective, called by all ranks alike.
  virtual bool sum_into(const TensorView& part, FunctionRef<void()> launch) {
    (void)part, (void)launch;
    return false;
  }
  /// Called again and again by a thread that waits for its device, which may wait for other ranks' devices: with the seconds since the
  /// wait began, 0 first; once more with a negative number when it has ended. After CommOptions::deadline_s ends the world if a rank has
  /// neither done nor awaited anything for as long, and names it; by default no rank is watched. Thread-safe.
  virtual void note_device_wait(double waited_s) noexcept { (void)waited_s; }
  /// For reports, where there is more than one way to move arrays: "peer memory", "NCCL" or "host memory", and why none of those before
  /// it. Empty: there is one way.
  virtual std::string transport() const { return ""; }
};

}  // namespace plait
