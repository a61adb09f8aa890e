#pragma once
#include <cstdint>
#include <functional>

namespace plait {

/// How the ranks of a world wait and how much may be on its way. All ranks give the same.
struct CommOptions {
  /// How long a call waits for another rank before that rank counts as failed; more than 0. Commands are waited for
  /// without end (world.h).
  double deadline_s = 60;
  /// What one rank of one group may have sent that is not yet received. Address space; memory is taken as it is used.
  int64_t in_flight_bytes = int64_t{1} << 30;
  /// Ranks of one machine share memory; false makes processes go through messages as if each had a machine of its own.
  bool share_memory = true;
  /// For tests: called, if set, between the steps that a race would need, on the thread that makes them.
  std::function<void()> delay;
};

}  // namespace plait
