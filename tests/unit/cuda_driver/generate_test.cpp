// Engines on an emulated device with the kernels for it: logits, bits, and what a step costs.
#include <gtest/gtest.h>

#include <array>

#include "core/base/text.h"
#include "core/base/token_choice.h"
#include "core/generate/engines.h"
#include "core/generate/sampler.h"
#include "kernels/cuda/launch/register.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/emulated_device.h"
#include "tests/unit/support/models.h"
#include "tests/unit/support/rounding_kernels.h"

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

std::unique_ptr<Engine> device_engine(const std::string& model, DType dtype, const char* mesh = "") {
  CompileOptions options{World::get().ops, device_kernels()};
  options.dtype = dtype;
  options.device = DeviceKind::cuda;
  options.make_device = [](int64_t rank) {
    return cuda::make_cuda_device(emulated_libraries(), static_cast<int>(rank));
  };
  if (*mesh) options.mesh = Mesh::parse(mesh);
  return make_engine(fixture_graph(model), options, small_engine());
}

/// An engine of the processor whose products round what the device's do, whatever the processor's own kernels round.
std::unique_ptr<Engine> processor_engine(const std::string& model, DType dtype) {
  static const KernelTable table = [] {
    KernelTable out;
    register_rounding_kernels(out);
    return out;
  }();
  CompileOptions options{World::get().ops, table};
  options.dtype = dtype;
  return make_engine(fixture_graph(model), options, small_engine());
}

class OnCuda : public testing::TestWithParam<const char*> {};

TEST_P(OnCuda, LogitsAreTheProcessorsAndHaveTheSameBitsInAnyChunks) {
  const std::vector<int32_t> ids = some_ids(24);
  for (DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)));
    auto device = device_engine(GetParam(), dtype);
    auto processor = processor_engine(GetParam(), dtype);
    const std::vector<float> got = logits(*device, ids, nullptr, 24), expected = logits(*processor, ids, nullptr, 24);
    double error = 0, power = 0;
    for (size_t i = 0; i < got.size(); ++i)
      error += (got[i] - expected[i]) * (got[i] - expected[i]), power += expected[i] * expected[i];
    // f32: x is 17 bits of it where weights are bf16. bf16: sums in another order let a number round to the other side, which moves one of
    // k >= 64 operands by 2^-8, a sum by 5e-4, its power by 2.4e-7. Without rounding x it were 1.5e-4.
    EXPECT_LT(error / power, dtype == DType::f32 ? 1e-8 : 1e-5);
    for (size_t chunk : {size_t{1}, size_t{7}})
      EXPECT_EQ(logits(*device, ids, nullptr, chunk), got) << "chunks of " << chunk;
  }
}

/// How a token is chosen, by number: greedy, and with all that sampling has.
TokenChoice some_choice(int number, std::span<const int32_t> ids) {
  SamplingParams params;
  params.temperature = number * 0.8;
  params.top_k = number == 2 ? 20 : 0;
  params.top_p = number == 3 ? 0.7 : 1;
  params.min_p = number == 4 ? 0.02 : 0;
  params.repetition_penalty = number == 1 ? 1 : 1.2;
  params.presence_penalty = 0.1 * number;
  params.logit_bias = {{7, 2.0F}, {9, 1.5F}};
  params.seed = static_cast<uint64_t>(number);
  const std::array<int32_t, 1> banned{11};
  return {choice_settings(params, ids.size(), 1), logit_edits(params, ids.first(2), ids.subspan(2), banned)};
}

/// One step that appends `ids` and chooses.
int32_t chosen(Engine& engine, Sequence& sequence, std::span<const int32_t> ids, const TokenChoice& choice) {
  EXPECT_TRUE(engine.reserve(sequence, static_cast<int64_t>(ids.size())));
  Feed one{&sequence, ids, 1, {}, {}, &choice};
  engine.step({&one, 1});
  EXPECT_TRUE(one.logits.empty());
  return one.chosen;
}

TEST_P(OnCuda, ChoosesWhatTheProcessorWouldOfTheSameLogits) {
  auto engine = device_engine(GetParam(), DType::f32);
  ASSERT_TRUE(engine->chooses(1));
  const std::vector<int32_t> ids = some_ids(9);
  auto sequence = engine->open({});
  std::vector<float> logits = feed(*engine, *sequence, ids);
  logits.erase(logits.begin(), logits.end() - engine->vocabulary());
  for (int number = 0; number < 6; ++number) {
    const TokenChoice choice = some_choice(number, ids);
    std::vector<float> own = logits;
    auto again = engine->open({});
    EXPECT_EQ(chosen(*engine, *again, ids, choice), choose_token(own, choice.settings, choice.edits)) << number;
  }
}

/// What a steady step does, on all devices. A token is there when its rank has what it needs of the others, which may still be doing the
/// rest of their step then.
plait_emulated_counts steady_step(const char* model, const char* mesh) {
  auto engine = device_engine(model, DType::f32, mesh);
  auto sequence = engine->open({});
  feed(*engine, *sequence, some_ids(5));
  const TokenChoice choice = some_choice(2, some_ids(5));
  for (int i = 0; i < 3; ++i) chosen(*engine, *sequence, some_ids(1), choice);
  const plait_emulated_counts before = settled_counts();
  EXPECT_GE(chosen(*engine, *sequence, some_ids(1), choice), 0);
  plait_emulated_counts out = settled_counts();
  out.replays -= before.replays, out.copies -= before.copies, out.all_allocations -= before.all_allocations;
  out.pageable -= before.pageable, out.launches -= before.launches, out.host_copies -= before.host_copies;
  return out;
}

TEST_P(OnCuda, ASteadyStepIsOneReplayOneCopyInAndOneOut) {
  const plait_emulated_counts step = steady_step(GetParam(), "");
  EXPECT_EQ(step.replays, 1);
  EXPECT_EQ(step.copies, 2) << "inputs, tokens";
  EXPECT_EQ(step.all_allocations, 0);
  EXPECT_EQ(step.pageable, 0);
}

/// Sums are in the graph, whether devices write into each other's memory or NCCL carries them.
TEST(OnCudaMesh, ASteadyStepIsAReplayOnEachDevice) {
  for (const auto& [mesh, ranks] :  // that have the sequence
       {std::pair("tensor=2", 2), {"tensor=4", 4}, {"data=2,tensor=2", 2}})
    for (const char* refused : {"", "cuDeviceCanAccessPeer:1"}) {
      SCOPED_TRACE(cat(mesh, " ", refused));
      emulated_fail(refused);
      const plait_emulated_counts step = steady_step("llama-dynamo23", mesh);
      emulated_fail(nullptr);
      EXPECT_EQ(step.replays, ranks);
      EXPECT_EQ(step.host_copies, ranks + 1) << "inputs of each rank, tokens of one";
      EXPECT_EQ(step.copies, step.host_copies) << "sums read where their operands are";
      EXPECT_EQ(step.all_allocations, 0);
      EXPECT_EQ(step.pageable, 0);
    }
}

/// What makes a rank's part writes it to the others, and the norm after it adds: sums of layers take no launch more than those that NCCL
/// carries, whose calls are no launches. What is more, in all layers together, is the embedding's sum (1) and the logits of all ranks (2).
TEST(OnCudaMesh, SumsOfALayerTakeNoLaunchOfTheirOwn) {
  EXPECT_EQ(steady_step("llama-dynamo23", "tensor=2").launches, 2 * (steady_step("llama-dynamo23", "").launches + 3));
  for (const auto& [model, ranks] : {std::pair("llama-dynamo23", 4), {"gemma3-optimum18", 2}}) {
    const std::string mesh = cat("tensor=", ranks);
    const int64_t peers = steady_step(model, mesh.c_str()).launches;
    emulated_fail("cuDeviceCanAccessPeer:1");
    const int64_t nccl = steady_step(model, mesh.c_str()).launches;
    emulated_fail(nullptr);
    EXPECT_GT(peers, nccl) << model;
    EXPECT_LE(peers, nccl + 3 * ranks) << model;
  }
}

/// A residual sum and the norm after it are one launch, and so is the sum of ranks before a norm.
TEST(OnCudaMesh, ANormMakesTheSumsBeforeIt) {
  for (const char* model : {"llama-dynamo23", "gemma3-optimum18"})
    for (const char* mesh : {"", "tensor=2"}) {
      SCOPED_TRACE(cat(model, " ", mesh));
      auto engine = device_engine(model, DType::f32, mesh);
      auto sequence = engine->open({});
      engine->set_profiling(true);
      feed(*engine, *sequence, some_ids(5));
      const Profile profile = engine->profile();
      const auto calls = [&](const char* op) { return profile.count(op) ? profile.at(op).calls : 0; };
      const auto layers = static_cast<int64_t>(engine->decoder().layers.size());
      if (*mesh) {
        EXPECT_EQ(calls("AllReduce"), 1) << "of the embedding, which others read too; each layer has two";
      } else {
        EXPECT_EQ(calls("com.microsoft.SkipSimplifiedLayerNormalization cuda"), 2 * layers);
        EXPECT_EQ(calls("Add cuda"), 0);
      }
    }
}

TEST(OnCudaMesh, SumsInNormsHaveTheBitsOfSumsBeforeThem) {
  for (const char* model : {"llama-dynamo23", "gemma3-optimum18", "gpt2-optimum18"}) {
    const std::vector<float> expected = logits(*fixture_engine(model), some_ids(7));
    std::vector<float> got[2];
    for (const bool apart : {false, true}) {
      if (apart) emulated_fail("cuDeviceCanAccessPeer:1");  // NCCL's, of two terms, whose order does not matter
      auto engine = device_engine(model, DType::f32, "tensor=2");
      emulated_fail(nullptr);
      got[apart] = logits(*engine, some_ids(7), nullptr, 1);
    }
    EXPECT_EQ(got[0], got[1]) << model;
    EXPECT_LT(relative_error(got[0], expected), 1e-4) << model;
  }
}

/// `count` tokens after the prompt, each the most probable.
std::vector<int32_t> greedy(Engine& engine, const std::vector<int32_t>& prompt, int count) {
  auto sequence = engine.open({});
  std::vector<int32_t> out, next = prompt;
  const TokenChoice choice{choice_settings({}, 0, 1), {}};
  while (static_cast<int>(out.size()) < count) {
    if (engine.chooses(0)) {
      out.push_back(chosen(engine, *sequence, next, choice));
    } else {
      const std::vector<float> all = feed(engine, *sequence, next);
      const auto row = all.end() - engine.vocabulary();
      out.push_back(static_cast<int32_t>(std::max_element(row, all.end()) - row));
    }
    next = {out.back()};
  }
  return out;
}

TEST(OnCudaMesh, GreedyTokensAreTheProcessors) {
  for (const char* model : {"llama-dynamo23", "gemma3-optimum18"}) {
    const std::vector<int32_t> expected = greedy(*fixture_engine(model), some_ids(9), 8);
    for (const char* mesh : {"", "tensor=2", "tensor=4", "data=2,tensor=2"})
      EXPECT_EQ(greedy(*device_engine(model, DType::f32, mesh), some_ids(9), 8), expected) << model << " " << mesh;
  }
}

/// Sequences of a step may want a token, logits, or several rows, on each replica.
TEST(OnCudaMesh, ReplicasReportWhatTheirFeedsWant) {
  auto alone = device_engine("llama-dynamo23", DType::f32),
       spread = device_engine("llama-dynamo23", DType::f32, "data=2");
  const std::vector<int32_t> ids = some_ids(6);
  const TokenChoice choice = some_choice(2, ids);
  const auto step = [&](Engine& engine) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    std::vector<Feed> feeds;
    for (int i = 0; i < 6; ++i) {
      sequences.push_back(engine.open({}));
      const auto own = std::span(ids).first(static_cast<size_t>(2 + i % 3));
      EXPECT_TRUE(engine.reserve(*sequences.back(), static_cast<int64_t>(own.size())));
      feeds.push_back({sequences.back().get(), own, i < 4 ? 1 : 2, {}, {}, i % 4 < 2 ? &choice : nullptr});
    }
    engine.step(feeds);
    std::vector<std::pair<int32_t, std::vector<float>>> out;
    for (const Feed& feed : feeds) out.emplace_back(feed.chosen, std::vector(feed.logits.begin(), feed.logits.end()));
    return out;
  };
  const auto expected = step(*alone);
  EXPECT_EQ(step(*spread), expected);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].first >= 0, i % 4 < 2) << i;
    EXPECT_EQ(expected[i].second.empty(), i % 4 < 2) << i;
  }
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
