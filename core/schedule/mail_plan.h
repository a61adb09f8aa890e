#pragma once
// A schedule with what crosses between ranks, which follows from seats and edges: the verifier and the simulator run
// it.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/schedule/schedule_facts.h"

namespace plait {

/// A step of a rank. An action's messages are taken before it, in the order of the edges, and given after it.
struct MailOp {
  enum class What : uint8_t {
    take,   ///< `number`: the message's place in its pair's order
    run,    ///< the action
    give,   ///< `number`: the message's place in its pair's order
    arrive  ///< at an update of a stage with several seats, which all of them begin together; `pair`: the meeting
  };
  What what = What::run;
  int32_t position = 0;  ///< of the action in its list
  int32_t pair = -1;     ///< of take and give
  int32_t number = 0;
  int32_t to_stage = -1;  ///< of give
};

struct MailPair {
  int32_t from = 0, to = 0;
  std::vector<int32_t> makers;  ///< by message, in the sender's order: position of the action that makes it
};

struct Meeting {
  int32_t seats = 0;
  Action update;
};

struct MailPlan {
  std::vector<std::vector<MailOp>> ranks;
  std::vector<MailPair> pairs;
  std::vector<Meeting> meetings;
  int64_t ops = 0;
};

/// For lists in which every action is there once, on its seat. Linear in actions and edges.
MailPlan plan_mail(const Schedule& schedule, const std::vector<StageEdge>& edges);

}  // namespace plait
