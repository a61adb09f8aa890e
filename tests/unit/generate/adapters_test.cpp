// Adapters of requests: a step of any mixture of them gives each sequence what it gets by itself, with an engine of its own
// adapter; those without one get the bits of an engine that knows no adapters.
#include "tests/unit/support/adapters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/train/trained_weights.h"
#include "tests/unit/generate/steps.h"

namespace plait::test {
namespace {

class Adapters : public testing::TestWithParam<std::tuple<const char*, DType>> {
 protected:
  CompileOptions compile() const { return World::get().options(std::get<1>(GetParam())); }
  Graph graph_ = fixture_graph(std::get<0>(GetParam()));
};

TEST_P(Adapters, CompanyChangesNoBit) {
  auto engine = engine_with_capacity(graph_, capacity_of(3, 8), compile());
  ASSERT_FALSE(engine->decoder().adapted.empty());
  const AdapterWeights weights[] = {random_adapter(engine->decoder(), 5, 1),
                                    random_adapter(engine->decoder(), 8, 2, 0.4)};
  const AdapterHandle a = engine->add_adapter("a", weights[0]), b = engine->add_adapter("b", weights[1]);
  std::vector<std::vector<int32_t>> prompts;
  std::vector<AdapterHandle> adapters{nullptr, a, b, nullptr, a, b};
  for (uint32_t i = 0; i < adapters.size(); ++i) prompts.push_back(some_ids(3 + 7 * i, 10 + i));

  const std::vector<std::vector<float>> got = together(*engine, prompts, adapters, 3);
  auto plain = make_engine(graph_, compile(), small_engine());
  std::unique_ptr<Engine> own[2];
  AdapterHandle handle[2];
  for (size_t k : {0, 1}) {
    own[k] = engine_with_capacity(graph_, capacity_for_one(weights[k]), compile());
    handle[k] = own[k]->add_adapter("x", weights[k]);
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<float> without = logits(*plain, prompts[i]);
    const size_t k = adapters[i] == b;
    const std::vector<float> expected = adapters[i] ? logits(*own[k], prompts[i], handle[k]) : without;
    EXPECT_EQ(got[i], expected) << "sequence " << i;
    EXPECT_EQ(relative_error(got[i], without) > 0.02, adapters[i] != nullptr) << "an adapter changes something";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, Adapters,
    testing::Values(std::tuple("gpt2-optimum18", DType::f32), std::tuple("llama-untied-optimum18", DType::f32),
                    std::tuple("gemma3-standard23", DType::f32), std::tuple("qwen2-optimum18", DType::f32),
                    std::tuple("qwen3-dynamo23", DType::f32), std::tuple("llama-standard23", DType::bf16),
                    std::tuple("gemma3-standard23-bf16", DType::bf16)),
    [](const auto& info) {
      std::string name = cat(std::get<0>(info.param), "_", dtype_name(std::get<1>(info.param)));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

class OneModel : public testing::Test {
 protected:
  CompileOptions compile() const { return World::get().options(DType::f32); }
  std::unique_ptr<Engine> with_slots(int64_t slots, int64_t rank) {
    return engine_with_capacity(graph_, capacity_of(slots, rank), compile());
  }
  Graph graph_ = fixture_graph("llama-standard23");
};

TEST_F(OneModel, AnAdapterIsAsOneThatIsMerged) {
  auto engine = with_slots(2, 4);
  const AdapterWeights weights = random_adapter(engine->decoder(), 4, 5);
  const AdapterHandle adapter = engine->add_adapter("a", weights);
  std::string folder = (std::filesystem::temp_directory_path() / "plait-adapter-XXXXXX").string();
  ASSERT_TRUE(mkdtemp(folder.data()));
  write_adapter(weights, folder, "");
  const Graph merged = with_tensors(graph_, tensors_of_adapter(graph_, compile(), folder));
  std::filesystem::remove_all(folder);
  const std::vector<int32_t> ids = some_ids(40, 4);
  auto alone = make_engine(merged, compile(), small_engine());
  EXPECT_LT(relative_error(logits(*engine, ids, adapter), logits(*alone, ids)), 1e-4);
}

/// The head's rows are those that are asked for, and each has its own token's adapter.
TEST_F(OneModel, AHeadHasAdaptersToo) {
  Graph untied = fixture_graph("llama-untied-optimum18");
  AdapterCapacity capacity = capacity_of(2, 4);
  capacity.targets = {"*lm_head*", "*_proj*"};
  capacity.all = false;
  auto probe = engine_with_capacity(untied, capacity, compile());
  const auto& adapted = probe->decoder().adapted;
  const auto head = std::find_if(adapted.begin(), adapted.end(),
                                 [&](const AdaptedLinear& one) { return one.n == probe->vocabulary(); });
  ASSERT_NE(head, adapted.end());
  AdapterWeights weights = random_adapter(probe->decoder(), 4, 5);
  std::erase_if(weights.modules, [&](const auto& one) { return one.first != head->module; });
  const AdapterHandle adapter = probe->add_adapter("a", weights);
  const std::vector<int32_t> ids = some_ids(20, 4);
  const std::vector<float> whole = logits(*probe, ids, adapter), without = logits(*probe, ids);
  EXPECT_GT(relative_error(whole, without), 0.02);
  // Only of several sequences' last tokens.
  auto one = probe->open({}, 0, adapter), other = probe->open({}, 0);
  Feed feeds[] = {{one.get(), std::span(ids).first(7), 2, {}, {}}, {other.get(), std::span(ids).first(9), 1, {}, {}}};
  ASSERT_TRUE(probe->reserve(*one, 7));
  ASSERT_TRUE(probe->reserve(*other, 9));
  probe->step(feeds);
  const auto v = static_cast<std::ptrdiff_t>(probe->vocabulary());
  EXPECT_TRUE(std::equal(feeds[0].logits.begin(), feeds[0].logits.end(), whole.begin() + 5 * v));
  EXPECT_TRUE(std::equal(feeds[1].logits.begin(), feeds[1].logits.end(), without.begin() + 8 * v));
}

TEST_F(OneModel, OnlyTheSameAdapterSharesAPrefix) {
  auto engine = with_slots(2, 4);
  const AdapterWeights weights = random_adapter(engine->decoder(), 4, 5);
  // Equal contents under two names are two adapters.
  const AdapterHandle a = engine->add_adapter("a", weights), b = engine->add_adapter("b", weights);
  const std::vector<int32_t> ids = some_ids(40, 4);
  for (const AdapterHandle& adapter : {AdapterHandle(), a, b}) {
    EXPECT_EQ(engine->open(ids, 0, adapter)->length(), 0);
    logits(*engine, ids, adapter);
    EXPECT_EQ(engine->open(ids, 0, adapter)->length(), 32);
  }
  auto found = engine->open(ids, 0, a);
  EXPECT_EQ(found->adapter(), a);
  EXPECT_EQ(engine->fork(*found)->adapter(), a);
}

TEST_F(OneModel, SavedSequencesKnowTheirAdapter) {
  auto engine = with_slots(2, 4), other = with_slots(3, 6);
  const AdapterWeights weights = random_adapter(engine->decoder(), 4, 5),
                       wrong = random_adapter(engine->decoder(), 4, 6);
  const AdapterHandle a = engine->add_adapter("a", weights);
  const std::vector<int32_t> ids = some_ids(21, 4), more = some_ids(9, 5);
  auto sequence = engine->open({}, 0, a);
  feed(*engine, *sequence, ids);
  const std::vector<std::byte> saved = engine->save(*sequence);
  const AdapterHandle not_it = other->add_adapter("a", wrong);
  try {
    other->restore(saved);
    ADD_FAILURE() << "another adapter of that name is not it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_NE(error.message().find("\"a\""), std::string::npos) << error.message();
  }
  const AdapterHandle there = other->add_adapter("b", weights);
  auto restored = other->restore(saved);
  EXPECT_EQ(restored->adapter(), there);
  EXPECT_EQ(feed(*other, *restored, more), feed(*engine, *sequence, more));
}

TEST_F(OneModel, ASlotIsFreeWhenNobodyHoldsItsAdapter) {
  auto engine = with_slots(1, 4);
  const AdapterWeights first = random_adapter(engine->decoder(), 4, 5),
                       second = random_adapter(engine->decoder(), 2, 6, 0.5);
  const std::vector<int32_t> ids = some_ids(21, 4);
  AdapterHandle a = engine->add_adapter("a", first);
  auto sequence = engine->open({}, 0, a);
  const std::vector<float> expected = feed(*engine, *sequence, ids);
  a.reset();
  EXPECT_THROW(engine->add_adapter("b", second), Error) << "a sequence still computes with it";
  sequence.reset();
  const AdapterHandle b = engine->add_adapter("b", second);
  auto own = engine_with_capacity(graph_, capacity_for_one(second), compile());
  EXPECT_EQ(logits(*engine, ids, b), logits(*own, ids, own->add_adapter("x", second)))
      << "nothing is left of the first";
}

TEST_F(OneModel, SlotsTakeWhatTheirSizesSay) {
  auto engine = with_slots(3, 5), without = engine_with_capacity(graph_, {}, compile());
  int64_t bytes = 0;
  for (const AdaptedLinear& one : engine->decoder().adapted) bytes += 3 * 5 * (one.k + one.n) * 4;
  EXPECT_EQ(engine->stats().ranks[0].adapters, bytes);
  EXPECT_EQ(engine->stats().weight_bytes, without->stats().weight_bytes + bytes);
  EXPECT_EQ(engine->stats().cache_bytes, without->stats().cache_bytes);
}

TEST_F(OneModel, WhatDoesNotFitIsRefusedByName) {
  auto engine = with_slots(1, 4);
  auto refused = [&](const AdapterWeights& weights, Code code, std::vector<std::string> words) {
    try {
      engine->add_adapter("a", weights);
      ADD_FAILURE() << words[0];
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.message();
      for (const std::string& word : words)
        EXPECT_NE((error.message() + error.hint()).find(word), std::string::npos) << error.message() << error.hint();
    }
  };
  const AdapterWeights good = random_adapter(engine->decoder(), 4, 5);
  const std::string module = good.modules.begin()->first;
  AdapterWeights bad = random_adapter(engine->decoder(), 5, 5);
  refused(bad, Code::invalid_argument, {"rank is 5", "at most 4", "adapter_rank"});
  bad = good;
  bad.modules["model.layers.7.nothing"] = good.modules.begin()->second;
  refused(bad, Code::invalid_argument, {"model.layers.7.nothing", "fits no weight", "adapter_targets"});
  bad = good;
  bad.modules.begin()->second.a = Tensor(DType::f32, {4, 3});
  refused(bad, Code::invalid_argument, {module, "[4, 3]"});
  bad = good;
  bad.modules.begin()->second.b = Tensor(DType::f32, good.modules.begin()->second.b.shape());
  bad.modules.begin()->second.b.as<float>()[0] = INFINITY;
  refused(bad, Code::bad_model, {module, "not finite"});
  const AdapterHandle held = engine->add_adapter("first", good);
  refused(good, Code::overloaded, {"all 1 slots", "first", "adapter_slots"});
  engine = engine_with_capacity(graph_, {}, compile());
  refused(good, Code::unsupported, {"without adapter slots", "adapter_slots"});
}

TEST_F(OneModel, TargetsThatFitNothingAreRefused) {
  AdapterCapacity capacity{.slots = 1, .rank = 4, .targets = {"*nothing*"}};
  EXPECT_THROW(engine_with_capacity(graph_, capacity, compile()), Error);
}

class AdaptersOnMesh : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

/// Adapters add no collectives: the partial sum of a rank's part of a Linear includes the adapter's.
TEST_P(AdaptersOnMesh, EqualTheWhole) {
  const auto [name, mesh] = GetParam();
  const Graph graph = fixture_graph(name);
  CompileOptions compile = World::get().options(DType::f32);
  EngineOptions options = small_engine();
  options.threads = 1;
  auto whole = engine_with_capacity(graph, capacity_of(2, 8), compile, options);
  const AdapterWeights weights[] = {random_adapter(whole->decoder(), 5, 1),
                                    random_adapter(whole->decoder(), 8, 2, 0.4)};
  compile.seeds = split(mesh, ' ');  // "tensor=2 sequence": a mesh, and seeds
  compile.mesh = Mesh::parse(compile.seeds[0]);
  compile.seeds.erase(compile.seeds.begin());
  auto moved = [&](const AdapterCapacity& capacity) {
    CompileOptions with = compile;
    with.adapters = capacity;
    return compile_ragged(graph, with,
                          [&](const Decoder& decoder) {
                            RaggedBounds out;
                            out.pages.assign(decoder.pools.size(), 8);
                            return out;
                          })
        .plan.bytes();
  };
  EXPECT_EQ(moved(capacity_of(2, 8)), moved({}));
  auto spread = engine_with_capacity(graph, capacity_of(2, 8), compile, options);
  std::vector<AdapterHandle> here{nullptr}, there{nullptr};
  for (const AdapterWeights& one : weights) {
    here.push_back(whole->add_adapter(cat("a", here.size()), one));
    there.push_back(spread->add_adapter(cat("a", there.size()), one));
  }
  std::vector<std::vector<int32_t>> prompts;
  for (uint32_t i = 0; i < here.size(); ++i) prompts.push_back(some_ids(9 + 8 * i, 20 + i));
  const auto got = together(*spread, prompts, there, 3);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_LT(relative_error(got[i], logits(*whole, prompts[i], here[i])), 1e-4) << "sequence " << i;
    // A conversation moves between meshes with its adapter.
    auto begun = whole->open({}, 0, here[i]);
    const std::vector<int32_t> more = some_ids(5, 9);
    feed(*whole, *begun, prompts[i]);
    auto there_too = spread->restore(whole->save(*begun));
    EXPECT_LT(relative_error(feed(*spread, *there_too, more), feed(*whole, *begun, more)), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AdaptersOnMesh,
    testing::Values(std::tuple("llama-standard23", "tensor=2"), std::tuple("llama-standard23", "data=2,tensor=2"),
                    std::tuple("llama-standard23", "tensor=2 sequence"), std::tuple("gpt2-optimum18", "tensor=2"),
                    std::tuple("gemma3-standard23", "tensor=2"), std::tuple("qwen2-optimum18", "data=2")),
    [](const auto& info) {
      std::string name = cat(std::get<0>(info.param), "_", std::get<1>(info.param));
      for (char& letter : name)
        if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
      return name;
    });

}  // namespace
}  // namespace plait::test
