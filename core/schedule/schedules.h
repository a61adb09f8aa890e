#pragma once
// Schedules by name: one row a name, which answers everything that a caller has to know before it has lists.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/schedule/schedule.h"
#include "core/schedule/schedule_shape.h"

namespace plait {

/// What holds for all lists that a name makes for a number of ranks.
struct ScheduleTerms {
  Seats seats;         ///< seats.size() is the number of stages
  bool whole = true;   ///< lists may have whole backwards
  bool split = false;  ///< lists may have input and weight gradients
  bool asynchronous = false;
};

struct ScheduleRow {
  std::string_view name;    ///< "interleaved"
  std::string_view number;  ///< what the number of "interleaved:2" is: "stages a rank"; empty: it has none
  int32_t usual = 0;        ///< the number if none is given
  int32_t least = 0;        ///< the least number
  std::string_view about;   ///< a line for people, with the source
  bool whole = true, split = false, asynchronous = false;  ///< as in ScheduleTerms
  bool takes_seats = false;                                ///< ScheduleShape::seats may be given
  /// Throws Error(invalid_argument) if it cannot have so many ranks.
  Seats (*seats)(int32_t ranks, int32_t number) = nullptr;
  Schedule (*make)(const ScheduleShape& shape, int32_t number) = nullptr;
};

/// Every schedule takes any number of micro-batches, from 1 on.
std::span<const ScheduleRow> schedule_rows();

/// `name`: a row's name, with its number if it has one ("interleaved:2"). Throws Error(invalid_argument), with the
/// known ones, for one that does not exist, and for ranks, a number or seats that it cannot have.
ScheduleTerms schedule_terms(std::string_view name, int32_t ranks, const Seats& seats = {});

/// The list of a name. Equal arguments give equal lists on all ranks. Throws Error(invalid_argument) as
/// `schedule_terms` does, for steps of a synchronous schedule, and where no list keeps to ScheduleCosts::most_live.
/// Written lists take microseconds to milliseconds; chimera, auto and several seats simulate some candidates.
Schedule make_schedule(std::string_view name, const ScheduleShape& shape);

/// "15:1" as seats: stage 0 on ranks 0 to 14, stage 1 on rank 15. Throws Error(invalid_argument).
Seats parse_seat_widths(std::string_view text);

}  // namespace plait
