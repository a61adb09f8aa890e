// A CUDA device on the emulated driver.
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/block.h"
#include "core/base/error.h"
#include "tests/unit/cuda_driver/on_device.h"

namespace plait::test {
namespace {

TEST_F(OnDevice, MemoryIsZeroedAndCopiesAreOrdered) {
  const Tensor empty(DType::f32, {3}, device->take(12));
  EXPECT_EQ(values(empty), std::vector<float>(3));
  const Tensor x = floats({1, 2, 3});
  device->copy(compute, empty.view().data, x.data(), 12);
  device->fill(compute, empty.view().data, 0, 4);
  EXPECT_EQ(values(empty), (std::vector<float>{0, 2, 3}));
}

TEST_F(OnDevice, LargeArraysGoThroughTheRing) {
  std::vector<float> large((20 << 20) / 4 + 3);
  std::iota(large.begin(), large.end(), 0.0F);
  const int64_t pageable = emulated_counts().pageable;
  EXPECT_EQ(values(floats(large)), large);
  EXPECT_EQ(emulated_counts().pageable, pageable) << "asynchronous copies have to be of pinned memory";
}

TEST_F(OnDevice, AnArrayTakesItsOwnBytes) {
  const std::shared_ptr<const Blob> file = make_blob(int64_t{1} << 20);
  const Tensor small(DType::f32, {4}, file, 256), there = device->upload(small);
  EXPECT_EQ(values(there), std::vector<float>(4, 0));
  EXPECT_EQ(there.blob()->size(), small.bytes());
}

TEST_F(OnDevice, BlocksAreThoseOfTheHost) {
  std::vector<float> numbers(3 * 8 * 2);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  for (int dim = 0; dim < 3; ++dim) {
    Tensor whole = Tensor::of<float>(DType::f32, {3, 8, 2}, numbers);
    Shape shape{3, 8, 2};
    shape[dim] -= 1;
    Tensor part(DType::f32, shape);
    const Tensor whole_there = device->upload(whole), part_there = device->upload(part);
    take_block(whole.view(), dim, 1, part.view());
    device->take_block(compute, whole_there.view(), dim, 1, part_there.view());
    EXPECT_EQ(values(part_there), values(device->upload(part)));
    put_block(whole.view(), dim, 0, part.view());
    device->put_block(compute, whole_there.view(), dim, 0, part_there.view());
    EXPECT_EQ(values(whole_there), values(device->upload(whole)));
  }
}

TEST_F(OnDevice, KernelsRunInTheOrderOfTheirQueue) {
  const Tensor x = floats({1, 2, 3}), y = floats({0, 0, 0});
  launch(compute, scale(2, 1), {x.view()}, {y.view()});
  launch(compute, scale(10, 0), {y.view()}, {y.view()});
  EXPECT_EQ(values(y), (std::vector<float>{30, 50, 70}));
}

TEST_F(OnDevice, EventsOrderQueues) {
  Queue& collective = device->queue(Use::collective);
  for (int round = 0; round < 20; ++round) {
    const Tensor x = floats({1, 2, 3}), y = floats({0, 0, 0});
    launch(compute, scale(2, 1), {x.view()}, {y.view()});
    device->wait(collective, device->record(compute));
    const QueueEvent end =
        device->submit(collective, [&] { launch(collective, scale(10, 0), {y.view()}, {y.view()}); });
    device->wait(compute, end);
    launch(compute, scale(1, 1), {y.view()}, {y.view()});
    EXPECT_EQ(values(y), (std::vector<float>{31, 51, 71}));
  }
}

TEST_F(OnDevice, FaultsAreThoseOfTheFirstLaunch) {
  const std::vector<int64_t> bad{0, 7}, worse{-1, 1};
  const Tensor table = floats({5, 6}), y = floats({0, 0});
  const Tensor first = device->upload(Tensor::of<int64_t>(DType::i64, {2}, bad));
  const Tensor second = device->upload(Tensor::of<int64_t>(DType::i64, {2}, worse));
  Fault fault;
  launch(compute, gather(), {table.view(), first.view()}, {y.view()}, &fault, 3);
  launch(compute, gather(), {table.view(), second.view()}, {y.view()}, &fault, 4);
  device->finish(device->record(compute));
  EXPECT_EQ(fault.status.code, KernelCode::index_out_of_range);
  EXPECT_EQ(fault.status.operand, 1);
  EXPECT_EQ(fault.status.value, 7);
  EXPECT_EQ(fault.instruction, 3);
  Fault next;
  launch(compute, scale(1, 0), {table.view()}, {y.view()}, &next);
  device->finish(device->record(compute));
  EXPECT_FALSE(next.found()) << "a fault belongs to the run that had it";
}

TEST_F(OnDevice, ReplaysTakeWhatIsInMemoryThen) {
  const Tensor x = floats({1, 2, 3}), y = floats({0, 0, 0});
  ASSERT_TRUE(device->captures());
  const auto captured = device->capture(compute, [&] {
    launch(compute, scale(2, 1), {x.view()}, {y.view()});
    launch(compute, scale(10, 0), {y.view()}, {y.view()});
  });
  EXPECT_EQ(values(y), std::vector<float>(3)) << "capturing runs nothing";
  device->replay(compute, *captured);
  EXPECT_EQ(values(y), (std::vector<float>{30, 50, 70}));
  device->overwrite(x.view(), [](const TensorView& host) { std::fill_n(host.as<float>(), 3, 1.0F); });
  device->replay(compute, *captured);
  EXPECT_EQ(values(y), (std::vector<float>{30, 30, 30}));
}

TEST_F(OnDevice, HostKernelsRunOnCopies) {
  Kernel twice;
  twice.op = "Twice";
  twice.run = [](const KernelCall& call) -> KernelStatus {
    for (int64_t i = 0; i < call.inputs[0].elements(); ++i)
      call.outputs[0].as<float>()[i] = 2 * call.inputs[0].as<float>()[i];
    return {KernelCode::bad_value, 0, 9};
  };
  const Tensor x = floats({1, 2, 3}), y = floats({0, 0, 0});
  Fault fault;
  launch(compute, scale(1, 1), {x.view()}, {x.view()});
  launch(compute, twice, {x.view()}, {y.view()}, &fault, 5);
  launch(compute, scale(1, 1), {y.view()}, {y.view()});
  EXPECT_EQ(values(y), (std::vector<float>{5, 7, 9}));
  EXPECT_EQ(fault.status.value, 9);
  EXPECT_EQ(fault.instruction, 5);
  launch(compute, twice, {y.view()}, {y.view()}, &fault, 6);
  EXPECT_EQ(values(y), (std::vector<float>{10, 14, 18})) << "in place";
  EXPECT_EQ(fault.instruction, 5);
}

// ---- errors ----

TEST_F(OnDevice, KernelsAreNamed) {
  Kernel unknown = scale(1, 0);
  unknown.run = [](const KernelCall& call) { return cuda::CudaQueue::of(call).launch("no_such", {}, {}, 0); };
  EXPECT_NE(error([&] { launch(compute, unknown, {}, {}); }).find("has no kernel no_such"), std::string::npos);
  unknown.run = [](const KernelCall& call) {
    return cuda::CudaQueue::of(call).launch("scale", {}, {2000}, 0, 0L, 0L, 0, 0, 0);
  };
  EXPECT_NE(
      error([&] { launch(compute, unknown, {}, {}); }).find("cuLaunchKernelEx of scale: CUDA_ERROR_INVALID_VALUE"),
      std::string::npos);
}

TEST_F(OnDevice, ALostDeviceIsAnErrorAndTheNextOneWorks) {
  Kernel broken = scale(1, 0);
  broken.run = [](const KernelCall& call) { return cuda::CudaQueue::of(call).launch("broken", {}, {}, 0, 0L); };
  launch(compute, broken, {}, {});
  const std::string lost = error([&] { device->finish(device->record(compute)); });
  EXPECT_NE(lost.find("CUDA_ERROR_LAUNCH_FAILED (broken: 5 threads wait"), std::string::npos) << lost;
  EXPECT_NE(lost.find("create them again"), std::string::npos) << lost;
  EXPECT_NE(error([&] { device->take(4); }).find("CUDA_ERROR_LAUNCH_FAILED"), std::string::npos);
  device = nullptr;
  const auto next = cuda::make_cuda_device(emulated_libraries(), 0);
  EXPECT_NO_THROW(next->take(4));
}

TEST_F(OnDevice, TooLittleMemoryIsToldInBytes) {
  const std::string message = error([&] { device->take(int64_t{1} << 40); });
  EXPECT_NE(message.find("free of 268 MB; 1.1 TB more are needed"), std::string::npos) << message;
}

TEST(CudaDevices, WhatIsMissingIsNamed) {
  EXPECT_NE(error([] {
              cuda::make_cuda_device(emulated_libraries(), 4);
            }).find("there is no CUDA device 4: the driver has 4"),
            std::string::npos);
  EXPECT_NE(error([] { cuda::load_cuda("/no/plait_cuda.so"); }).find("/no/plait_cuda.so"), std::string::npos);
  EXPECT_NE(error([] { cuda::load_cuda("libc.so.6"); }).find("has no function plait_cuda_get_plugin"),
            std::string::npos);
  EXPECT_NE(error([] { cuda::load_driver("libcuda_that_is_not_there.so.1"); }).find("libcuda_that_is_not_there.so.1"),
            std::string::npos);
  EXPECT_NE(error([] { cuda::load_driver("libc.so.6"); }).find("has no function cuInit"), std::string::npos);
  setenv("PLAIT_EMULATE_VERSION", "11080", 1);
  EXPECT_NE(error([] { cuda::load_driver(emulated_libraries()->plugin); }).find("version 11.8; at least 13.0"),
            std::string::npos);
  unsetenv("PLAIT_EMULATE_VERSION");
}

}  // namespace
}  // namespace plait::test
