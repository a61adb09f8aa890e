#pragma once
#include <atomic>
#include <vector>

#include "core/comm/exchange.h"
#include "core/comm/hub.h"

namespace plait {

/// An exchange in memory that all ranks of the group map: threads, or processes of one machine.
///
/// Each rank has a line (which step it is in, and what it says about it), two slots that it uses in turn, a box for the
/// messages of each other rank, and a heap that its messages lie in until they are received. Only the owner writes
/// lines, boxes and heap, but for the mark that a message was received. Slots change hands: see slot_of.
class SegmentExchange final : public Exchange {
 public:
  static int64_t bytes(int size, int64_t in_flight_bytes);

  SegmentExchange(std::shared_ptr<Hub> hub, std::shared_ptr<Mapping> memory, std::vector<int> members, int rank);

  int64_t slot_bytes() const override;
  std::byte* slot() override;
  void publish(const CallHeader& call, Pattern pattern, int64_t bytes) override;
  const std::byte* peer(int peer) override;
  void finish() override;
  void post(int to, const CallHeader& call, std::span<const std::byte> bytes) override;
  CallHeader await_mail(int from, const CallHeader& expected, bool for_ever) override;
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
  Pattern pattern_ = Pattern::share;
  int64_t part_bytes_ = 0;
  CallHeader call_;
  std::vector<uint64_t> looked_;           ///< by peer: the step in which it was last seen to have come, plus 1
  std::vector<uint64_t> sent_, received_;  ///< by peer: messages
  std::vector<Posted> posted_;             ///< by offset: what may still be unread in this rank's heap
};

}  // namespace plait
