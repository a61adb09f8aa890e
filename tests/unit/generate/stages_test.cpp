// Generation over pipeline stages: bits of one rank, steps in flight, what a rank holds, and cuts by memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "core/base/error.h"
#include "core/generate/serve_engine.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

CompileOptions in_stages(int32_t count, std::vector<int64_t> layers = {}, std::vector<int64_t> rank_bytes = {}) {
  CompileOptions out = World::get().options(DType::f32);
  out.mesh = Mesh::parse("pipeline=" + std::to_string(count));
  for (int32_t stage = 0; stage < count; ++stage) out.stages.seats.push_back({stage});
  out.stages.layers = std::move(layers);
  out.stages.rank_bytes = std::move(rank_bytes);
  return out;
}

EngineOptions stage_engine() {
  EngineOptions options = small_engine();
  options.threads = 1;
  options.cache_bytes = 1 << 20;
  return options;
}

const char* const three_layers = "gemma3-standard23";

std::string message_of(const Graph& graph, const CompileOptions& options) {
  try {
    make_engine(graph, options, stage_engine());
  } catch (const Error& error) {
    return error.message() + " | " + error.hint();
  }
  return {};
}

/// Stages add in the same order as one rank, whatever the cut: sums are not divided.
TEST(Stages, HaveTheBitsOfOneRank) {
  const Graph graph = fixture_graph(three_layers);
  const std::vector<int32_t> ids = some_ids(45);
  const std::vector<float> expected =
      logits(*make_engine(graph, World::get().options(DType::f32), stage_engine()), ids);
  for (const std::vector<int64_t>& layers :
       {std::vector<int64_t>{2, 1}, {0, 3}, {3, 0}, {1, 1, 1}, {0, 1, 1, 1, 0}}) {
    auto engine = make_engine(graph, in_stages(static_cast<int32_t>(layers.size()), layers), stage_engine());
    EXPECT_EQ(logits(*engine, ids), expected) << layers.size() << " stages, the first with " << layers[0];
  }
}

/// Steps of different sequences overlap, in any mixture with commands that report.
TEST(Stages, StepsInFlightAreThoseOneByOne) {
  const Graph graph = fixture_graph(three_layers);
  auto engine = make_engine(graph, in_stages(3), stage_engine());
  ASSERT_EQ(engine->steps_in_flight(), 3);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<std::vector<float>> expected, got(3);
  for (uint32_t i = 0; i < 3; ++i) {
    prompts.push_back(some_ids(40 + 3 * i, 7 + i));
    expected.push_back(logits(*engine, prompts.back(), nullptr, 5));
  }
  auto kept = engine->open({}, 0);
  feed(*engine, *kept, some_ids(20), 24);
  const std::vector<std::byte> saved = engine->save(*kept);
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (uint32_t i = 0; i < 3; ++i) sequences.push_back(engine->open({}, 0));
  std::vector<Feed> feeds(3);
  const auto begin = [&](size_t i) {
    const auto at = static_cast<size_t>(sequences[i]->length());
    const auto part = std::span(prompts[i]).subspan(at, std::min<size_t>(5, prompts[i].size() - at));
    if (part.empty()) return false;
    EXPECT_TRUE(engine->reserve(*sequences[i], static_cast<int64_t>(part.size())));
    feeds[i] = {sequences[i].get(), part, static_cast<int64_t>(part.size()), {}, {}};
    engine->begin({&feeds[i], 1}, false);
    return true;
  };
  for (size_t i = 0; i < 3; ++i) begin(i);
  std::vector<bool> running(3, true);
  for (int round = 0; running[0] || running[1] || running[2]; ++round)
    for (size_t i = 0; i < 3; ++i) {
      if (!running[i]) continue;
      if (round % 3 == 1) {
        EXPECT_EQ(engine->save(*kept), saved) << "with steps in flight";
      }
      engine->finish();
      got[i].insert(got[i].end(), feeds[i].logits.begin(), feeds[i].logits.end());
      running[i] = begin(i);
    }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(got[i], expected[i]) << "sequence " << i;
  auto restored = engine->restore(saved);
  EXPECT_EQ(engine->save(*restored), saved);
}

/// A rank begins the next group's step while later stages compute, as a test whose later stages wait for it shows.
TEST(Stages, GroupsFillThePipe) {
  constexpr int stages = 3;
  std::atomic<int> begun = 0;
  EngineOptions options = stage_engine();
  options.rank_timeout_s = 30 * machine_load();
  options.before_step = [&](int64_t rank, int64_t) {
    while (rank > 0 && begun < stages) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  auto engine = make_engine(fixture_graph(three_layers), in_stages(stages), options);
  const std::vector<int32_t> ids = some_ids(5);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Feed> feeds(stages);
  for (size_t i = 0; i < stages; ++i) {
    sequences.push_back(engine->open({}, 0));
    ASSERT_TRUE(engine->reserve(*sequences[i], 5));
    feeds[i] = {sequences[i].get(), ids, 5, {}, {}};
    engine->begin({&feeds[i], 1}, false);
    ++begun;
  }
  std::vector<std::vector<float>> got;
  for (const Feed& feed : feeds) {
    engine->finish();
    got.emplace_back(feed.logits.begin(), feed.logits.end());
  }
  const std::vector<float> expected = logits(*engine, ids);
  for (const std::vector<float>& one : got) EXPECT_EQ(one, expected);
}

/// A step whose input is refused has not begun, and those in flight end as usual.
TEST(Stages, ARefusedStepLeavesTheOthersInFlight) {
  auto engine = make_engine(fixture_graph(three_layers), in_stages(2), stage_engine());
  const std::vector<int32_t> ids = some_ids(9);
  const std::vector<float> expected = logits(*engine, ids);
  auto good = engine->open({}, 0), bad = engine->open({}, 0);
  ASSERT_TRUE(engine->reserve(*good, 9) && engine->reserve(*bad, 1));
  const std::vector<int32_t> wrong{1 << 30};
  Feed first{good.get(), ids, 9, {}, {}}, second{bad.get(), wrong, 1, {}, {}};
  engine->begin({&first, 1}, false);
  EXPECT_THROW(engine->begin({&second, 1}, false), Error);
  engine->finish();
  EXPECT_EQ(std::vector<float>(first.logits.begin(), first.logits.end()), expected);
  EXPECT_EQ(bad->length(), 0);
}

TEST(Stages, ARankHoldsItsOwnLayers) {
  const Graph graph = fixture_graph(three_layers);
  const RankBytes whole = make_engine(graph, World::get().options(DType::f32), stage_engine())->stats().ranks[0];
  const auto ranks = make_engine(graph, in_stages(3, {1, 1, 1}), stage_engine())->stats().ranks;
  ASSERT_EQ(ranks.size(), 3u);
  int64_t cache = 0;
  for (const RankBytes& rank : ranks) {
    EXPECT_LT(rank.weights, whole.weights);
    EXPECT_GT(rank.cache, 0);
    cache += rank.cache;
  }
  EXPECT_LT(ranks[1].weights, whole.weights / 2) << "neither table nor head";
  EXPECT_LE(cache, stage_engine().cache_bytes);
  EXPECT_GE(static_cast<double>(cache), 0.9 * static_cast<double>(whole.cache));
}

/// The bytes by which stages are cut are those that ranks then hold.
TEST(Stages, AreCutByRankMemory) {
  const Graph graph = fixture_graph(three_layers);
  const auto held = [](const EngineStats& stats) {
    std::vector<int64_t> out;
    for (const RankBytes& rank : stats.ranks) out.push_back(rank.weights + rank.cache + rank.adapters + rank.arena);
    return out;
  };
  constexpr int64_t plenty = int64_t{1} << 40;
  for (const std::vector<int64_t>& layers : {std::vector<int64_t>{3, 0}, {2, 1}, {1, 2}, {0, 3}}) {
    const std::vector<int64_t> given = held(make_engine(graph, in_stages(2, layers), stage_engine())->stats());
    RaggedModel model = compile_rank(graph, in_stages(2, layers, {plenty, plenty}), stage_engine());
    ASSERT_EQ(model.stage_bytes.size(), 2u);
    for (size_t stage = 0; stage < 2; ++stage) EXPECT_EQ(model.stage_bytes[stage].all(), given[stage]) << layers[0];
    // Exactly these limits are enough, and the cut is found without help.
    const std::vector<int64_t> found = held(make_engine(graph, in_stages(2, {}, given), stage_engine())->stats());
    for (size_t stage = 0; stage < 2; ++stage) EXPECT_LE(found[stage], given[stage]) << layers[0];
  }
}

TEST(Stages, WhatFitsNowhereIsRefusedWithNumbers) {
  const Graph graph = fixture_graph(three_layers);
  const std::string refused = message_of(graph, in_stages(2, {}, {100 << 10, 100 << 10}));
  EXPECT_NE(refused.find("no cut into pipeline stages fits rank_memory"), std::string::npos) << refused;
  EXPECT_NE(refused.find("stage 1 takes"), std::string::npos) << refused;
  // The limits that it names are enough.
  const size_t at = refused.find("rank_memory=");
  ASSERT_NE(at, std::string::npos) << refused;
  std::vector<int64_t> limits(2);
  ASSERT_EQ(std::sscanf(refused.c_str() + at, "rank_memory=%ld,%ld fits", &limits[0], &limits[1]), 2) << refused;
  EXPECT_EQ(message_of(graph, in_stages(2, {}, limits)), "");
}

TEST(Stages, ACutThatTheModelCannotHaveIsRefused) {
  const Graph graph = fixture_graph(three_layers);
  EXPECT_NE(message_of(graph, in_stages(2, {2, 2})).find("\"2,2\" has 4 layers, the model 3"), std::string::npos);
  EXPECT_NE(message_of(graph, in_stages(2, {1, 1, 1})).find("cuts 3 stages, the schedule has 2"), std::string::npos);
  EXPECT_NE(message_of(graph, in_stages(6)).find("6 stages are more"), std::string::npos);
}

}  // namespace
}  // namespace plait::test
