// Prefixes of requests: the first pages of the cache hold them, once for all sequences of an adapter.
#include "tests/unit/support/prefix_goldens.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "core/train/adapters/adapter_file.h"
#include "tests/unit/support/adapters.h"
#include "tests/unit/generate/steps.h"

namespace plait::test {
namespace {

class PrefixGeneration : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> engine(const EngineOptions& options = small_engine()) const {
    return make_engine(fixture_graph(GetParam()), World::get().options(DType::f32), options);
  }
  AdapterHandle of_peft(Engine& engine) const {
    return engine.add_adapter("p", read_adapter(prefix_directory(GetParam())));
  }
  std::vector<int32_t> document() const { return prefix_family(GetParam())["documents"][0]; }
};

/// Pages of 4 tokens have borders in the prefix of 7 and after it.
TEST_P(PrefixGeneration, LogitsAreThoseOfPytorch) {
  const Tensor want = prefix_golden(GetParam(), "logits");
  const std::vector<float> expected(want.as<float>(), want.as<float>() + want.elements());
  for (const int64_t page_tokens : {4, 7, 16}) {
    EngineOptions options = small_engine();
    options.page_tokens = page_tokens;
    auto engine = this->engine(options);
    const AdapterHandle prefix = of_peft(*engine);
    EXPECT_LE(relative_error(logits(*engine, document(), prefix), expected), 1e-4) << page_tokens;
  }
}

TEST_P(PrefixGeneration, ChunksChangeNoBit) {
  auto engine = this->engine();
  const AdapterHandle prefix = of_peft(*engine);
  const std::vector<int32_t> ids = some_ids(50, 3);
  const std::vector<float> expected = logits(*engine, ids, prefix);
  for (const size_t chunk : {1, 5, 16}) {
    auto sequence = engine->open({}, 0, prefix);
    EXPECT_EQ(feed(*engine, *sequence, ids, chunk), expected) << chunk;
  }
}

TEST_P(PrefixGeneration, CompanyChangesNoBit) {
  const Graph graph = fixture_graph(GetParam());
  const CompileOptions compile = World::get().options(DType::f32);
  auto engine = engine_with_capacity(graph, capacity_of(1, 8), compile);
  const AdapterWeights weights[] = {random_prefix(engine->decoder(), 5, 1), random_prefix(engine->decoder(), 40, 2),
                                    random_adapter(engine->decoder(), 8, 3)};
  std::vector<AdapterHandle> adapters{nullptr};
  for (const AdapterWeights& one : weights) adapters.push_back(engine->add_adapter("a", one));
  std::vector<std::vector<int32_t>> prompts;
  for (uint32_t i = 0; i < adapters.size(); ++i) prompts.push_back(some_ids(5 + 9 * i, 10 + i));
  const auto got = together(*engine, prompts, adapters, 3);
  for (size_t i = 0; i < prompts.size(); ++i) {
    auto own = engine_with_capacity(graph, i ? capacity_for_one(weights[i - 1]) : AdapterCapacity{}, compile);
    EXPECT_EQ(got[i], logits(*own, prompts[i], i ? own->add_adapter("x", weights[i - 1]) : nullptr)) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PrefixGeneration, testing::ValuesIn(prefix_fixtures()), name_of_case);

class OnePrefix : public testing::Test {
 protected:
  static constexpr int64_t tokens = 40;  // two pages of 16 and a half
  std::unique_ptr<Engine> engine(const EngineOptions& options = small_engine()) {
    auto out = make_engine(fixture_graph("llama-standard23"), World::get().options(DType::f32), options);
    weights_ = random_prefix(out->decoder(), tokens, 5);
    return out;
  }
  AdapterWeights weights_;
};

TEST_F(OnePrefix, PagesAreSharedAndGivenBack) {
  auto engine = this->engine();
  const int64_t all = engine->stats().pages_free;
  AdapterHandle prefix = engine->add_adapter("p", weights_);
  EXPECT_EQ(engine->stats().pages_free, all - 3);
  const std::vector<int32_t> ids = some_ids(30, 4);
  {
    auto one = engine->open({}, 0, prefix), other = engine->open({}, 0, prefix);
    EXPECT_EQ(engine->stats().pages_shared, 3) << "nothing is copied before it is written to";
    feed(*engine, *one, std::span(ids).first(8));
    feed(*engine, *other, std::span(ids).last(4));
    EXPECT_EQ(engine->stats().pages_free, all - 5) << "each has a third page of its own";
    EXPECT_EQ(engine->stats().pages_shared, 2);
    // The page of places 32 to 48 is full: 8 of the prefix, 8 tokens. It is found again, as any.
    EXPECT_EQ(engine->open(ids, 0, prefix)->length(), 8);
    EXPECT_EQ(engine->open(ids)->length(), 0);
    auto fork = engine->fork(*one);
    const std::vector<float> expected = logits(*engine, ids, prefix);
    const std::vector<float> tail = feed(*engine, *fork, std::span(ids).subspan(8));
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), expected.end() - static_cast<std::ptrdiff_t>(tail.size())));
  }
  // Equal contents under another name share nothing.
  const AdapterHandle same = engine->add_adapter("q", weights_);
  EXPECT_EQ(engine->open(ids, 0, same)->length(), 0);
  prefix.reset();
  const AdapterHandle next = engine->add_adapter("r", weights_);
  EXPECT_EQ(engine->stats().pages_free, all - 6) << "the first is gone";
}

TEST_F(OnePrefix, SavedSequencesHoldTheirTokensAlone) {
  auto engine = this->engine(), other = this->engine();
  const AdapterHandle prefix = engine->add_adapter("p", weights_);
  const std::vector<int32_t> ids = some_ids(20, 4), more = some_ids(9, 5);
  auto empty = engine->open({}, 0, prefix), sequence = engine->open({}, 0, prefix);
  feed(*engine, *sequence, ids);
  const std::vector<std::byte> saved = engine->save(*sequence), nothing = engine->save(*empty);
  EXPECT_THROW(other->restore(saved), Error);
  const AdapterHandle there = other->add_adapter("other name", weights_);
  const std::vector<float> expected = logits(*other, more, there);
  auto restored = other->restore(saved), begun = other->restore(nothing);
  EXPECT_EQ(feed(*other, *restored, more), feed(*engine, *sequence, more));
  EXPECT_EQ(feed(*other, *begun, more), expected) << "the prefix is whole";
}

TEST_F(OnePrefix, WhatDoesNotFitIsRefused) {
  EngineOptions options = small_engine();
  options.context = 60;
  auto engine = this->engine(options);
  auto refused = [&](Engine& by, const AdapterWeights& weights, Code code, const std::string& word) {
    const int64_t pages = by.stats().pages_free;
    try {
      by.add_adapter("a", weights);
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.message();
      EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    }
    EXPECT_EQ(by.stats().pages_free, pages);
  };
  auto gpt2 = fixture_engine("gpt2-optimum18");
  refused(*gpt2, weights_, Code::invalid_argument, "2 key heads");
  refused(*engine, random_prefix(engine->decoder(), 60, 1), Code::invalid_argument, "context");
  AdapterWeights bad = random_prefix(engine->decoder(), 3, 1);
  bad.prefix.as<float>()[7] = NAN;
  refused(*engine, bad, Code::bad_model, "not finite");
  options.cache_bytes = 40 << 10;
  options.context = 100000;
  auto small = this->engine(options);
  refused(*small, random_prefix(small->decoder(), 400, 1), Code::out_of_memory, "400 tokens");
}

TEST(PrefixShapes, AreOfOneSizeAndStandBeforeAttentionAlone) {
  const AttentionLayer layer{.query_heads = 4, .kv_heads = 2, .key_size = 8, .value_size = 8};
  Decoder decoder;
  decoder.layers = {layer, layer, layer};
  EXPECT_EQ(prefix_shape(decoder), (PrefixShape{3, 2, 8}));
  EXPECT_EQ(prefix_shape(decoder).dims(5), (Shape{5, 3 * 2 * 2 * 8}));
  Decoder recurrent = decoder, other_heads = decoder, other_values = decoder;
  recurrent.states = {{.op = "plait.LinearAttention"}};
  other_heads.layers[1].kv_heads = 1;
  for (AttentionLayer& one : other_values.layers) one.value_size = 4;
  for (const Decoder& refused : {recurrent, other_heads, other_values, Decoder()}) try {
      prefix_shape(refused);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported) << error.message();
    }
}

class PrefixesOnMesh : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(PrefixesOnMesh, EqualTheWhole) {
  const auto [name, mesh] = GetParam();
  const Graph graph = fixture_graph(name);
  CompileOptions compile = World::get().options(DType::f32);
  EngineOptions options = small_engine();
  options.threads = 1;
  auto whole = make_engine(graph, compile, options);
  compile.mesh = Mesh::parse(mesh);
  auto spread = make_engine(graph, compile, options);
  const AdapterWeights weights[] = {random_prefix(whole->decoder(), 5, 1), random_prefix(whole->decoder(), 33, 2)};
  std::vector<AdapterHandle> here{nullptr}, there{nullptr};
  for (const AdapterWeights& one : weights) {
    here.push_back(whole->add_adapter("a", one));
    there.push_back(spread->add_adapter("a", one));
  }
  std::vector<std::vector<int32_t>> prompts;
  for (uint32_t i = 0; i < here.size(); ++i) prompts.push_back(some_ids(9 + 8 * i, 20 + i));
  const auto got = together(*spread, prompts, there, 3);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_LT(relative_error(got[i], logits(*whole, prompts[i], here[i])), 1e-4) << "sequence " << i;
    auto begun = whole->open({}, 0, here[i]);
    const std::vector<int32_t> more = some_ids(5, 9);
    feed(*whole, *begun, prompts[i]);
    auto moved = spread->restore(whole->save(*begun));
    EXPECT_LT(relative_error(feed(*spread, *moved, more), feed(*whole, *begun, more)), 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PrefixesOnMesh,
                         testing::Combine(testing::Values("llama-standard23", "gemma3-standard23"),
                                          testing::Values("tensor=2", "data=2", "data=2,tensor=2")),
                         [](const auto& info) {
                           std::string out = std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                           for (char& letter : out)
                             if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
                           return out;
                         });

}  // namespace
}  // namespace plait::test
