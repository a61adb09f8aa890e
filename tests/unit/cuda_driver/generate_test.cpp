// Engines on an emulated device with the kernels for it: logits, bits, and what a step costs.
#include <gtest/gtest.h>

#include "core/generate/engines.h"
#include "kernels/cuda/launch/register.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/emulated_device.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

/// Kernels of the reference and for CUDA devices.
const KernelTable& device_kernels() {
  static const KernelTable table = [] {
    KernelTable out;
    register_reference_kernels(out);
    register_cuda_kernels(out);
    return out;
  }();
  return table;
}

std::unique_ptr<Engine> device_engine(const std::string& model, DType dtype) {
  CompileOptions options{World::get().ops, device_kernels()};
  options.dtype = dtype;
  options.device = DeviceKind::cuda;
  options.make_device = [](int64_t) { return cuda::make_cuda_device(emulated_libraries(), 0); };
  return make_engine(fixture_graph(model), options, small_engine());
}

class OnCuda : public testing::TestWithParam<const char*> {};

TEST_P(OnCuda, LogitsAreTheProcessorsAndHaveTheSameBitsInAnyChunks) {
  const std::vector<int32_t> ids = some_ids(24);
  for (DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)));
    auto device = device_engine(GetParam(), dtype);
    auto processor = fixture_engine(GetParam());
    if (dtype == DType::bf16)
      processor = make_engine(fixture_graph(GetParam()), World::get().options(dtype), small_engine());
    const std::vector<float> got = logits(*device, ids, nullptr, 24), expected = logits(*processor, ids, nullptr, 24);
    double error = 0, power = 0;
    for (size_t i = 0; i < got.size(); ++i)
      error += (got[i] - expected[i]) * (got[i] - expected[i]), power += expected[i] * expected[i];
    EXPECT_LT(error / power, 1e-4);
    for (size_t chunk : {size_t{1}, size_t{7}})
      EXPECT_EQ(logits(*device, ids, nullptr, chunk), got) << "chunks of " << chunk;
  }
}

TEST_P(OnCuda, ASteadyStepIsOneReplayOneCopyInAndOneForEachOutput) {
  auto engine = device_engine(GetParam(), DType::f32);
  auto sequence = engine->open({});
  feed(*engine, *sequence, some_ids(5));
  for (int i = 0; i < 3; ++i) feed(*engine, *sequence, some_ids(1));
  const plait_emulated_counts before = emulated_counts();
  feed(*engine, *sequence, some_ids(1));
  const plait_emulated_counts after = emulated_counts();
  EXPECT_EQ(after.replays - before.replays, 1);
  EXPECT_EQ(after.copies - before.copies, 3) << "inputs, logits, hidden state";
  EXPECT_EQ(after.all_allocations - before.all_allocations, 0);
  EXPECT_EQ(after.pageable - before.pageable, 0);
}

INSTANTIATE_TEST_SUITE_P(All, OnCuda,
                         testing::Values("gpt2-optimum18", "llama-untied-optimum18", "gemma3-optimum18",
                                         "qwen2-optimum18", "llama-dynamo23", "qwen3-dynamo23",
                                         "gemma3-standard23-bf16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace plait::test
