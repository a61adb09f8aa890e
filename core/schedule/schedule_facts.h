#pragma once
// Edges between stages, and what the verifier finds out about a schedule.
#include <cstdint>
#include <vector>

namespace plait {

/// A value that stage `from` computes in forward and stage `to` reads; its gradient crosses the other way. At most
/// one edge a pair of stages: all values of the pair are one message.
struct StageEdge {
  int32_t from = 0, to = 0;
  bool operator==(const StageEdge& other) const = default;
};

/// 0 -> 1 -> ... -> stages - 1.
std::vector<StageEdge> chain_edges(int32_t stages);

/// The most sets of values that are live at a time, by lifetime. A set belongs to one (stage, micro-batch).
struct LivePeaks {
  int32_t forward_to_input = 0;   ///< begin of F to the end of I or B
  int32_t forward_to_weight = 0;  ///< begin of F to the end of W or B
  int32_t input_to_weight = 0;    ///< begin of I to the end of W; a whole backward has none
  bool operator==(const LivePeaks& other) const = default;
};

struct ScheduleFacts {
  bool asynchronous = false;
  bool split = false;                         ///< has I and W
  bool whole = false;                         ///< has B
  std::vector<LivePeaks> ranks;               ///< by rank, over all its stages
  std::vector<std::vector<LivePeaks>> seats;  ///< [stage][seat]
  std::vector<int32_t> versions;              ///< by stage: the most that a seat holds at a time; 1 if synchronous
  /// The least number of untaken messages for each directed pair of ranks with which all lists finish, if a send
  /// waits while so many of its pair are not taken. 0 if no message is sent.
  int32_t places = 0;
  /// With that many places, the most messages that a rank has taken before it wants them: it takes a pair's messages
  /// in the sender's order and sets aside those that it does not want yet.
  int32_t set_aside = 0;
  bool rendezvous = false;  ///< finishes also when a send waits until its receiver takes that message next
  /// Every seat adds the gradients of its micro-batches in ascending order: sums have the same bits for all such
  /// schedules of the same seats.
  bool ascending = false;
};

}  // namespace plait
