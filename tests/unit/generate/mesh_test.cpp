// An engine on several ranks: what one rank gives, conversations that move between meshes, and what happens when a
// rank fails. The ranks are threads; tests/bindings runs every fixture on threads and on processes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/comm/mpi_world.h"
#include "core/generate/serve_engine.h"
#include "core/ranks/serve_rank.h"
#include "tests/unit/generate/steps.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/support/models.h"
#include "tests/unit/support/process_fault.h"

namespace plait::test {
namespace {

using Clock = std::chrono::steady_clock;

/// "tensor=2 sequence": a mesh, and seeds.
CompileOptions on_mesh(const std::string& text, DType dtype = DType::f32) {
  CompileOptions out = World::get().options(dtype);
  out.seeds = split(text, ' ');
  out.mesh = Mesh::parse(out.seeds[0]);
  out.seeds.erase(out.seeds.begin());
  return out;
}

EngineOptions one_thread() {
  EngineOptions options = small_engine();
  options.threads = 1;
  return options;
}

class OnMesh : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(OnMesh, EqualsOneRank) {
  const auto [name, mesh] = GetParam();
  const Graph graph = fixture_graph(name);
  const std::vector<int32_t> ids = some_ids(45);
  auto alone = make_engine(graph, World::get().options(DType::f32), one_thread());
  auto spread = make_engine(graph, on_mesh(mesh), one_thread());
  const std::vector<float> got = logits(*spread, ids);
  EXPECT_LT(relative_error(got, logits(*alone, ids)), 1e-4);
  // However the tokens are cut into steps, the bits are the same.
  for (size_t chunk : {size_t{1}, size_t{16}})
    EXPECT_EQ(logits(*spread, ids, nullptr, chunk), got) << "chunks of " << chunk;
}

/// Several sequences in a step are shared out among replicas, and each gets its own.
TEST_P(OnMesh, SequencesInCompany) {
  const auto [name, mesh] = GetParam();
  const Graph graph = fixture_graph(name);
  auto spread = make_engine(graph, on_mesh(mesh), one_thread());
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < 5; ++i) prompts.push_back(some_ids(2 + i, 100 * i));
  std::vector<std::vector<float>> expected;
  for (const auto& prompt : prompts) expected.push_back(logits(*spread, prompt));
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::vector<Feed> feeds;
  for (const auto& prompt : prompts) {
    sequences.push_back(spread->open({}, 0));
    ASSERT_TRUE(spread->reserve(*sequences.back(), static_cast<int64_t>(prompt.size())));
    feeds.push_back({sequences.back().get(), prompt, static_cast<int64_t>(prompt.size()), {}, {}});
  }
  spread->step(feeds);
  for (size_t i = 0; i < feeds.size(); ++i)
    EXPECT_EQ(std::vector<float>(feeds[i].logits.begin(), feeds[i].logits.end()), expected[i]) << "sequence " << i;
}

TEST_P(OnMesh, ConversationsMoveBetweenMeshes) {
  const auto [name, mesh] = GetParam();
  const Graph graph = fixture_graph(name);
  const std::vector<int32_t> ids = some_ids(45), more = some_ids(7, 5);
  auto alone = make_engine(graph, World::get().options(DType::f32), one_thread());
  auto spread = make_engine(graph, on_mesh(mesh), one_thread());
  auto first = alone->open({}, 0);
  feed(*alone, *first, ids, 24);
  auto moved = spread->restore(alone->save(*first));
  EXPECT_EQ(moved->tokens(), ids);
  const std::vector<std::byte> saved = spread->save(*moved);
  EXPECT_EQ(saved, alone->save(*first)) << "the bytes are those of the whole, on every mesh";
  // On a replica that is not the first one, too.
  auto second = spread->restore(saved);
  EXPECT_EQ(spread->save(*second), saved);
  auto fork = spread->fork(*moved);
  const std::vector<float> expected = feed(*alone, *first, more, 24);
  EXPECT_LT(relative_error(feed(*spread, *moved, more, 24), expected), 1e-4);
  EXPECT_LT(relative_error(feed(*spread, *second, more, 24), expected), 1e-4);
  EXPECT_LT(relative_error(feed(*spread, *fork, more, 24), expected), 1e-4);
}

/// A fork's half-full page is copied, on every rank, before either writes to it.
TEST_P(OnMesh, ForksWriteToPagesOfTheirOwn) {
  const auto [name, mesh] = GetParam();
  const Graph graph = fixture_graph(name);
  const std::vector<int32_t> ids = some_ids(21), turns[] = {some_ids(9, 5), some_ids(9, 77)};
  auto spread = make_engine(graph, on_mesh(mesh), one_thread());
  std::vector<float> expected[2];
  for (size_t i : {0, 1}) {
    auto alone = spread->open({}, 0);
    feed(*spread, *alone, ids, 24);
    expected[i] = feed(*spread, *alone, turns[i], 24);
  }
  auto first = spread->open({}, 0);
  feed(*spread, *first, ids, 24);
  auto second = spread->fork(*first);
  std::vector<float> got[2];
  for (size_t at = 0; at < turns[0].size(); ++at) {  // in one step, token by token
    ASSERT_TRUE(spread->reserve(*first, 1) && spread->reserve(*second, 1));
    Feed feeds[] = {{first.get(), std::span(turns[0]).subspan(at, 1), 1, {}, {}},
                    {second.get(), std::span(turns[1]).subspan(at, 1), 1, {}, {}}};
    spread->step(feeds);
    for (size_t i : {0, 1}) got[i].insert(got[i].end(), feeds[i].logits.begin(), feeds[i].logits.end());
  }
  for (size_t i : {0, 1}) EXPECT_EQ(got[i], expected[i]) << "branch " << i;
}

INSTANTIATE_TEST_SUITE_P(All, OnMesh,
                         testing::Combine(testing::Values("gpt2-optimum18", "llama-standard23", "gemma3-standard23"),
                                          testing::Values("tensor=2", "tensor=4", "data=2", "data=2,tensor=2",
                                                          "tensor=2 sequence", "data=2,tensor=2 sequence",
                                                          "pipeline=2", "pipeline=3", "pipeline=2,tensor=2",
                                                          "data=2,pipeline=2", "pipeline=2,tensor=2 sequence")),
                         [](const auto& info) {
                           std::string name = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                           std::replace_if(
                               name.begin(), name.end(), [](char letter) { return !std::isalnum(letter); }, '_');
                           return name;
                         });

TEST(Mesh, CopiesOfAForkWaitForTheStepOfItsReplica) {
  const Graph graph = fixture_graph("llama-standard23");
  auto alone = make_engine(graph, World::get().options(DType::f32), one_thread());
  auto spread = make_engine(graph, on_mesh("data=2"), one_thread());
  const std::vector<int32_t> ids = some_ids(5), more = some_ids(3, 7);
  auto whole = alone->open({}, 0);
  feed(*alone, *whole, ids, 24);
  auto first = spread->open({}, 0), second = spread->open({}, 0);
  ASSERT_FALSE(spread->shares_cache(*first, *second)) << "they are in different replicas";
  feed(*spread, *second, ids, 24);
  auto fork = spread->fork(*second);
  ASSERT_TRUE(spread->reserve(*fork, 3)) << "a copy of the half-full page is due";
  feed(*spread, *first, ids, 24);  // a step of only the other replica
  EXPECT_LT(relative_error(feed(*spread, *fork, more, 24), feed(*alone, *whole, more, 24)), 1e-4);
}

TEST(Mesh, WhatOneRankHoldsIsCountedOnce) {
  const Graph graph = fixture_graph("llama-standard23");
  auto alone = make_engine(graph, World::get().options(DType::f32), one_thread());
  for (const char* mesh : {"tensor=2", "data=2", "data=2,tensor=2", "pipeline=2", "data=2,pipeline=2"}) {
    auto spread = make_engine(graph, on_mesh(mesh), one_thread());
    const EngineStats one = alone->stats(), all = spread->stats();
    EXPECT_EQ(all.ranks.size(), static_cast<size_t>(Mesh::parse(mesh).ranks()));
    EXPECT_LE(static_cast<double>(all.weight_bytes), 1.1 * static_cast<double>(one.weight_bytes)) << mesh;
    EXPECT_LE(all.cache_bytes, one_thread().cache_bytes) << "the budget is that of all ranks";
    EXPECT_GE(static_cast<double>(all.cache_bytes), 0.9 * static_cast<double>(one_thread().cache_bytes));
  }
}

TEST(Mesh, RequestsAreRefusedWithNumbers) {
  auto message = [](const Graph& graph, const CompileOptions& options) {
    try {
      make_engine(graph, options, one_thread());
    } catch (const Error& error) {
      return error.message();
    }
    return std::string();
  };
  const Graph llama = fixture_graph("llama-standard23");
  EXPECT_NE(message(llama, on_mesh("pipeline=16")).find("16 stages are more than the model's"), std::string::npos);
  EXPECT_NE(message(fixture_graph("gpt2-optimum18"), on_mesh("tensor=3")).find("shards no weight"),
            std::string::npos);
  CompileOptions plain = on_mesh("tensor=2");
  plain.off = {"raise"};
  EXPECT_NE(message(llama, plain).find("only a recognised decoder"), std::string::npos);
  CompileOptions seeds = on_mesh("tensor=2");
  seeds.seeds = {"nonsense"};
  EXPECT_NE(message(llama, seeds).find("nonsense"), std::string::npos);
}

TEST(Mesh, RanksThatCompiledSomethingElseAreToldApart) {
  const Graph graph = fixture_graph("llama-standard23");
  CommOptions comm;
  comm.deadline_s = hang_s;
  auto worlds = make_thread_world(2, comm);
  std::thread other([&graph, world = std::move(worlds[1])] {
    serve_engine(*world, graph, on_mesh("tensor=2", DType::bf16), one_thread());
  });
  try {
    make_engine(graph, on_mesh("tensor=2"), one_thread(), nullptr, std::move(worlds[0]));
    ADD_FAILURE() << "the ranks do not compile the same";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("rank 1 compiled another program"), std::string::npos) << error.message();
  }
  other.join();
}

TEST(Mesh, RanksWithOtherWeightsAreToldApart) {
  const Graph graph = fixture_graph("llama-standard23");
  Graph changed = graph;
  for (ValueId id = 0; id < changed.value_count(); ++id) {
    const auto& constant = changed.value(id).constant;
    if (!constant || constant->initializer.empty() || constant->shape().rank() != 2) continue;
    Constant other = *constant;
    Tensor copy(other.source.dtype(), other.source.shape());
    std::memcpy(copy.data(), other.source.data(), static_cast<size_t>(copy.bytes()));
    copy.as<float>()[0] += 1;
    other.source = copy;
    changed.value(id).constant = std::make_shared<Constant>(std::move(other));
    break;
  }
  auto worlds = make_thread_world(2, {});
  std::thread other(
      [&changed, world = std::move(worlds[1])] { serve_engine(*world, changed, on_mesh("tensor=2"), one_thread()); });
  try {
    make_engine(graph, on_mesh("tensor=2"), one_thread(), nullptr, std::move(worlds[0]));
    ADD_FAILURE() << "the ranks do not have the same weights";
  } catch (const Error& error) {
    EXPECT_NE(error.message().find("rank 1 has other weights"), std::string::npos) << error.message();
  }
  other.join();
}

TEST(Mesh, ARankWithoutTheModelIsHeardBeforeAnythingIsLoaded) {
  auto worlds = make_thread_world(2, {});
  std::thread other([world = std::move(worlds[1])] {
    refuse_rank(*world, Error(Code::not_found, "there is no file \"model.onnx\""));
  });
  try {
    make_engine(fixture_graph("llama-standard23"), on_mesh("tensor=2"), one_thread(), nullptr, std::move(worlds[0]));
    ADD_FAILURE() << "one rank has no model";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_EQ(error.message(), "rank 1: there is no file \"model.onnx\"");
  }
  other.join();
}

TEST(Mesh, AWorldThatDoesNotFitIsRefused) {
  auto worlds = make_thread_world(2, {});
  EXPECT_THROW(make_engine(fixture_graph("llama-standard23"), on_mesh("tensor=3"), one_thread(), nullptr,
                           std::move(worlds[0])),
               Error);
}

TEST(Mesh, LoadingCanBeCancelled) {
  LoadProgress progress;
  CompileOptions options = on_mesh("data=2,tensor=2");
  options.dump = [&](std::string_view pass, const Graph&) {
    if (pass == "fuse") progress.cancel();
  };
  try {
    make_engine(fixture_graph("gemma3-standard23"), options, one_thread(), &progress);
    ADD_FAILURE() << "it was cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::cancelled);
  }
}

TEST(Mesh, ACancelledStepChangesNothing) {
  auto spread = make_engine(fixture_graph("llama-standard23"), on_mesh("tensor=2"), one_thread());
  const std::vector<int32_t> ids = some_ids(10);
  const std::vector<float> expected = logits(*spread, ids);
  auto sequence = spread->open({}, 0);
  ASSERT_TRUE(spread->reserve(*sequence, 10));
  Feed one{sequence.get(), ids, 10, {}, {}};
  spread->budget().cancel();
  EXPECT_THROW(spread->step({&one, 1}), Error);
  spread->budget().begin();
  EXPECT_EQ(feed(*spread, *sequence, ids, 24), expected);
}

struct Fault {
  const char* mesh;
  int64_t rank, step;
  bool stalls;
};

class FaultyRank : public testing::TestWithParam<Fault> {};

/// The error names the rank within the bound, its end does not hang, and a new one works.
TEST_P(FaultyRank, IsNamed) {
  const Fault fault = GetParam();
  const Graph graph = fixture_graph("llama-standard23");
  EngineOptions options = one_thread();
  const double load = machine_load();
  options.rank_timeout_s = fault.stalls ? load : hang_s;
  std::atomic<bool> over = false;
  options.before_step = [&](int64_t rank, int64_t step) {
    if (rank != fault.rank || step != fault.step) return;
    if (!fault.stalls) throw Error(Code::internal, "a fault for the test");
    while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  };
  auto engine = make_engine(graph, on_mesh(fault.mesh), options);
  auto a = engine->open({}, 0), b = engine->open({}, 0);
  const std::vector<int32_t> ids = some_ids(2);
  Clock::time_point start;
  std::string message;
  for (int64_t step = 0; step <= fault.step && message.empty(); ++step) {
    ASSERT_TRUE(engine->reserve(*a, 2) && engine->reserve(*b, 2));
    Feed feeds[] = {{a.get(), ids, 1, {}, {}}, {b.get(), ids, 1, {}, {}}};
    start = Clock::now();
    try {
      engine->step(feeds);
    } catch (const Error& error) {
      message = error.message();
    }
  }
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), 15 * load);
  if (fault.rank > 0) EXPECT_NE(message.find("rank " + std::to_string(fault.rank)), std::string::npos) << message;
  else EXPECT_FALSE(message.empty());
  over = true;
  a.reset(), b.reset();
  engine.reset();
  EXPECT_EQ(logits(*make_engine(graph, on_mesh(fault.mesh), one_thread()), ids).size(), 2 * 512u);
}

std::vector<Fault> faults() {
  std::vector<Fault> out;
  for (const auto& [mesh, ranks] : {std::pair("tensor=2", 2), std::pair("data=2", 2), std::pair("data=2,tensor=2", 4),
                                    std::pair("pipeline=2", 2)})
    for (int64_t rank = 0; rank < ranks; ++rank)
      for (int64_t step : {0, 2})
        for (bool stalls : {false, true})
          if (!(stalls && rank == 0)) out.push_back({mesh, rank, step, stalls});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, FaultyRank, testing::ValuesIn(faults()), [](const auto& info) {
  std::string name = std::string(info.param.mesh) + "_rank" + std::to_string(info.param.rank) + "_step" +
                     std::to_string(info.param.step) + (info.param.stalls ? "_stalls" : "_throws");
  std::replace_if(
      name.begin(), name.end(), [](char letter) { return !std::isalnum(letter); }, '_');
  return name;
});

// tests/unit/comm/mpi_faults.py runs this under mpirun; PLAIT_FAULT specifies what fails where: "dies 2 5". A rank
// that hears of it prints a line that the script counts.
TEST(Faults, OfProcesses) {
  const auto asked = ProcessFault::asked();
  if (!asked) GTEST_SKIP() << "only under mpi_faults.py";
  const std::string& fault = asked->kind;
  const int culprit = asked->rank, last = asked->step;
  const char* plugin = std::getenv("PLAIT_MPI_PLUGIN");
  std::shared_ptr<plait::World> world = open_mpi_world(asked->options, plugin ? plugin : "");
  const Graph graph = fixture_graph("llama-standard23");
  const CompileOptions compile = on_mesh("data=2,tensor=2");
  EngineOptions options = one_thread();
  options.before_step = [&](int64_t rank, int64_t step) {
    if (rank != culprit || step != last) return;
    if (fault == "dies") ::raise(SIGKILL);
    if (fault == "throws") throw Error(Code::internal, "a fault for the test");
    asked->stall();
  };
  const auto start = Clock::now();
  std::string message;
  try {
    if (world->rank() == 0) {
      auto engine = make_engine(graph, compile, options, nullptr, world);
      auto a = engine->open({}, 0), b = engine->open({}, 0);
      const std::vector<int32_t> ids = some_ids(2);
      for (int step = 0; step <= last + 1; ++step) {
        ASSERT_TRUE(engine->reserve(*a, 2) && engine->reserve(*b, 2));
        Feed feeds[] = {{a.get(), ids, 1, {}, {}}, {b.get(), ids, 1, {}, {}}};
        engine->step(feeds);
      }
    } else {
      serve_engine(*world, graph, compile, options);
    }
  } catch (const Error& error) {
    message = error.message();
  }
  if (world->rank() == culprit) return;
  EXPECT_LT(std::chrono::duration<double>(Clock::now() - start).count(), asked->bound_s);
  EXPECT_NE(message.find("rank " + std::to_string(culprit)), std::string::npos) << message;
  world.reset();
  // What is left of the world continues by itself.
  EXPECT_EQ(logits(*make_engine(graph, on_mesh("tensor=2"), one_thread()), some_ids(3)).size(), 3 * 512u);
  if (!HasFailure()) std::printf("a rank heard of it\n");
}

}  // namespace
}  // namespace plait::test
