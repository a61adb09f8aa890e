#pragma once
#include <cstdint>
#include <functional>

namespace plait {

/// How long a rank waits for another one.
enum class Patience : uint8_t {
  deadline,  ///< CommOptions::deadline_s
  progress,  ///< until no rank of the world has sent, received or taken part in a collective for deadline_s
  unlimited  ///< while the rank lives
};

/// Deadlines and buffer limits of a world. The same on all ranks.
struct CommOptions {
  /// Seconds after which a rank that others wait for counts as failed; > 0. Waiting for commands has no deadline
  /// (world.h).
  double deadline_s = 60;
  /// Limit of bytes sent but not received, per rank and group; also of those received and set aside for later calls.
  /// Address space; committed as used.
  int64_t in_flight_bytes = int64_t{1} << 30;
  /// Ranks of one machine share memory; false: processes use messages, as if on separate machines.
  bool share_memory = true;
  /// For tests and emulation: if set, the seconds that a message of so many bytes takes from one world rank to
  /// another. link(from, to, 0) is latency; the rest occupies the link, so that messages of a directed pair follow
  /// each other. A collective's step takes as long as its slowest link. Ranks of one machine only, which share a
  /// clock.
  std::function<double(int from, int to, int64_t bytes)> link;
  /// For tests: if set, called between the steps of a potential race, on the thread that makes them.
  std::function<void()> delay;
};

}  // namespace plait
