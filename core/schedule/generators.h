#pragma once
// The generators that the rows of schedules.cpp name. `number`: the row's number.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/schedule/schedule_shape.h"

namespace plait {

// Seats of each stage.
Seats straight_seats(int32_t ranks, int32_t);              ///< one stage a rank
Seats looped_seats(int32_t ranks, int32_t stages_a_rank);  ///< 0 1 .. p-1 0 1 ..
Seats vee_seats(int32_t ranks, int32_t);                   ///< 0 1 .. p-1 p-1 .. 1 0
Seats mirrored_seats(int32_t ranks, int32_t pairs);        ///< Chimera: `pairs` pipelines down, and as many up

// Whole backwards.
Schedule make_naive(const ScheduleShape& shape, int32_t number);
Schedule make_breadth_first(const ScheduleShape& shape, int32_t number);
Schedule make_one_f_one_b(const ScheduleShape& shape, int32_t number);
Schedule make_interleaved(const ScheduleShape& shape, int32_t number);

// Input and weight gradients as actions of their own.
Schedule make_zb_h1(const ScheduleShape& shape, int32_t number);
Schedule make_zb_h2(const ScheduleShape& shape, int32_t number);
Schedule make_zb_v(const ScheduleShape& shape, int32_t number);
Schedule make_zb_interleaved(const ScheduleShape& shape, int32_t number);
Schedule make_dualpipe_v(const ScheduleShape& shape, int32_t number);

// Asynchronous: windows of steps without a flush.
Schedule make_pipedream(const ScheduleShape& shape, int32_t number);
Schedule make_two_bw(const ScheduleShape& shape, int32_t number);

// By list scheduling.
Schedule make_chimera(const ScheduleShape& shape, int32_t number);
Schedule make_chimera_split(const ScheduleShape& shape, int32_t number);
Schedule make_seated(const ScheduleShape& shape, bool split);
Schedule make_auto(const ScheduleShape& shape, int32_t number);
Schedule make_auto_v(const ScheduleShape& shape, int32_t number);

/// F 1, B 2, I 1, W 1, divided by the stages of a rank, if the shape has no costs.
std::function<double(const Action&)> costs_of(const ScheduleShape& shape, const Seats& seats);

/// Rounds of the interleaved schedules: about micro_batches / ranks of at least `ranks` micro-batches, as even as can
/// be (a short last round would stand still).
struct Rounds {
  struct Turn {
    int32_t chunk, micro_batch;
  };
  int32_t first = 0;          ///< micro-batches of the first round
  std::vector<Turn> forward;  ///< (a rank's stage, micro-batch) in the order of forwards
  std::vector<Turn> backward;
};
Rounds interleaved_rounds(int32_t ranks, int32_t micro_batches, int32_t chunks);

/// Event-driven list scheduling: each rank that is free begins the best action that is ready: a backward, otherwise a
/// forward, otherwise a weight gradient.
struct ListRules {
  Seats seats;
  int32_t ranks = 1;
  int32_t micro_batches = 1;
  bool split = false;
  std::function<double(const Action&)> cost;
  double link_s = 0;
  int32_t most_live = 1;  ///< sets of a rank from F to the end of B or W
  /// Actions of earlier units of so many micro-batches of a pipeline come first, then of earlier micro-batches, then
  /// deeper forwards and shallower backwards.
  int32_t unit = 1;
  int32_t most_waiting = INT32_MAX;  ///< weight gradients that may wait
  /// An idle rank does not begin a weight gradient if something arrives within this part of its cost.
  double gap = 0;
};
/// Nothing if the limit lets only some of the actions happen.
std::optional<Schedule> list_schedule(const ListRules& rules);

}  // namespace plait
