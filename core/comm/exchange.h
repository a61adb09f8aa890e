#pragma once
// The one mechanism under all collectives: a step, in which each rank of a group lays bytes into its slot and looks at
// what the others laid into theirs; and mail, in order, between two ranks.
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

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

/// What a rank says that it is doing, once a step and once a message; ranks compare it.
struct CallHeader {
  Call call = Call::leave;
  Reduction reduction = Reduction::sum;
  uint16_t root = 0;  ///< of a broadcast
  int32_t dtype = 0;
  int64_t bytes = 0;  ///< of the whole call, on one rank

  bool operator==(const CallHeader& other) const = default;
  std::string text() const;  ///< "all_reduce(sum, f32, 64 bytes)"
};

/// The message of an error for two ranks whose calls do not go together.
std::string mismatch_text(int rank, const CallHeader& call, int other_rank, const CallHeader& other_call);

/// What a slot's bytes are for: the same for all other ranks, or one part a rank, of `bytes` each, at bytes * rank.
enum class Pattern { share, scatter };

/// A group as the transport sees it. One thread at a time. All waits throw as Communicator says.
class Exchange {
 public:
  virtual ~Exchange() = default;

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  int world_rank(int rank) const { return members_[rank]; }
  const std::vector<int>& members() const { return members_; }
  /// What a slot holds. A multiple of 64, and the same on all ranks.
  virtual int64_t slot_bytes() const = 0;

  /// A step: fill slot(), publish, look at peers, finish. Nobody looks at its own slot, which is the others' once it is
  /// published: its cache lines are on their way to them.
  ///
  /// slot() is aligned for any element, and for this step only; what was laid into it is there for all until the step after the
  /// next begins.
  /// Throws if the world is over.
  virtual std::byte* slot() = 0;
  virtual void publish(const CallHeader& call, Pattern pattern, int64_t bytes) = 0;
  /// What another rank gave to this one in this step: waits for it. Valid until the next publish.
  virtual const std::byte* peer(int peer) = 0;
  /// Waits for all whom nobody looked at: so a step is a barrier, and no rank is ever two steps ahead.
  virtual void finish() = 0;

  /// Copies; never waits.
  virtual void post(int to, const CallHeader& call, std::span<const std::byte> bytes) = 0;
  /// The next message of a rank; `take` must follow, with room for call.bytes.
  virtual CallHeader await_mail(int from, const CallHeader& expected, bool for_ever) = 0;
  virtual void take_mail(int from, std::byte* out) = 0;

 protected:
  Exchange(std::vector<int> members, int rank) : members_(std::move(members)), rank_(rank) {}

  const std::vector<int> members_;  ///< the world's numbers of the group's ranks
  const int rank_;
};

}  // namespace plait
