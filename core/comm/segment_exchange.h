#pragma once
#include <atomic>
#include <vector>

#include "core/comm/exchange.h"
#include "core/comm/hub.h"

namespace plait {

/// An exchange in memory mapped by all ranks of the group: threads, or processes of one machine.
///
/// Each rank has a line (its current step and call), two slots used alternately, a mailbox per peer, and a heap for
/// its messages until they are received. Only the owner writes lines, boxes and heap, except for the flag that a
/// message was received. Slots change owners: see slot_of.
class SegmentExchange final : public Exchange {
 public:
  static int64_t bytes(int size, int64_t in_flight_bytes);

  SegmentExchange(std::shared_ptr<Hub> hub, std::shared_ptr<Mapping> memory, std::vector<int> members, int rank);

  int64_t slot_bytes() const override;
  std::byte* slot() override;
  void publish(const CallHeader& call, SlotLayout pattern, int64_t bytes) override;
  const std::byte* peer(int peer) override;
  void finish() override;
  void post(int to, const CallHeader& call, std::span<const std::byte> bytes) override;
  CallHeader await_mail(int from, FunctionRef<std::string()> what, Patience patience) override;
  void take_mail(int from, std::byte* out) override;

 private:
  struct Line;
  struct Box;
  struct Letter;
  struct Posted {
    int64_t offset, bytes;  ///< in the heap
    int to;
  };

  Line& line(int rank) const;
  Box& box(int from, int to) const;
  std::byte* slot_of(int rank) const;
  Letter* letter(int of, int64_t offset) const;
  int64_t place_for(int64_t bytes);
  std::string step_text() const;

  std::shared_ptr<Hub> hub_;
  std::shared_ptr<Mapping> memory_;
  uint64_t step_ = 0;
  SlotLayout pattern_ = SlotLayout::share;
  int64_t part_bytes_ = 0;
  CallHeader call_;
  std::vector<uint64_t> looked_;           ///< by peer: the last step in which it was seen to have arrived, plus 1
  std::vector<uint64_t> sent_, received_;  ///< by peer: messages
  std::vector<Posted> posted_;             ///< by offset: possibly unread messages in this rank's heap
};

}  // namespace plait
