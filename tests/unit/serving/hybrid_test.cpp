// Decoders with states under the scheduler: what a request gives does not depend on its company, on how its tokens are cut
// into steps, or on where it went on.
#include <gtest/gtest.h>

#include <map>

#include "serving/scheduler.h"
#include "tests/unit/support/hybrid_maker.h"
#include "tests/unit/serving/requests.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

constexpr int64_t page_bytes = 16 * 2 * (4 + 4) * 4;  // of a small engine

std::vector<int32_t> prompt(size_t length, uint32_t seed) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < length; ++i)
    out.push_back(static_cast<int32_t>((i * 7 + seed * 5 + i * i % 3) % DecoderMaker::vocabulary));
  return out;
}

/// Long and short prompts, greedy and sampled, with several samples of one.
std::vector<RequestOptions> mixed_requests() {
  std::vector<RequestOptions> out;
  const size_t lengths[] = {1, 70, 7, 33, 16, 17};
  for (uint32_t i = 0; i < 6; ++i) {
    RequestOptions request;
    request.prompt = prompt(lengths[i], i);
    request.max_tokens = 10 + 3 * i;
    request.sampling.top_logprobs = 1;
    request.sampling.temperature = i % 2 ? 1.1 : 0;
    request.sampling.seed = 7 + i;
    if (i == 3) request.samples = 3;
    out.push_back(std::move(request));
  }
  return out;
}

class HybridModel : public testing::TestWithParam<bool> {
 protected:
  HybridModel() { graph_ = hybrid_graph({.attention = GetParam()}); }

  std::unique_ptr<Scheduler> scheduler(const EngineOptions& options = small_engine()) const {
    return std::make_unique<Scheduler>(make_engine(graph_, World::get().options(), options), TokenizerFuture(),
                                       SchedulerOptions());
  }
  int64_t state_bytes() const { return recognise(graph_, World::get().options()).state_bytes(); }

  std::vector<Answer> alone() const {
    std::vector<Answer> out;
    for (const RequestOptions& request : mixed_requests()) out.push_back(collect(*scheduler()->submit(request)));
    return out;
  }
  static std::vector<Answer> together(Scheduler& scheduler) {
    std::vector<std::shared_ptr<Request>> running;
    for (RequestOptions& request : mixed_requests()) running.push_back(scheduler.submit(std::move(request)));
    std::vector<Answer> out;
    for (auto& request : running) out.push_back(collect(*request));
    return out;
  }

  Graph graph_;
};

TEST_P(HybridModel, BatchedEqualsAlone) {
  auto one = scheduler();
  EXPECT_EQ(together(*one), alone());
  EXPECT_EQ(one->stats().engine.prefix_hits, 0);
}

/// Chunks of any length, to the bit.
TEST_P(HybridModel, ChunksEqualTheWhole) {
  std::vector<int32_t> ids = prompt(24, 1);
  auto engine = make_engine(graph_, World::get().options(), small_engine());
  ASSERT_TRUE(engine->decoder().recognised);
  std::vector<float> whole = logits_of(*engine, ids, ids.size());
  for (size_t chunk : {1, 2, 5, 16, 23}) EXPECT_EQ(logits_of(*engine, ids, chunk), whole) << chunk;
}

/// Room for the states of few, so that the young lose theirs.
TEST_P(HybridModel, PreemptionChangesNothing) {
  std::vector<Answer> expected = alone();
  for (int64_t held : {1, 3}) {
    EngineOptions options = small_engine();
    options.cache_bytes = held * (GetParam() ? state_bytes() + 16 * page_bytes : 2 * state_bytes());
    auto few = scheduler(options);
    // On a busy machine the first may have ended before the last come.
    for (int tries = 0; tries < 50 && few->stats().preempted == 0; ++tries)
      EXPECT_EQ(together(*few), expected) << held;
    EXPECT_GT(few->stats().preempted, 0) << held;
    EXPECT_EQ(few->stats().engine.states, held);
    EXPECT_TRUE(eventually([&] { return few->stats().engine.states_free == held; }));
  }
}

TEST_P(HybridModel, AConversationContinuesAndForks) {
  auto one = scheduler();
  RequestOptions first;
  first.prompt = prompt(21, 8);
  first.max_tokens = 10;
  first.keep = true;
  auto begun = one->submit(first);
  Answer head = collect(*begun);
  ASSERT_TRUE(begun->conversation());
  std::vector<int32_t> whole = first.prompt;
  whole.insert(whole.end(), head.tokens[0].begin(), head.tokens[0].end());
  auto bytes = one->save(*begun->conversation());
  auto elsewhere = scheduler();
  auto restored = elsewhere->restore(bytes);
  for (uint32_t turn = 0; turn < 3; ++turn) {  // three forks of one past, here and where it was restored
    RequestOptions next;
    next.prompt = prompt(4 + turn, 40 + turn);
    next.max_tokens = 9;
    next.sampling.top_logprobs = 1;
    RequestOptions fresh = next;
    fresh.prompt = whole;
    fresh.prompt.insert(fresh.prompt.end(), next.prompt.begin(), next.prompt.end());
    Answer expected = collect(*scheduler()->submit(fresh));
    next.parent = begun->conversation();
    EXPECT_EQ(collect(*one->submit(next)), expected) << turn;
    next.parent = restored;
    EXPECT_EQ(collect(*elsewhere->submit(next)), expected) << turn;
  }
  for (size_t cut : {size_t{0}, size_t{7}, size_t{40}, bytes.size() - 1})
    EXPECT_THROW(elsewhere->restore({bytes.data(), cut}), Error);
}

/// A step that fails leaves every state as it was.
TEST_P(HybridModel, AFailedStepChangesNothing) {
  auto engine = make_engine(graph_, World::get().options(), small_engine());
  auto sequence = engine->open({}), other = engine->open({});
  std::vector<int32_t> ids = prompt(9, 2), next = prompt(3, 4), wrong{DecoderMaker::vocabulary};
  auto step = [&](Sequence& on, std::span<const int32_t> tokens) {
    EXPECT_TRUE(engine->reserve(on, static_cast<int64_t>(tokens.size())));
    Feed feed{&on, tokens, 1, {}, {}};
    engine->step({&feed, 1});
    return std::vector<float>(feed.logits.begin(), feed.logits.end());
  };
  step(*sequence, ids);
  step(*other, ids);
  Feed feeds[] = {{sequence.get(), next, 1, {}, {}}, {other.get(), wrong, 1, {}, {}}};
  for (Feed& feed : feeds) EXPECT_TRUE(engine->reserve(*feed.sequence, 3));
  EXPECT_THROW(engine->step(feeds), Error);
  EXPECT_EQ(engine->stats().states_free, engine->stats().states - 2);
  EXPECT_EQ(step(*sequence, next), step(*other, next));
}

/// Hidden states come from a program of their own, over the same states.
TEST_P(HybridModel, EmbeddingsOfAPrefixAreThoseOfTheWhole) {
  auto one = scheduler();
  RequestOptions request;
  request.kind = RequestOptions::Kind::embed;
  std::vector<float> whole, part;
  for (size_t length : {size_t{30}, size_t{12}}) {
    request.prompt = prompt(30, 3);
    request.prompt.resize(length);
    auto running = one->submit(request);
    collect(*running);
    (length == 30 ? whole : part) = running->take_matrix();
  }
  ASSERT_EQ(part.size(), 12u * static_cast<size_t>(one->decoder().hidden));
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
}

INSTANTIATE_TEST_SUITE_P(Hybrids, HybridModel, testing::Bool(),
                         [](const auto& info) { return info.param ? "WithAttention" : "StatesAlone"; });

TEST(HybridBudget, StatesCountAndTooFewAreRefused) {
  Graph graph = hybrid_graph({});
  EngineOptions options = small_engine();
  auto engine = make_engine(graph, World::get().options(), options);
  EngineStats stats = engine->stats();
  EXPECT_GT(stats.states, 0);
  EXPECT_LE(stats.cache_bytes, options.cache_bytes);
  EXPECT_GT(stats.cache_bytes, options.cache_bytes * 9 / 10);
  options.cache_bytes = 600;
  EXPECT_THROW(make_engine(graph, World::get().options(), options), Error);
}

}  // namespace
}  // namespace plait::test
