// The emulated driver finds mistakes that a GPU may hide. Each test has the mistake, and most the right program too.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kernels/cuda/cuda_libraries.h"
#include "tests/unit/support/emulated_device.h"
#include "tests/unit/support/machine_load.h"

namespace plait::cuda {
namespace {

using test::emulated_counts;
using test::emulated_libraries;
using test::emulated_seed;
using test::settled_counts;

constexpr int seeds = 20;

/// A context of device 0 with two streams and two arrays of `n` floats.
struct Emulation : testing::Test {
  static constexpr int n = 256;
  static constexpr size_t bytes = n * sizeof(float);
  const CudaDriver& cu = emulated_libraries()->driver;
  Context context = nullptr;
  Stream a = nullptr, b = nullptr;
  Event event = nullptr;
  Library library = nullptr;
  KernelHandle scale = nullptr, broken = nullptr;
  DevicePtr x = 0, y = 0;
  float *in = nullptr, *out = nullptr;

  void SetUp() override {
    cu.call(cu.context_retain, &context, 0);
    cu.call(cu.context_set, context);
    cu.call(cu.stream_create, &a, stream_non_blocking, 0);
    cu.call(cu.stream_create, &b, stream_non_blocking, 0);
    cu.call(cu.event_create, &event, event_disable_timing);
    cu.call(cu.library_load, &library, static_cast<const void*>("image"), nullptr, nullptr, 0U, nullptr, nullptr, 0U);
    cu.call(cu.library_kernel, &scale, library, "scale");
    cu.call(cu.library_kernel, &broken, library, "broken");
    cu.call(cu.memory_alloc, &x, bytes);
    cu.call(cu.memory_alloc, &y, bytes);
    for (float** host : {&in, &out}) {
      void* memory = nullptr;
      cu.call(cu.host_alloc, &memory, bytes, 0U);
      *host = static_cast<float*>(memory);
    }
  }
  void TearDown() override {
    cu.stream_destroy(a), cu.stream_destroy(b), cu.event_destroy(event), cu.library_unload(library);
    cu.memory_free(x), cu.memory_free(y), cu.host_free(in), cu.host_free(out);
    cu.context_release(0);
    cu.context_set(nullptr);
  }

  Status launch(Stream stream, DevicePtr from, DevicePtr to, float factor, float added,
                KernelHandle kernel = nullptr) {
    int count = n;
    void* parameters[] = {&from, &to, &factor, &added, &count};
    const LaunchConfig config{1, 1, 1, 32, 1, 1, 0, stream, nullptr, 0};
    return cu.launch(&config, reinterpret_cast<Function>(kernel ? kernel : scale), parameters, nullptr);
  }
  void expect(float value) {
    for (int i = 0; i < n; ++i) ASSERT_EQ(out[i], value) << "at " << i;
  }
};

TEST_F(Emulation, AMissingEventShowsInResults) {
  const auto run = [&](bool waits, int seed) {
    emulated_seed(static_cast<uint64_t>(seed));
    std::fill(in, in + n, 2.0F);
    cu.fill(x, 0xFF, bytes, a);
    cu.stream_synchronize(a);
    cu.copy_to_device(x, in, bytes, a);
    cu.event_record(event, a);
    if (waits) cu.stream_wait(b, event, 0);
    EXPECT_EQ(launch(b, x, y, 3, 1), 0);
    cu.copy_to_host(out, y, bytes, b);
    EXPECT_EQ(cu.stream_synchronize(b), 0);
    EXPECT_EQ(cu.stream_synchronize(a), 0);
    return out[0] == 7;
  };
  int wrong = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    EXPECT_TRUE(run(true, seed));
    wrong += !run(false, seed);
  }
  EXPECT_GT(wrong, 0);
}

/// Who waits for a record of an event does not continue with a later one, which another stream reaches first; nor does the first then
/// stand for the last.
TEST_F(Emulation, AnEventRecordedAgainIsAnotherRecord) {
  Stream c = nullptr;
  cu.call(cu.stream_create, &c, stream_non_blocking, 0);
  for (int seed = 0; seed < seeds; ++seed) {
    emulated_seed(static_cast<uint64_t>(seed));
    std::fill(in, in + n, 2.0F);
    cu.fill(x, 0xFF, bytes, a);
    cu.stream_synchronize(a);
    cu.copy_to_device(x, in, bytes, a);
    cu.event_record(event, a);
    cu.stream_wait(b, event, 0);
    EXPECT_EQ(launch(b, x, y, 3, 1), 0);
    cu.copy_to_host(out, y, bytes, b);
    cu.event_record(event, c);
    EXPECT_EQ(cu.stream_synchronize(c), 0);
    EXPECT_EQ(cu.event_query(event), 0) << "in order " << seed;
    EXPECT_EQ(cu.stream_synchronize(b), 0);
    expect(7);
    EXPECT_EQ(cu.event_query(event), 0) << "in order " << seed;
  }
  cu.stream_destroy(c);
}

TEST_F(Emulation, WhatIsReadBeforeTheWaitIsNotANumber) {
  std::fill(in, in + n, 0.0F);
  cu.copy_to_device(x, in, bytes, a);
  cu.stream_synchronize(a);
  cu.copy_to_host(out, x, bytes, a);
  // The device may have begun by itself, after a delay.
  bool nan = std::isnan(out[0]);
  for (int i = 0; i < seeds && !nan; ++i) {
    cu.stream_synchronize(a);
    cu.copy_to_host(out, x, bytes, a);
    nan = std::isnan(out[0]);
  }
  EXPECT_TRUE(nan);
  EXPECT_EQ(cu.stream_synchronize(a), 0);
  expect(0);
}

TEST_F(Emulation, ASourceThatIsReusedBeforeTheWaitShowsInResults) {
  int wrong = 0;
  for (int i = 0; i < seeds; ++i) {
    std::fill(in, in + n, 1.0F);
    cu.copy_to_device(x, in, bytes, a);
    std::fill(in, in + n, 5.0F);
    cu.copy_to_host(out, x, bytes, a);
    cu.stream_synchronize(a);
    wrong += out[n - 1] != 1;
  }
  EXPECT_GT(wrong, 0);
}

TEST_F(Emulation, TheHostCannotTouchMemoryOfADevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(std::memset(reinterpret_cast<void*>(x), 0, 4), "");
}

TEST_F(Emulation, NorBeyondAnAllocation) {
  EXPECT_EQ(cu.fill(x, 0, bytes + 1, a), 0);
  EXPECT_EQ(cu.stream_synchronize(a), cuda_illegal_address);
  EXPECT_TRUE(ends_context(cuda_illegal_address));
  EXPECT_EQ(cu.fill(x, 0, 1, a), cuda_illegal_address) << "the context has ended";
}

TEST_F(Emulation, FreedMemoryIsNotTakenByKernelsOrCopies) {
  DevicePtr freed = 0;
  ASSERT_EQ(cu.memory_alloc(&freed, bytes), 0);
  ASSERT_EQ(cu.memory_free(freed), 0);
  EXPECT_EQ(cu.memory_free(freed), cuda_invalid_value) << "twice";
  EXPECT_EQ(launch(a, x, freed, 1, 0), 0);
  EXPECT_EQ(cu.stream_synchronize(a), cuda_illegal_address);
}

TEST_F(Emulation, AFaultOfAKernelIsItsOwnMessage) {
  EXPECT_EQ(launch(a, x, y, 1, 0, broken), 0);
  EXPECT_EQ(cu.stream_synchronize(a), cuda_launch_failed);
  EXPECT_EQ(cu.text(cuda_launch_failed), "CUDA_ERROR_LAUNCH_FAILED (broken: 5 threads wait at line 7 forever)");
  EXPECT_EQ(cu.stream_synchronize(b), cuda_launch_failed);
}

TEST_F(Emulation, AThreadWithoutAContextIsRefused) {
  Status status = 0;
  std::thread([&] { status = cu.fill(x, 0, 1, a); }).join();
  EXPECT_EQ(status, cuda_invalid_context);
}

TEST_F(Emulation, MemoryOfAPeerNeedsAccess) {
  Context other = nullptr;
  ASSERT_EQ(cu.context_retain(&other, 1), 0);
  ASSERT_EQ(cu.context_set(other), 0);
  DevicePtr theirs = 0;
  ASSERT_EQ(cu.memory_alloc(&theirs, bytes), 0);
  ASSERT_EQ(cu.context_set(context), 0);
  int possible = 0;
  EXPECT_EQ(cu.peer_possible(&possible, 0, 1), 0);
  EXPECT_TRUE(possible);
  EXPECT_EQ(cu.peer_enable(other, 0), 0);
  EXPECT_EQ(cu.peer_enable(other, 0), cuda_peer_access_already_enabled);
  std::fill(in, in + n, 4.0F);
  cu.copy_to_device(theirs, in, bytes, a);
  EXPECT_EQ(launch(a, theirs, y, 2, 0), 0);
  cu.copy_to_host(out, y, bytes, a);
  EXPECT_EQ(cu.stream_synchronize(a), 0);
  expect(8);
  // The other way it was not enabled.
  Stream stream = nullptr;
  ASSERT_EQ(cu.context_set(other), 0);
  ASSERT_EQ(cu.stream_create(&stream, stream_non_blocking, 0), 0);
  EXPECT_EQ(cu.copy(theirs, x, bytes, stream), 0);
  EXPECT_EQ(cu.stream_synchronize(stream), cuda_illegal_address);
  cu.stream_destroy(stream), cu.memory_free(theirs), cu.context_release(1);
  cu.context_set(context);
}

/// The other process of the next test, which passes the handle.
TEST_F(Emulation, DISABLED_OtherProcess) {
  IpcHandle handle;
  const std::string text = std::getenv("PLAIT_TEST_HANDLE");
  for (size_t i = 0; i < sizeof handle; ++i)
    handle.bytes[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  DevicePtr theirs = 0;
  EXPECT_EQ(cu.ipc_open(&theirs, handle, 0), cuda_invalid_value) << "without the flag that lets peers access it";
  ASSERT_EQ(cu.ipc_open(&theirs, handle, ipc_lazy_peer_access), 0);
  std::printf("open\n");
  std::fflush(stdout);
  const std::string freed = std::getenv("PLAIT_TEST_FILE");
  EXPECT_TRUE(test::eventually([&] { return std::filesystem::exists(freed); }));
  DevicePtr again = 0;
  EXPECT_EQ(cu.ipc_open(&again, handle, ipc_lazy_peer_access), 0);
  EXPECT_EQ(again, theirs) << "it is open";
  EXPECT_EQ(cu.ipc_close(theirs), 0);
  EXPECT_EQ(launch(a, theirs, theirs, 2, 1), 0);
  EXPECT_EQ(cu.stream_synchronize(a), 0);
  EXPECT_EQ(cu.memory_free(theirs), cuda_invalid_value) << "it is another process's";
  EXPECT_EQ(cu.ipc_close(theirs), 0);
  EXPECT_EQ(cu.ipc_close(theirs), cuda_invalid_value);
  EXPECT_EQ(launch(a, theirs, y, 2, 1), 0);
  EXPECT_EQ(cu.stream_synchronize(a), cuda_illegal_address) << "it was closed";
}

TEST_F(Emulation, MemoryIsSharedBetweenProcesses) {
  std::fill(in, in + n, 4.0F);
  cu.copy_to_device(x, in, bytes, a);
  ASSERT_EQ(cu.stream_synchronize(a), 0);
  IpcHandle handle;
  EXPECT_EQ(cu.ipc_get(&handle, x + 4), cuda_invalid_value) << "no allocation begins there";
  ASSERT_EQ(cu.ipc_get(&handle, x), 0);
  DevicePtr own = 0;
  EXPECT_EQ(cu.ipc_open(&own, handle, ipc_lazy_peer_access), cuda_invalid_context) << "the process's own handle";
  std::string text;
  for (const char byte : handle.bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string freed = std::filesystem::temp_directory_path() / ("plait-freed-" + std::to_string(getpid()));
  const std::string command =
      "PLAIT_TEST_HANDLE=" + text + " PLAIT_TEST_FILE='" + freed + "' '" + program +
      "' --gtest_brief=1 --gtest_also_run_disabled_tests --gtest_filter=*DISABLED_OtherProcess";
  FILE* const other = popen(command.c_str(), "r");
  ASSERT_TRUE(other);
  std::string said;
  for (char line[256]; said.find("open\n") == std::string::npos && std::fgets(line, sizeof line, other);)
    said += line;
  EXPECT_EQ(cu.memory_free(x), cuda_invalid_value) << "another process has it open";
  std::ofstream(freed) << "tried";
  for (char line[256]; std::fgets(line, sizeof line, other);) said += line;
  EXPECT_EQ(pclose(other), 0) << said;
  std::filesystem::remove(freed);
  cu.copy_to_host(out, x, bytes, a);
  ASSERT_EQ(cu.stream_synchronize(a), 0);
  expect(9);
}

TEST_F(Emulation, WhatAContextStillHasIsCounted) {
  const int64_t left = emulated_counts().left;
  Context other = nullptr;
  ASSERT_EQ(cu.context_retain(&other, 1), 0);
  ASSERT_EQ(cu.context_set(other), 0);
  DevicePtr forgotten = 0;
  ASSERT_EQ(cu.memory_alloc(&forgotten, bytes), 0);
  ASSERT_EQ(cu.context_release(1), 0);
  EXPECT_EQ(emulated_counts().left, left + 1);
  ASSERT_EQ(cu.context_retain(&other, 1), 0);
  EXPECT_EQ(cu.memory_free(forgotten), 0);
  EXPECT_EQ(cu.context_release(1), 0);
}

/// A host that counts what devices have done has to wait for all of it, not for a result only.
TEST_F(Emulation, LaunchesAreCountedWhenTheyRun) {
  bool late = false;
  for (int seed = 0; seed < seeds; ++seed) {
    emulated_seed(static_cast<uint64_t>(seed));
    const int64_t before = settled_counts().launches;
    for (const Stream stream : {a, b, a}) EXPECT_EQ(launch(stream, x, y, 2, 1), 0);
    late = late || emulated_counts().launches < before + 3;
    EXPECT_EQ(settled_counts().launches, before + 3);
  }
  EXPECT_TRUE(late) << "streams are lazy";
}

/// Under ThreadSanitizer: work looks at what its context may access, which a host may change meanwhile.
TEST_F(Emulation, AccessToPeersIsGivenWhileWorkRuns) {
  for (int device = 1; device < 4; ++device) {
    Context other = nullptr;
    ASSERT_EQ(cu.context_retain(&other, device), 0);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(launch(i % 2 ? a : b, x, y, 1, 0), 0);
    cu.event_record(event, a);
    cu.event_query(event);                            // it begins
    const Status status = cu.peer_enable(other, 0U);  // other tests may have left the context with access
    EXPECT_TRUE(!status || status == cuda_peer_access_already_enabled) << status;
    EXPECT_EQ(cu.peer_enable(other, 0U), cuda_peer_access_already_enabled);
  }
  EXPECT_EQ(cu.stream_synchronize(a), 0);
  EXPECT_EQ(cu.stream_synchronize(b), 0);
  for (int device = 1; device < 4; ++device) EXPECT_EQ(cu.context_release(device), 0);
}

// ---- capture ----

struct Capturing : Emulation {
  void begin() { ASSERT_EQ(cu.capture_begin(a, capture_thread_local), 0); }
  Status end() {
    Graph graph = nullptr;
    const Status status = cu.capture_end(a, &graph);
    if (graph) cu.graph_destroy(graph);
    return status;
  }
};

TEST_F(Capturing, ReplaysDoWhatWasCaptured) {
  begin();
  EXPECT_EQ(launch(a, x, y, 2, 1), 0);
  Event forked = nullptr, joined = nullptr;
  cu.event_create(&forked, event_disable_timing), cu.event_create(&joined, event_disable_timing);
  cu.event_record(forked, a), cu.stream_wait(b, forked, 0);
  EXPECT_EQ(launch(b, y, y, 1, 10), 0);
  cu.event_record(joined, b), cu.stream_wait(a, joined, 0);
  EXPECT_EQ(launch(a, y, y, 3, 0), 0);
  Graph graph = nullptr;
  GraphExec exec = nullptr;
  ASSERT_EQ(cu.capture_end(a, &graph), 0);
  ASSERT_EQ(cu.graph_instantiate(&exec, graph, 0ULL), 0);
  const int64_t launches = emulated_counts().launches;
  for (const float value : {1.0F, 2.0F}) {
    std::fill(in, in + n, value);
    cu.copy_to_device(x, in, bytes, a);
    ASSERT_EQ(cu.graph_launch(exec, a), 0);
    cu.copy_to_host(out, y, bytes, a);
    ASSERT_EQ(cu.stream_synchronize(a), 0);
    expect(3 * (2 * value + 1 + 10));
  }
  EXPECT_EQ(emulated_counts().launches, launches + 6);
  cu.graph_exec_destroy(exec), cu.graph_destroy(graph), cu.event_destroy(forked), cu.event_destroy(joined);
}

TEST_F(Capturing, WaitingEndsIt) {
  begin();
  EXPECT_EQ(cu.stream_synchronize(a), cuda_stream_capture_unsupported);
  EXPECT_EQ(launch(a, x, y, 1, 0), cuda_stream_capture_invalidated);
  EXPECT_EQ(end(), cuda_stream_capture_invalidated);
}

TEST_F(Capturing, AllocatingEndsIt) {
  begin();
  DevicePtr memory = 0;
  EXPECT_EQ(cu.memory_alloc(&memory, bytes), cuda_stream_capture_unsupported);
  EXPECT_EQ(cu.memory_free(x), cuda_stream_capture_unsupported);
  EXPECT_EQ(end(), cuda_stream_capture_invalidated);
}

TEST_F(Capturing, LookingAtACapturedEventEndsIt) {
  begin();
  cu.event_record(event, a);
  EXPECT_EQ(cu.event_query(event), cuda_stream_capture_unsupported);
  EXPECT_EQ(end(), cuda_stream_capture_invalidated);
}

TEST_F(Capturing, AnotherStreamHasToBeJoined) {
  begin();
  cu.event_record(event, a), cu.stream_wait(b, event, 0);
  EXPECT_EQ(launch(b, x, y, 1, 0), 0);
  EXPECT_EQ(end(), cuda_stream_capture_unjoined);
  EXPECT_EQ(cu.stream_synchronize(b), 0) << "it does not capture any more";
}

TEST_F(Capturing, WorkOutsideCannotBeWaitedFor) {
  cu.event_record(event, b);
  begin();
  EXPECT_EQ(cu.stream_wait(a, event, 0), cuda_stream_capture_isolation);
  EXPECT_EQ(end(), cuda_stream_capture_invalidated);
}

}  // namespace
}  // namespace plait::cuda
