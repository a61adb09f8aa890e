#pragma once
// CUDA's execution model on the host: a block runs on one host thread, each of its threads is a fiber. Barriers and warp operations
// are meetings of fibers. Blocks, warps and lanes run in an order drawn from a seed, so what depends on their order differs between
// seeds. Shared memory is full of NaNs when a block begins. What a kernel does wrong ends the launch with an exception:
//   - a barrier or a warp operation that not all of its threads reach, or that some reach elsewhere,
//   - a write next to a shared array, more shared memory than a block has, copies under way when a thread ends.
// Under AddressSanitizer accesses out of range end the program; under ThreadSanitizer so do races, for which each fiber is a thread
// and only barriers, __syncwarp and atomics order memory.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/function_ref.h"
#include "kernels/emulated/kernel_registry.h"

namespace plait::emulated {

constexpr int warp_lanes = 32;
constexpr uint32_t all_lanes = ~0U;

/// Where a thread is.
struct Position {
  Dim3 thread, block, block_size, grid;
};

/// A place in the source: as a default argument, that of the call.
struct Where {
  const char* file;
  int line;
  static constexpr Where current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// An operation for which threads wait for each other.
struct Meeting {
  const char* name;  ///< as in CUDA
  Where where;
};

/// A kernel for `run_grid`.
struct GridKernel {
  const char* name;
  unsigned most_threads;  ///< of a block, by its launch bounds
};

/// Runs `thread` for each thread of the launch, in the order of `seed`; 0: ascending. Throws std::runtime_error that begins with the
/// kernel's name.
void run_grid(const GridKernel& kernel, const Launch& launch, uint64_t seed, FunctionRef<void()> thread);

/// The seed of KernelEntry::run. PLAIT_EMULATE_SEED is the first value. Any thread.
void set_thread_order(uint64_t seed);
uint64_t thread_order();

// The rest is for what kernels call, in a fiber.

/// The calling thread.
const Position& here();

/// Ends the launch.
[[noreturn]] void fail(const std::string& message);

/// The calling thread waits for the block's others.
void meet_block(const Meeting& meeting);

/// The calling lane waits for the lanes of `mask`. The last one to come calls `work`, with each lane's operand and result; null for
/// lanes that do not take part. `orders_memory`: as __syncwarp does; shuffles and products do not.
void meet_warp(const Meeting& meeting, uint32_t mask, const void* operand, void* result, bool orders_memory,
               FunctionRef<void(const void* const* operands, void* const* results)> work);

/// As above with types: work(operand, result) gets a function for each, of the lane.
template <class Result, class Operand, class Work>
Result meet_lanes(const Meeting& meeting, uint32_t mask, const Operand& operand, const Work& work) {
  Result result{};
  meet_warp(meeting, mask, &operand, &result, false, [&work](const void* const* operands, void* const* results) {
    const auto operand_of = [operands](int lane) -> const Operand& {
      if (!operands[lane]) fail("a lane reads from lane " + std::to_string(lane) + ", which does not take part");
      return *static_cast<const Operand*>(operands[lane]);
    };
    const auto result_of = [results](int lane) { return static_cast<Result*>(results[lane]); };
    work(operand_of, result_of);
  });
  return result;
}

/// The block's shared array of that tag, an address for each array of a kernel.
void* shared_array(const void* tag, size_t bytes);
/// The dynamic shared memory of the launch.
void* dynamic_shared();

/// __threadfence: what is before it is visible to what comes after another thread's.
void fence();

/// cp.async. Nothing of a copy happens before it is waited for. `copied` of the 16 bytes are copied, the rest are 0.
void copy_async(void* to, const void* from, int copied);
void copy_commit();
/// Waits until at most `left` of the thread's groups of copies are under way.
void copy_wait(int left);

}  // namespace plait::emulated
