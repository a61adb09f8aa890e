// Programs on an emulated device: launches, islands, capture and replay.
#include <gtest/gtest.h>

#include "core/exec/executor.h"
#include "core/passes/compile.h"
#include "tests/unit/cuda_driver/on_device.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

/// A kernel of the emulated driver for a unary op of floats.
Kernel unary(const char* op, KernelStatus (*run)(const KernelCall&)) {
  Kernel out;
  out.op = op;
  out.isa = "test";
  out.device = DeviceKind::cuda;
  out.run = run;
  return out;
}

KernelStatus negate(const KernelCall& call) {
  return cuda::CudaQueue::of(call).launch("scale", {}, {32}, 0, call.inputs[0].data, call.outputs[0].data, -1.0F,
                                          0.0F, static_cast<int>(call.inputs[0].elements()));
}

KernelStatus look_up(const KernelCall& call) {
  cuda::CudaQueue& queue = cuda::CudaQueue::of(call);
  return queue.launch("gather", {}, {32}, 0, call.inputs[0].data, call.inputs[1].data, call.outputs[0].data,
                      static_cast<int>(call.inputs[0].elements()), static_cast<int>(call.inputs[1].elements()),
                      queue.fault_word(), call.instruction);
}

struct OnEmulated {
  explicit OnEmulated(const std::string& graph) {
    register_reference_kernels(kernels);
    kernels.add(unary("Neg", negate));
    kernels.add(unary("Gather", look_up));
    CompileOptions options{World::get().ops, kernels};
    options.device = DeviceKind::cuda;
    model = compile_plain(parse_graph(graph), options);
    store.load(*model.program, std::vector<int64_t>(static_cast<size_t>(model.program->symbols.size())), &pool);
    executor = std::make_unique<Executor>(model.program, store, pool);
  }
  std::vector<float> run(const std::vector<Tensor>& inputs) {
    std::vector<TensorView> views;
    for (const Tensor& input : inputs) views.push_back(input.view());
    executor->run(views);
    const TensorView out = executor->output(0);
    return {out.as<float>(), out.as<float>() + out.elements()};
  }

  KernelTable kernels;
  PlainModel model;
  Store store{nullptr, cuda::make_cuda_device(emulated_libraries(), 0)};
  ThreadPool pool{1};
  std::unique_ptr<Executor> executor;
};

Tensor floats(const std::vector<float>& values) {
  return Tensor::of<float>(DType::f32, {static_cast<int64_t>(values.size())}, values);
}

constexpr const char* twice = R"(
input %0 "x" : f32[n]
node "a" : %1 : f32[n] = Neg(%0)
node "b" : %2 : f32[n] = Neg(%1)
node "c" : %3 : f32[n] = Neg(%2)
output %3
)";

TEST(EmulatedExecutor, TheSecondRunOfASizeIsCaptured) {
  OnEmulated model(twice);
  const auto replays = [before = emulated_counts().replays] { return emulated_counts().replays - before; };
  EXPECT_EQ(model.run({floats({1, 2})}), (std::vector<float>{-1, -2}));
  EXPECT_EQ(replays(), 0);
  EXPECT_EQ(model.run({floats({3, 4})}), (std::vector<float>{-3, -4}));
  EXPECT_EQ(replays(), 1);
  EXPECT_EQ(model.run({floats({5})}), std::vector<float>{-5}) << "another size";
  EXPECT_EQ(replays(), 1);
  EXPECT_EQ(model.run({floats({7, 8})}), (std::vector<float>{-7, -8}));
  EXPECT_EQ(replays(), 2);
}

TEST(EmulatedExecutor, ASteadyRunIsOneReplayOneCopyInAndOneOut) {
  OnEmulated model(twice);
  for (int i = 0; i < 3; ++i) model.run({floats({1, 2})});
  const plait_emulated_counts before = emulated_counts();
  model.run({floats({3, 4})});
  const plait_emulated_counts after = emulated_counts();
  EXPECT_EQ(after.replays - before.replays, 1);
  EXPECT_EQ(after.copies - before.copies, 2);
  EXPECT_EQ(after.all_allocations - before.all_allocations, 0);
  EXPECT_EQ(after.pageable - before.pageable, 0);
}

TEST(EmulatedExecutor, MoreMemoryEndsWhatWasCaptured) {
  OnEmulated model(twice);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(model.run({floats({1})}), std::vector<float>{-1});
  const std::vector<float> many(5000, 2);
  EXPECT_EQ(model.run({floats(many)}), std::vector<float>(5000, -2));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(model.run({floats({4})}), std::vector<float>{-4});
}

TEST(EmulatedExecutor, OpsWithoutAKernelRunOnTheHost) {
  OnEmulated model(R"(
input %0 "x" : f32[n]
node "a" : %1 : f32[n] = Neg(%0)
node "b" : %2 : f32[n] = Exp(%1)
node "c" : %3 : f32[n] = Neg(%2)
output %3
)");
  const int64_t replays = emulated_counts().replays;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(model.run({floats({0, 0})}), (std::vector<float>{-1, -1}));
  EXPECT_EQ(emulated_counts().replays, replays) << "an island is not captured";
}

TEST(EmulatedExecutor, FaultsNameTheNodeAlsoInReplays) {
  OnEmulated model(R"(
input %0 "table" : f32[n]
input %1 "index" : i64[2]
node "first" : %2 : f32[n] = Neg(%0)
node "look up" : %3 : f32[2] = Gather(%2, %1)
output %3
)");
  const auto index = [](int64_t a, int64_t b) {
    const std::vector<int64_t> both{a, b};
    return Tensor::of<int64_t>(DType::i64, {2}, both);
  };
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(model.run({floats({5, 6, 7}), index(2, 0)}), (std::vector<float>{-7, -5}));
    const std::string message = error([&] { model.run({floats({5, 6, 7}), index(0, 9)}); });
    EXPECT_NE(message.find("look up"), std::string::npos) << message;
    EXPECT_NE(message.find("operand 1 holds the index 9"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace plait::test
