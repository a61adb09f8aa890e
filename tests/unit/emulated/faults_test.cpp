// The emulation of kernels finds planted faults, each by the means that a test names, and finds none in a kernel that is right.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/emulated/sanitizers.h"
#include "tests/unit/support/run_kernel.h"

namespace plait::test {
namespace {

using emulated::address_sanitized;
using emulated::thread_sanitized;

#if defined(PLAIT_THREAD_SANITIZED)
// Visible: GCC's runtime is a library that looks it up.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() { return "halt_on_error=1:exitcode=66"; }
#endif

constexpr int threads = 64;

struct Outcome {
  std::vector<float> y;
  std::string fault;  ///< "" without one
};

/// y of kernel(x, y) with x = 0, 1, ...
Outcome outcome(const char* kernel, uint64_t seed, unsigned blocks = 1, unsigned block_threads = threads) {
  alignas(16) float x[threads + 4];
  std::iota(std::begin(x), std::end(x), 0.0F);
  Outcome out{std::vector<float>(threads), ""};
  try {
    run_kernel(kernel, {blocks, 1, 1, block_threads}, seed, static_cast<const float*>(x), out.y.data());
  } catch (const std::runtime_error& error) {
    out.fault = error.what();
  }
  return out;
}

/// The fault's message has the parts, in every order of threads.
void expect_fault(const char* kernel, const std::vector<std::string>& parts) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::string fault = outcome(kernel, seed).fault;
    EXPECT_EQ(fault.rfind(std::string(kernel) + ": block (0, 0, 0): ", 0), 0U) << fault;
    for (const std::string& part : parts)
      EXPECT_NE(fault.find(part), std::string::npos) << fault << "\n  has no " << part;
  }
}

bool has_nan(const Outcome& outcome) {
  return std::any_of(outcome.y.begin(), outcome.y.end(), [](float y) { return std::isnan(y); });
}

TEST(Fibers, ARightKernelHasOneResultInEveryOrder) {
  std::vector<float> expected(threads);
  for (int i = 0; i < threads; ++i) expected[static_cast<size_t>(i)] = static_cast<float>(threads - 1 - i);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Outcome found = outcome("reverse", seed, 3);
    EXPECT_EQ(found.fault, "");
    EXPECT_EQ(found.y, expected);
  }
}

TEST(Fibers, ContinueAfterAFault) {
  EXPECT_NE(outcome("early_end", 1).fault, "");
  EXPECT_EQ(outcome("reverse", 1).fault, "");
}

TEST(Faults, AMissingBarrierShowsAsNaN) {
  if (thread_sanitized) {
    EXPECT_DEATH(outcome("no_barrier", 1), "data race");
    return;
  }
  for (uint64_t seed = 0; seed < 4; ++seed) EXPECT_TRUE(has_nan(outcome("no_barrier", seed)));
}

TEST(Faults, BarriersOnBothSidesOfACondition) {
  expect_fault("different_barriers", {"threads wait at different barriers",
                                      "threads 0-31 are in __syncthreads at faults.cu:", "threads 32-63 are in"});
}

TEST(Faults, AThreadThatEndsBeforeABarrier) {
  expect_fault("early_end", {"a barrier that threads which have ended do not reach",
                             "threads 0-4, 6-63 are in __syncthreads", "threads 5 have ended"});
}

TEST(Faults, HalfAWarpInAShuffleOfAll) {
  expect_fault("half_a_warp", {"deadlock", "1, 3, 5", "are in __shfl_xor_sync at faults.cu:", "have ended"});
}

TEST(Faults, AShuffleFromALaneThatIsNotInTheMask) {
  expect_fault("outside_the_mask", {"a lane reads from lane 16, which does not take part"});
}

TEST(Faults, LanesInDifferentOperations) {
  expect_fault("different_operations",
               {"lanes of a warp meet in different operations", "__shfl_xor_sync at", "__shfl_sync at"});
}

TEST(Faults, AnAsynchronousCopyReadBeforeItsWaitIsNaN) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Outcome found = outcome("no_wait", seed);
    EXPECT_EQ(found.fault, "");
    EXPECT_TRUE(has_nan(found));
  }
}

TEST(Faults, AThreadThatEndsWithCopiesUnderWay) { expect_fault("never_waits", {"cp.async"}); }

TEST(Faults, AWriteBeyondASharedArray) {
  if (address_sanitized) {
    EXPECT_DEATH(outcome("beyond_an_array", 0), "use-after-poison");
    return;
  }
  expect_fault("beyond_an_array", {"a write after the end of a shared array of 256 bytes"});
}

TEST(Faults, AMisalignedLoad) {
  expect_fault("misaligned", {"a load of 16 bytes of an address that is not aligned"});
}

TEST(Faults, MoreStaticSharedMemoryThanTheCompilerAllows) {
  expect_fault("too_much_shared", {"53248 bytes of static shared memory"});
}

TEST(Faults, MoreThreadsThanTheLaunchBounds) {
  EXPECT_EQ(outcome("reverse", 0, 1, 96).fault, "reverse: blocks of 96 threads, its launch bounds are 64");
}

TEST(Faults, BlocksThatWriteOnePlaceDifferBetweenOrders) {
  if (thread_sanitized) {
    EXPECT_DEATH(outcome("one_place", 1, 3), "data race");
    return;
  }
  std::set<std::vector<float>> results;
  for (uint64_t seed = 0; seed < 8; ++seed) results.insert(outcome("one_place", seed, 3).y);
  EXPECT_GT(results.size(), 1U);
}

TEST(Faults, AShuffleTakenForSyncwarpIsARace) {
  if (!thread_sanitized) GTEST_SKIP() << "needs ThreadSanitizer: shuffles do order memory on the host";
  EXPECT_DEATH(outcome("shuffle_for_syncwarp", 1), "data race");
}

}  // namespace
}  // namespace plait::test
