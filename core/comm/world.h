#pragma once
// All ranks there are, as one of them sees it; how threads and processes become ranks, and how those that have no
// program of their own are told what to do.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/comm/communicator.h"
#include "core/comm/options.h"

namespace plait {

/// Rank 0 is the host's; the others sit in a loop:
///
///     while (true) handle(world.next_command());     // until it throws, or a command says that it is enough
///
/// What commands mean is their readers' business. A rank whose handler throws calls communicator().abort(), so that
/// nobody waits for it. One thread at a time may call a world and its communicators (Communicator::abort: any).
///
/// Destroying it never waits for others, unless it started MPI (mpi_world.h). A rank that destroys its world has left:
/// what it sent can still be received, but whoever waits for more throws.
class World {
 public:
  virtual ~World() = default;
  int rank() const { return communicator().rank(); }
  int size() const { return communicator().size(); }

  /// Of all ranks. It and what is split from it may outlive the world.
  virtual Communicator& communicator() const = 0;

  /// Rank 0: hands the bytes to every other rank. Does not wait; commands arrive in their order.
  virtual void broadcast_command(std::span<const std::byte> bytes) = 0;
  /// Ranks other than 0: the next command. Waits without end and asleep (after the usual spin); throws when the world is
  /// over, or rank 0 is gone.
  virtual std::vector<std::byte> next_command() = 0;

  /// Ranks other than 0: answers rank 0. Does not wait; reports arrive in their order.
  virtual void report(std::span<const std::byte> bytes) = 0;
  /// Rank 0: the next report of a rank. `patient`: waits without end, asleep, as for what takes its time, such as loading
  /// weights; else up to the deadline.
  virtual std::vector<std::byte> next_report(int rank, bool patient) = 0;

  /// Processors that this rank can count on while all of its machine compute; at least 1.
  virtual int processors() const = 0;
};

/// Worlds of ranks that are threads of this process: element i is for the thread that is to be rank i. size: 1 to 1024.
std::vector<std::unique_ptr<World>> make_thread_world(int size, const CommOptions& options = {});

}  // namespace plait
