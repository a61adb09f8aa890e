#pragma once
// Measures the machine at hand: what its kernels and collectives reach, as a Machine that plans read.
#include "core/comm/communicator.h"
#include "core/exec/kernel.h"
#include "core/graph/schema.h"
#include "core/plan/machine/machine.h"

namespace plait {

/// Every rank of the group calls it at once, and gets the same Machine: times are the slowest rank's, since ranks share the machine's
/// memory. `threads`: of each rank. A rank's memory is its share of what this machine has. Products are of [m, 1024] and [1024, 1024],
/// with m from 1 to 1024, kernels move arrays of 98 kB to 101 MB; takes about two seconds. Throws what the group's collectives throw.
Machine measure_machine(Communicator& group, int threads, const OpSet& ops, const KernelTable& kernels);

/// The same for ranks that are threads of this process. Threads that are not given are shared out.
Machine measure_machine(int ranks, int threads, const OpSet& ops, const KernelTable& kernels);

}  // namespace plait
