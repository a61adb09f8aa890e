#pragma once
// The primitive of all collectives: a step, in which each rank of a group writes its slot and reads the others'; and
// ordered point-to-point messages.
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/function_ref.h"
#include "core/comm/communicator.h"

namespace plait {

enum class Call : uint8_t {
  leave,
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  barrier,
  split,
  send,
  command
};

/// Describes a call, once per step and message; ranks compare it.
struct CallHeader {
  Call call = Call::leave;
  Reduction reduction = Reduction::sum;
  uint16_t root = 0;  ///< broadcasts only
  int32_t dtype = 0;
  int64_t bytes = 0;  ///< of the whole call, per rank
  int64_t tag = 0;    ///< mail only

  bool operator==(const CallHeader& other) const = default;
  std::string text() const;  ///< "all_reduce(sum, f32, 64 bytes)"
};

/// In front of a message's bytes.
struct MailHeader {
  CallHeader call;
  int64_t ready_ns = 0;  ///< when it may be received, for shaped links (CommOptions::link); 0: at once
};

/// The error message for mismatched calls of two ranks.
std::string mismatch_text(int rank, const CallHeader& call, int other_rank, const CallHeader& other_call);

/// The layout of a slot: the same bytes for all ranks, or one part of `bytes` bytes per rank, at bytes * rank.
enum class SlotLayout { share, scatter };

/// A group at the transport level. One thread at a time. All waits throw as specified in Communicator.
class Exchange {
 public:
  virtual ~Exchange() = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[rank]; }
  const std::vector<int>& members() const { return members_; }
  /// Capacity of a slot: a multiple of 64, the same on all ranks.
  virtual int64_t slot_bytes() const = 0;

  /// A step: fill slot(), publish, read peers, finish. A rank must not read its own slot after publishing it: its
  /// cache lines are moving to the other ranks.
  ///
  /// slot() is aligned for any element and writable in this step only; its contents stay readable until the step
  /// after the next begins. Throws if the world is over.
  virtual std::byte* slot() = 0;
  virtual void publish(const CallHeader& call, SlotLayout pattern, int64_t bytes) = 0;
  /// Waits for another rank's bytes for this one in this step. Valid until the next publish.
  virtual const std::byte* peer(int peer) = 0;
  /// Waits for all peers not read yet: so a step is a barrier, and no rank is ever two steps ahead.
  virtual void finish() = 0;

  /// Sends a copy; never waits.
  virtual void post(int to, const CallHeader& call, std::span<const std::byte> bytes) = 0;
  /// Waits for the next message of a rank, which stays the next one until `take_mail`, with a buffer of call.bytes.
  /// `what`: describes it in errors.
  virtual CallHeader await_mail(int from, FunctionRef<std::string()> what, Patience patience) = 0;
  virtual void take_mail(int from, std::byte* out) = 0;

 protected:
  Exchange(std::vector<int> members, int rank) : members_(std::move(members)), rank_(rank) {}

  const std::vector<int> members_;  ///< world ranks of the group
  const int rank_;
};

}  // namespace plait
