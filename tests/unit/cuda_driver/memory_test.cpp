// What a decoder needs of devices' memory is known before it is loaded, to the byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/generate/engines.h"
#include "kernels/cuda/launch/linear_pack.h"
#include "kernels/cuda/launch/register.h"
#include "kernels/cuda/packed_arrays.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/emulated_device.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

/// Emulated devices of which tests take memory, so that an engine finds as much as they leave.
class NarrowDevices {
 public:
  /// Leaves `bytes` on the device.
  void leave(int device, int64_t bytes) {
    auto& [own, taken] = devices_[device];
    if (!own) own = cuda::make_cuda_device(emulated_libraries(), device);
    taken.reset();
    taken = own->take(own->memory()->free - bytes);
  }

 private:
  std::map<int, std::pair<std::shared_ptr<Device>, std::shared_ptr<Blob>>> devices_;
};

/// Of vocabularies of 256 tokens, too.
std::vector<int32_t> few_ids(size_t count) {
  std::vector<int32_t> out = some_ids(count);
  for (int32_t& id : out) id %= 256;
  return out;
}

struct EngineMemory : testing::Test {
  NarrowDevices devices;
  EngineOptions options = small_engine();
  std::string model = "llama-standard23";
  DType dtype = DType::f32;

  /// `of_rank`: the devices of ranks; empty: one each.
  std::unique_ptr<Engine> engine(const char* mesh = "", const std::vector<int>& of_rank = {}) const {
    static const KernelTable kernels = [] {
      KernelTable out;
      register_reference_kernels(out);
      register_cuda_kernels(out);
      return out;
    }();
    CompileOptions compile{World::get().ops, kernels};
    compile.dtype = dtype;
    compile.device = DeviceKind::cuda;
    compile.make_device = [of_rank](int64_t rank) {
      const int device = of_rank.empty() ? static_cast<int>(rank) : of_rank[static_cast<size_t>(rank)];
      return cuda::make_cuda_device(emulated_libraries(), device);
    };
    if (*mesh) compile.mesh = Mesh::parse(mesh);
    return make_engine(fixture_graph(model), compile, options);
  }

  struct Refusal {
    std::string message, hint;
    int64_t needed = 0;  ///< bytes
  };
  /// Of an engine that does not fit.
  Refusal refusal(const char* mesh = "", const std::vector<int>& of_rank = {}) const {
    try {
      engine(mesh, of_rank);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::out_of_memory);
      std::smatch found;
      const std::string message(error.message());
      EXPECT_TRUE(std::regex_search(message, found, std::regex("needs? [^(]*\\(([0-9]+) bytes\\): "))) << message;
      return {message, std::string(error.hint()), found.empty() ? 0 : std::stoll(found[1])};
    }
    ADD_FAILURE() << "it fits";
    return {};
  }

  /// A step of the largest size, and steps of few tokens, which are captured and replayed.
  void use(Engine& engine) const {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Feed> feeds;
    const std::vector<int32_t> ids = few_ids(static_cast<size_t>(options.step_tokens));
    for (size_t i = 0; i < ids.size(); ++i) {
      sequences.push_back(engine.open({}));
      ASSERT_TRUE(engine.reserve(*sequences.back(), 1));
      feeds.push_back({sequences.back().get(), std::span(ids).subspan(i, 1), 1, {}, {}});
    }
    engine.step(feeds);
    sequences.clear();
    EXPECT_EQ(logits(engine, ids, nullptr, 1), logits(engine, ids));
  }
};

TEST_F(EngineMemory, ADecoderFitsInWhatItIsToldToNeedAndNotInAByteLess) {
  for (const char* one :
       {"llama-standard23", "gemma3-standard23-bf16", "zoo/lfm2/genai_fp32", "zoo/llama/genai_int4"}) {
    SCOPED_TRACE(one);
    model = one;
    dtype = std::string_view(one).ends_with("bf16") ? DType::bf16 : DType::f32;
    devices.leave(0, 1000);
    const Refusal first = refusal();
    EXPECT_THAT(first.message,
                testing::ContainsRegex("^CUDA device 0 has 1 kB \\(1000 bytes\\) free of 268 MB; the model needs"));
    EXPECT_THAT(first.message, testing::ContainsRegex(" of weights, .* of keys and values and .* of workspace$"));
    devices.leave(0, first.needed - 1);
    EXPECT_EQ(refusal().needed, first.needed);
    devices.leave(0, first.needed);
    const int64_t before = emulated_counts().device_bytes;
    const auto fits = engine();
    const EngineStats stats = fits->stats();
    EXPECT_EQ(emulated_counts().device_bytes - before, stats.weight_bytes + stats.cache_bytes + stats.arena_bytes);
    use(*fits);
    EXPECT_LE(emulated_counts().device_bytes - before, first.needed);
  }
}

TEST_F(EngineMemory, WhatWouldFitIsToldAndFits) {
  options.cache_bytes = 64 << 20;
  devices.leave(0, 40 << 20);
  const Refusal told = refusal();
  std::smatch found;
  ASSERT_TRUE(std::regex_search(told.hint, found, std::regex("cache_bytes=([0-9]+)M fits"))) << told.hint;
  EXPECT_THAT(told.hint, testing::HasSubstr("tensor=2 fits, with about"));
  options.cache_bytes = std::stoll(found[1]) << 20;
  EXPECT_EQ(engine()->options().cache_bytes, options.cache_bytes);
  options.cache_bytes += 1 << 20;
  refusal();
  options.cache_bytes = 64 << 20;
  devices.leave(0, 48 << 20);  // groups of devices take memory, too
  devices.leave(1, 48 << 20);
  engine("tensor=2");
}

TEST_F(EngineMemory, ACacheWithoutASizeTakesTheShareThatIsLeft) {
  options.cache_bytes = 0;
  options.context = 1 << 14;
  model = "zoo/llama/dynamo23";
  for (const double share : {0.9, 0.4}) {
    options.device_share = share;
    devices.leave(0, 40 << 20);
    const auto one = engine();
    const EngineStats stats = one->stats();
    const double limit = share * (40 << 20);
    const auto all = static_cast<double>(stats.weight_bytes + stats.cache_bytes + stats.arena_bytes);
    EXPECT_LE(all, limit);
    EXPECT_GT(all, 0.95 * limit - (2 << 20)) << "inputs and scratch are what is left";
    EXPECT_EQ(one->options().cache_bytes, stats.cache_bytes);
    use(*one);
  }
}

TEST_F(EngineMemory, ACacheWithoutASizeIsNoLargerThanWhatCanBeUsed) {
  options.cache_bytes = 0;
  options.context = 40;  // 3 pages
  options.step_sequences = 5;
  const auto one = engine();
  EXPECT_EQ(one->stats().pages, 15 * static_cast<int64_t>(one->decoder().groups.size()));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(one->could_fit(40));
}

/// Of several devices the one with the least memory decides for all.
TEST_F(EngineMemory, TheDeviceWithTheLeastDecides) {
  options.context = 1 << 14;
  model = "zoo/llama/dynamo23";
  options.cache_bytes = 0;
  std::vector<int64_t> caches;
  for (const int64_t least : {40, 30}) {
    devices.leave(0, 40 << 20);
    devices.leave(1, least << 20);
    const auto one = engine("tensor=2");
    const EngineStats stats = one->stats();
    EXPECT_EQ(stats.ranks[0].cache, stats.ranks[1].cache);
    caches.push_back(stats.cache_bytes);
    use(*one);
  }
  EXPECT_NEAR(static_cast<double>(caches[0] - caches[1]), 2 * 0.9 * (10 << 20), 100000) << "of each rank";

  options.cache_bytes = 16 << 20;
  devices.leave(0, 200 << 20);
  devices.leave(1, 11 << 20);
  const Refusal told = refusal("tensor=2");
  EXPECT_THAT(told.message,
              testing::ContainsRegex("^CUDA device 1 has .* free of 268 MB; rank 1 of the model needs"));
  EXPECT_THAT(told.message, testing::HasSubstr("8.39 MB of keys and values"));
}

TEST_F(EngineMemory, RanksThatShareADeviceShareItsMemory) {
  const std::vector<float> expected = logits(*engine("tensor=2"), some_ids(20));
  devices.leave(0, 1000);
  const Refusal told = refusal("tensor=2", {0, 0});
  EXPECT_THAT(told.message, testing::HasSubstr("its ranks 0, 1 need"));
  EXPECT_THAT(told.hint, testing::HasSubstr("a device for each rank has more"));
  devices.leave(0, told.needed - 1);
  refusal("tensor=2", {0, 0});
  devices.leave(0, told.needed);
  const auto both = engine("tensor=2", {0, 0});
  EXPECT_EQ(logits(*both, some_ids(20)), expected);
}

TEST(PackedArrays, TakeWhatIsPlannedForThem) {
  const auto check = [](const PackedLayout* layout, DType dtype, const Shape& shape) {
    const Tensor plain(dtype, shape), packed = layout->pack(plain, nullptr);
    EXPECT_EQ(cuda::packed_array_bytes(layout->name, dtype, shape), packed.blob()->size())
        << layout->name << " " << dtype_name(dtype) << " " << shape.text();
  };
  for (const int64_t n : {1, 16, 33})
    for (const int64_t k : {1, 32, 100, 1000})
      for (const DType dtype : {DType::bf16, DType::f16}) check(cuda::weight_layout(dtype), dtype, {n, k});
  for (const DType dtype : {DType::u8, DType::i8, DType::u4, DType::i4, DType::u2, DType::i2})
    for (const int64_t n : {1, 16, 33})
      for (const int64_t length : {16, 32, 40, 128}) {
        check(cuda::weight_layout(dtype), dtype, {n, 3, length});
        check(cuda::scale_layout(), DType::f16, {n, 3});
        check(cuda::zero_layout(dtype), DType::u8, {n, 3});
      }
  EXPECT_EQ(cuda::packed_array_bytes("", DType::u4, {3, 3}), 5);
}

}  // namespace
}  // namespace plait::test
