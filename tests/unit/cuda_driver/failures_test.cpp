// Every function of the driver is made to fail: the error names it, and nothing is left behind.
#include "tests/unit/cuda_driver/on_device.h"

namespace plait::test {
namespace {

/// Functions that a device calls to give something back, where no error can be thrown.
bool gives_back(const std::string& function) {
  static const std::set<std::string> all{
      "cuMemFree",       "cuMemFreeHost",  "cuStreamDestroy",    "cuEventDestroy",
      "cuLibraryUnload", "cuGraphDestroy", "cuGraphExecDestroy", "cuDevicePrimaryCtxRelease"};
  return all.count(function) > 0;
}

/// Everything that a device is used for. Loads the driver too.
struct Everything : OnDevice {
  void TestBody() override {}
  void run() {
    EXPECT_EQ(cuda::cuda_devices(cuda::load_driver(emulated_libraries()->plugin)).size(), 4u);
    EXPECT_GT(device->memory()->free, 0);
    const Tensor x = floats({1, 2, 3, 4}), y = floats({0, 0, 0, 0});
    device->fill(compute, y.view().data, 0, 4);
    device->copy(compute, y.view().data, x.data(), 4);
    const TensorView whole{x.view().data, DType::f32, {2, 2}}, part{y.view().data, DType::f32, {2, 1}};
    device->take_block(compute, whole, 1, 1, part);
    launch(compute, scale(2, 1), {x.view()}, {y.view()});
    Queue& other = device->queue(Use::collective);
    device->wait(other, device->record(compute));
    const auto captured = device->capture(compute, [&] { launch(compute, scale(2, 1), {x.view()}, {y.view()}); });
    device->replay(compute, *captured);
    large();
    EXPECT_EQ(values(y), (std::vector<float>{3, 5, 7, 9}));
  }
  /// A kernel with much shared memory.
  void large() {
    Kernel kernel = scale(1, 0);
    kernel.run = [](const KernelCall& call) {
      return cuda::CudaQueue::of(call).launch("scale", {}, {32}, 100 << 10, 0L, 0L, 0.0F, 0.0F, 0);
    };
    launch(compute, kernel, {}, {});
    device->finish(device->record(compute));
  }
};

bool same(const plait_emulated_counts& a, const plait_emulated_counts& b) {
  const auto of = [](const plait_emulated_counts& c) {
    return std::array{c.allocations, c.pinned, c.streams, c.events, c.graphs, c.graph_execs, c.libraries, c.contexts};
  };
  return of(a) == of(b);
}

class DriverFailure : public testing::TestWithParam<const char*> {};

TEST_P(DriverFailure, IsAnErrorThatNamesItAndLeavesNothing) {
  const std::string function = GetParam();
  int failed = 0;
  for (int call = 1; call <= 12; ++call) {
    const plait_emulated_counts before = emulated_counts();
    const std::string message = error([&] {
      emulated_fail((function + ":" + std::to_string(call)).c_str());
      Everything().run();
    });
    emulated_fail(nullptr);
    if (gives_back(function)) {
      EXPECT_EQ(message, "");
      ++failed;
      continue;
    }
    if (!message.empty()) {
      EXPECT_NE(message.find(function), std::string::npos) << message;
      ++failed;
    }
    EXPECT_TRUE(same(before, emulated_counts())) << "call " << call;
  }
  EXPECT_GT(failed, 0) << "the device does not call it";
}

std::vector<const char*> functions() {
  // Not used by a device by itself.
  static const std::set<std::string> others{
      "cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle",
      "cuStreamSynchronize",   "cuEventQuery",          "cuGetErrorName",    "cuGetErrorString"};
  std::vector<const char*> out;
#define PLAIT_NAME(member, function, symbol, parameters) \
  if (!others.count(#function)) out.push_back(#function);
  PLAIT_CUDA_DRIVER(PLAIT_NAME)
#undef PLAIT_NAME
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, DriverFailure, testing::ValuesIn(functions()),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace plait::test
