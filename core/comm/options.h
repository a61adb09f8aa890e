#pragma once
#include <cstdint>
#include <functional>

namespace plait {

/// Deadlines and buffer limits of a world. The same on all ranks.
struct CommOptions {
  /// Seconds after which a rank that others wait for counts as failed; > 0. Waiting for commands has no deadline
  /// (world.h).
  double deadline_s = 60;
  /// Limit of bytes sent but not received, per rank and group. Address space; committed as used.
  int64_t in_flight_bytes = int64_t{1} << 30;
  /// Ranks of one machine share memory; false: processes use messages, as if on separate machines.
  bool share_memory = true;
  /// For tests: if set, called between the steps of a potential race, on the thread that makes them.
  std::function<void()> delay;
};

}  // namespace plait
