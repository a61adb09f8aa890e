#pragma once
// What tests read and set of the emulated driver in addition to the driver's own functions. Found by dlsym. Plain C.
#include <cstdint>

extern "C" {

/// What exists now, and what happened since the library was loaded. All devices together.
struct plait_emulated_counts {
  int64_t allocations, pinned, streams, events, graphs, graph_execs, libraries, contexts,
      communicators;                                          ///< exist now
  int64_t device_bytes;                                       ///< of the allocations
  int64_t launches, copies, fills, replays, all_allocations;  ///< so far, those of replays included
  int64_t copied_bytes;
  int64_t host_copies;  ///< of `copies`, those from or to the host
  int64_t pageable;     ///< asynchronous copies of host memory that cuMemHostAlloc did not return
  int64_t left;         ///< objects that a context still had when it was released
};
void plait_emulated_count(plait_emulated_counts* out);

/// Waits until all devices have done what they were given, so that all of it is counted: a host that has a result has waited for what it
/// needs only. 0 if they have not after 30 s.
int plait_emulated_settle();

/// "FUNCTION:N" or "FUNCTION:N:STATUS": the N-th call of that function from now on returns STATUS and has no other effect; null or
/// "": none does. Without STATUS, functions that allocate return out of memory, cuInit no device, others an unknown error. The
/// environment variable PLAIT_EMULATE_FAIL is the first value.
void plait_emulated_fail(const char* text);

/// Seed of all random orders; PLAIT_EMULATE_SEED is the first value.
void plait_emulated_seed(uint64_t seed);
}
