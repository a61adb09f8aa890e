#pragma once
// The world: all ranks, as seen by one of them; how threads and processes become ranks, and how rank 0 commands the
// others.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/options.h"

namespace plait {

/// Rank 0 is the host's; the others run a loop:
///
///     while (true) handle(world.next_command());     // until it throws, or a command ends the loop
///
/// The caller defines the commands. A rank whose handler throws calls communicator().abort(), so that no rank waits
/// for it. One thread at a time may call a world and its communicators (Communicator::abort: any).
///
/// The destructor never waits for others, unless it started MPI (mpi_world.h). It leaves the world: messages already
/// sent can still be received, but ranks that wait for more throw.
class World {
 public:
  virtual ~World() = default;
  int rank() const { return communicator().rank(); }
  int size() const { return communicator().size(); }

  /// The communicator of all ranks. It and its splits may outlive the world.
  virtual Communicator& communicator() const = 0;

  /// Rank 0: sends the bytes to every other rank. Does not wait; commands arrive in order.
  virtual void broadcast_command(std::span<const std::byte> bytes) = 0;
  /// Ranks other than 0: the next command. Waits without a deadline, asleep (after the usual spin); throws when the
  /// world is over or rank 0 is gone.
  virtual std::vector<std::byte> next_command() = 0;

  /// Ranks other than 0: replies to rank 0. Does not wait; reports arrive in order.
  virtual void report(std::span<const std::byte> bytes) = 0;
  /// Rank 0: the next report of a rank. `patient`: waits without a deadline, asleep, as for loading weights;
  /// otherwise up to the deadline.
  virtual std::vector<std::byte> next_report(int rank, bool patient) = 0;

  /// Processors available to this rank while all ranks of its machine compute; at least 1.
  virtual int processors() const = 0;
  /// How many ranks of its machine have lower numbers: which of the machine's devices is this rank's.
  virtual int local_rank() const = 0;
};

/// Worlds of ranks that are threads of this process: element i is for the thread of rank i. size: 1 to 1024.
std::vector<std::unique_ptr<World>> make_thread_world(int size, const CommOptions& options = {});

}  // namespace plait
