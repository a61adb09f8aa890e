#pragma once
#include "core/comm/world.h"

namespace plait {

/// The world whose ranks are the processes that `mpirun` (or Slurm, ...) started: all of them make this call, once, with
/// the same options. Processes of one machine exchange through shared memory, by the same code as threads; those of
/// different machines through MPI's messages.
///
/// MPI is a plug-in, loaded from `plugin`, or if that is empty from plait_mpi.so beside this library. If the host has
/// started MPI it is used as it is (from one thread at a time: MPI_THREAD_SERIALIZED, or this thread alone), and never
/// ended; if not, it is started here, and ended when the last world and communicator are destroyed; it cannot be started
/// again in the same process. Destroying a world that started MPI waits for the other ranks to do the same, at most for
/// the deadline. After a world is over MPI is not ended, for it would wait for the rank that failed.
///
/// Throws Error: not_found without the plug-in, unsupported for one of another version, io if MPI fails, closed when a
/// process does not come within the deadline.
std::unique_ptr<World> open_mpi_world(const CommOptions& options = {}, const std::string& plugin = "");

}  // namespace plait
