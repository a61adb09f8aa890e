#pragma once
// Event simulation of a schedule, and drawings of simulated or measured timelines.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/schedule/schedule_check.h"

namespace plait {

struct LinkTime {
  double latency_s = 0;   ///< from the end of the transfer to its arrival
  double transfer_s = 0;  ///< occupies the link; transfers of one link follow each other
};

struct TimelineOptions {
  /// Seconds that an action takes; unset: F 1, B 2, I 1, W 1, U 0.
  std::function<double(const Action&)> cost;
  /// A message from one rank to another: what `action` makes for stage `to_stage`. Unset: messages take no time.
  std::function<LinkTime(int32_t from, int32_t to, const Action& action, int32_t to_stage)> link;
  /// The link that a directed pair of ranks uses: pairs with equal numbers share one. Unset: one a directed pair.
  std::function<int64_t(int32_t from, int32_t to)> wire;
  /// Untaken messages that a directed pair of ranks may have; 0: no limit. A rank takes messages when it waits for
  /// the next one that it wants.
  int32_t places = 0;
  double credit_s = 0;  ///< from a message's being taken to its sender's knowing it
  /// As CheckOptions::edges.
  std::optional<std::vector<StageEdge>> edges;
};

/// An action as it ran, simulated or measured.
struct TimelineSpan {
  int32_t rank = 0;
  Action action;
  double begin_s = 0, end_s = 0;
};

/// Where a rank's time goes: busy + idle = makespan.
struct RankTime {
  double busy_s = 0;
  double idle_s = 0;
  double mail_s = 0;    ///< of idle: what it waits for has been computed, and is on its way
  double places_s = 0;  ///< of idle: a place for a message that it wants to send
};

struct Timeline {
  double makespan_s = 0;
  std::vector<TimelineSpan> spans;  ///< in order of their begin
  std::vector<RankTime> ranks;
  double bubble() const;  ///< idle time of all ranks over their whole time, 0 to 1
};

/// Runs the lists. Time is O(n log n) in the number of actions and messages. Throws Error(invalid_argument) if they
/// do not finish; `check_schedule` explains why.
Timeline simulate(const Schedule& schedule, const TimelineOptions& options = {});

/// Makespan and rank times of spans: for measured ones. Begins count from the first.
Timeline timeline_of(std::vector<TimelineSpan> spans, int32_t ranks);

/// One row a rank, one column a time slot of makespan / columns seconds (slot_s if it is given). A letter or digit is
/// the micro-batch: 0 to 9 forward, A to Z whole backward, a to z input gradient; "+" weight gradient, "*" update,
/// "." idle. Numbers start again after the last letter.
struct DrawOptions {
  int32_t columns = 100;
  double slot_s = 0;
};
std::string timeline_text(const Timeline& timeline, const DrawOptions& options = {});

/// The same as an SVG document: a box an action, coloured by kind, light or dark by stage, with the action's text as
/// its tooltip.
std::string timeline_svg(const Timeline& timeline);

}  // namespace plait
