#pragma once
#include "core/comm/world.h"

namespace plait {

/// Opens the world of processes started by `mpirun` (or Slurm, ...): all of them call this once with the same options.
/// Processes of one machine exchange through shared memory, with the same code as threads; those of different
/// machines through MPI messages.
///
/// MPI is a plug-in, loaded from `plugin`, or if empty from plait_mpi.so next to this library. If the host has
/// started MPI it is used (from one thread at a time: MPI_THREAD_SERIALIZED, or this thread only) and never
/// finalized. Otherwise it is started here and finalized when the last world and communicator are destroyed; the
/// process cannot start it again. Destroying a world that started MPI waits for the other ranks to do the same, up to
/// the deadline. After a failure MPI is not finalized, since that would wait for the failed rank.
/// Throws Error: not_found without the plug-in, unsupported for one of another version, io if MPI fails, closed if a
/// process does not come within the deadline.
std::unique_ptr<World> open_mpi_world(const CommOptions& options = {}, const std::string& plugin = "");

}  // namespace plait
