// The scheduler's promise: what a request gives does not depend on its company.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <random>

#include "tests/unit/serving/requests.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

/// Eight requests of all kinds: greedy and sampled, short and long, with penalties, bias, several samples.
std::vector<RequestOptions> mixed_requests(const std::string& model) {
  size_t longest = model.starts_with("gpt2") ? 25 : 70;  // its table of positions ends at 64
  std::vector<RequestOptions> out;
  const size_t lengths[] = {1, 70, 7, 33, 16, 17, 5, 48};
  for (uint32_t i = 0; i < 8; ++i) {
    RequestOptions request;
    request.prompt = prompt(std::min(lengths[i], longest), 100 + i);
    request.max_tokens = 12 + static_cast<int64_t>(i) * 3;
    request.sampling.top_logprobs = 2;
    if (i % 2) {
      request.sampling.temperature = 0.6 + 0.2 * i;
      request.sampling.top_k = i == 3 ? 20 : 0;
      request.sampling.top_p = i == 5 ? 0.8 : 1;
      request.sampling.min_p = i == 7 ? 0.02 : 0;
      request.sampling.seed = 77 + i;
    }
    if (i == 2) request.sampling.repetition_penalty = 1.3;
    if (i == 4) request.sampling.presence_penalty = 0.5, request.sampling.frequency_penalty = 0.3;
    if (i == 6) request.sampling.logit_bias = {{9, 4.0f}, {11, -100.0f}};
    if (i == 1) request.samples = 3;
    out.push_back(std::move(request));
  }
  return out;
}

std::vector<Answer> alone(const std::string& model) {
  std::vector<Answer> out;
  for (const RequestOptions& request : mixed_requests(model))
    out.push_back(collect(*scheduler(model)->submit(request)));
  return out;
}

void expect_equal(const std::vector<Answer>& got, const std::vector<Answer>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tokens, expected[i].tokens) << "request " << i;
    EXPECT_EQ(got[i].logprobs, expected[i].logprobs) << "request " << i << ": the bits of log-probabilities";
    EXPECT_EQ(got[i].finish, expected[i].finish) << "request " << i;
  }
}

class Company : public testing::TestWithParam<const char*> {};

TEST_P(Company, BatchedEqualsAlone) {
  std::vector<Answer> expected = alone(GetParam());
  auto together = scheduler(GetParam());
  std::vector<std::shared_ptr<Request>> running;
  for (RequestOptions& request : mixed_requests(GetParam())) {
    running.push_back(together->submit(std::move(request)));
    std::this_thread::sleep_for(1ms);  // they join a batch that is under way
  }
  std::vector<Answer> got;
  for (auto& request : running) got.push_back(collect(*request));
  expect_equal(got, expected);
}

TEST_P(Company, PreemptionChangesNothing) {
  std::vector<Answer> expected = alone(GetParam());
  EngineOptions options = small_engine();
  auto probe = fixture_engine(GetParam(), options);
  int64_t page = 0;
  for (const PageGroup& group : probe->decoder().groups)
    page += probe->decoder().pools[static_cast<size_t>(group.pool)].page_bytes(16, DType::f32);
  options.cache_bytes = page * 9;  // the longest needs 7 pages: two such requests never fit together
  auto together = scheduler(GetParam(), options);
  std::vector<std::shared_ptr<Request>> running;
  for (RequestOptions& request : mixed_requests(GetParam())) running.push_back(together->submit(std::move(request)));
  std::vector<Answer> got;
  for (auto& request : running) got.push_back(collect(*request));
  expect_equal(got, expected);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Company,
                         testing::Values("llama-standard23", "gemma3-optimum18", "gpt2-optimum18",
                                         "gemma3-standard23-bf16"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Scheduler, PreemptsWhenTheCacheIsFull) {
  EngineOptions options = small_engine();
  auto probe = fixture_engine("llama-standard23", options);
  options.cache_bytes = probe->decoder().pools[0].page_bytes(16, DType::f32) * 6;
  auto together = scheduler("llama-standard23", options);
  // On a busy machine the first may have ended before the last come.
  for (int tries = 0; tries < 50 && together->stats().preempted == 0; ++tries) {
    std::vector<std::shared_ptr<Request>> running;
    for (uint32_t i = 0; i < 3; ++i) {
      RequestOptions request;
      request.prompt = prompt(20, i);
      request.max_tokens = 40;
      running.push_back(together->submit(std::move(request)));
    }
    for (auto& request : running) EXPECT_EQ(collect(*request).tokens[0].size(), 40u);
  }
  EXPECT_GT(together->stats().preempted, 0);
}

TEST(Scheduler, RequestsThatFindNoRoomComeInWhenOthersEnd) {
  EngineOptions options = small_engine();
  auto probe = fixture_engine("llama-standard23", options);
  options.cache_bytes = probe->decoder().pools[0].page_bytes(16, DType::f32) * 2;  // room for one at a time
  auto one = scheduler("llama-standard23", options);
  std::vector<std::shared_ptr<Request>> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    RequestOptions request;
    request.prompt = prompt(24, i);
    request.max_tokens = 1 + i % 3;
    requests.push_back(one->submit(std::move(request)));
  }
  for (uint32_t i = 0; i < 12; ++i) EXPECT_EQ(collect(*requests[i]).tokens[0].size(), 1 + i % 3) << i;
}

TEST(Scheduler, EqualPrefixesShareTheirPages) {
  auto one = scheduler("gemma3-standard23");
  RequestOptions first;
  first.prompt = prompt(64, 5);
  first.max_tokens = 4;
  Answer fresh = collect(*one->submit(first));
  auto again = one->submit(first);
  EXPECT_EQ(collect(*again).tokens, fresh.tokens);
  EXPECT_EQ(again->usage().cached_tokens, 48);  // whole pages of 16; the last token is always computed
  RequestOptions longer = first;
  longer.prompt.push_back(9);
  auto other = scheduler("gemma3-standard23");
  EXPECT_EQ(collect(*one->submit(longer)).tokens, collect(*other->submit(longer)).tokens);
}

TEST(Scheduler, AConversationContinuesAndForks) {
  for (const char* model : {"gemma3-optimum18", "llama-dynamo23"}) {
    auto one = scheduler(model);
    RequestOptions first;
    first.prompt = prompt(21, 8);
    first.max_tokens = 10;
    first.keep = true;
    auto begun = one->submit(first);
    Answer head = collect(*begun);
    ASSERT_TRUE(begun->conversation());
    std::vector<int32_t> whole = first.prompt;
    whole.insert(whole.end(), head.tokens[0].begin(), head.tokens[0].end());
    for (uint32_t turn = 0; turn < 3; ++turn) {  // three forks of one past
      RequestOptions next;
      next.parent = begun->conversation();
      next.prompt = prompt(4 + turn, 40 + turn);
      next.max_tokens = 9;
      RequestOptions fresh = next;
      fresh.parent.reset();
      fresh.prompt = whole;
      fresh.prompt.insert(fresh.prompt.end(), next.prompt.begin(), next.prompt.end());
      auto other = scheduler(model);
      EXPECT_EQ(collect(*one->submit(next)).tokens, collect(*other->submit(fresh)).tokens)
          << model << " turn " << turn;
    }
    // Saved, and restored elsewhere.
    auto bytes = one->save(*begun->conversation());
    auto elsewhere = scheduler(model);
    RequestOptions next;
    next.prompt = prompt(3, 60);
    next.max_tokens = 9;
    next.parent = elsewhere->restore(bytes);
    Answer restored = collect(*elsewhere->submit(next));
    next.parent = begun->conversation();
    EXPECT_EQ(restored.tokens, collect(*one->submit(next)).tokens);
    for (size_t cut : {size_t{0}, size_t{7}, size_t{40}, bytes.size() - 1})
      EXPECT_THROW(elsewhere->restore({bytes.data(), cut}), Error);
    // Every byte counts, whatever it is of.
    for (size_t at = 0; at < bytes.size(); at += at < 64 ? 1 : 1 + bytes.size() / 500) {
      auto flipped = bytes;
      flipped[at] ^= std::byte{static_cast<unsigned char>(1 << at % 8)};
      EXPECT_THROW(elsewhere->restore(flipped), Error) << model << " byte " << at;
    }
    // What versions without a checksum saved: the same without what is in front.
    try {
      elsewhere->restore(std::span<const std::byte>(bytes).subspan(12));
      ADD_FAILURE() << "restored without a checksum";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_model);
      EXPECT_NE(error.hint().find("without a checksum"), std::string::npos) << error.hint();
    }
  }
}

// Angles by the length of the sequence (LongRoPE, up to 32 tokens and beyond): what a request gives is what it would
// get by itself, fresh and in one go.
std::vector<RequestOptions> requests_across_a_limit() {
  std::vector<RequestOptions> out;
  for (size_t length : {28, 40, 31, 33, 12, 40}) {
    RequestOptions request;
    for (int32_t id : prompt(length, length == 40 ? 7 : 70 + static_cast<uint32_t>(length)))
      request.prompt.push_back(id % 240 + 8);
    request.max_tokens = 12;
    request.sampling.top_logprobs = 2;
    out.push_back(std::move(request));
  }
  return out;
}

TEST(Scheduler, ChoicesByLengthAreEachRequestsOwn) {
  for (const char* model : {"zoo/phi3_long/genai_fp32", "zoo/phi3_long/dynamo18"}) {
    std::vector<Answer> expected, got;
    for (const RequestOptions& request : requests_across_a_limit())
      expected.push_back(collect(*scheduler(model)->submit(request)));
    for (int64_t pages : {100, 9}) {  // nine pages of 16 tokens: not all of them at once
      EngineOptions options = small_engine();
      auto probe = fixture_engine(model, options);
      options.cache_bytes = 0;
      for (const PageGroup& group : probe->decoder().groups)
        options.cache_bytes +=
            pages * probe->decoder().pools[static_cast<size_t>(group.pool)].page_bytes(16, DType::f32);
      auto together = scheduler(model, options);
      std::vector<std::shared_ptr<Request>> running;
      for (RequestOptions& request : requests_across_a_limit())
        running.push_back(together->submit(std::move(request)));
      got.clear();
      for (auto& request : running) got.push_back(collect(*request));
      expect_equal(got, expected);
    }
  }
}

TEST(Scheduler, AConversationThatCrossesALengthIsAsAFreshOne) {
  const char* model = "zoo/phi3_long/genai_fp32";
  auto one = scheduler(model);
  RequestOptions first = requests_across_a_limit()[4];  // 12 tokens, and as many of the answer
  first.keep = true;
  auto begun = one->submit(first);
  Answer head = collect(*begun);
  for (size_t more : {5, 15}) {  // within the limit, and beyond
    RequestOptions next = requests_across_a_limit()[1], fresh = first;
    next.prompt.resize(more);
    fresh.keep = false;
    fresh.prompt.insert(fresh.prompt.end(), head.tokens[0].begin(), head.tokens[0].end());
    fresh.prompt.insert(fresh.prompt.end(), next.prompt.begin(), next.prompt.end());
    next.parent = begun->conversation();
    Answer continued = collect(*one->submit(next)), anew = collect(*scheduler(model)->submit(fresh));
    EXPECT_EQ(continued.tokens, anew.tokens) << more;
  }
}

TEST(Scheduler, CancelInMidPrefill) {
  EngineOptions options = small_engine();
  options.step_tokens = 2;
  std::promise<void> in_prefill, cancelled;
  options.before_step = [&](int64_t, int64_t step) {
    if (step != 3) return;
    in_prefill.set_value();
    cancelled.get_future().wait();
  };
  auto one = scheduler("llama-standard23", options);
  RequestOptions request;
  request.prompt = prompt(400, 1);
  auto running = one->submit(std::move(request));
  in_prefill.get_future().wait();
  running->cancel();
  cancelled.set_value();
  Answer answer = collect(*running);
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(answer.finish[0], FinishReason::cancelled);
  EXPECT_EQ(one->stats().engine.pages_shared, 0);
}

/// What a file computes may depend on how many tokens it is given: here the logits are so many times the token's row.
TEST(Scheduler, AGraphThatRunsAsItSaysTakesAPromptAtOnce) {
  Graph graph = parse_graph(R"(
input %0 "input_ids" : i64[b, s]
input %1 "past_key_values.0.key" : f32[b, 1, p, 2]
const %2 "table" = inline : f32[2, 2] = 1 2 3 4
const %3 = inline : i64[1] = 1
node "" : %4 : f32[b, s, 2] = Gather(%2, %0) axis=0
node "" : %5 : i64[] = Size(%0)
node "" : %6 : f32[] = Cast(%5) to=1
node "" : %7 "logits" : f32[b, s, 2] = Mul(%4, %6)
node "" : %8 : f32[b, 1, s, 2] = Unsqueeze(%4, %3)
node "" : %9 "present.0.key" : f32[b, 1, "p + s", 2] = Concat(%1, %8) axis=2
output %7
output %9
)");
  EngineOptions options = small_engine();
  options.step_tokens = 2;
  options.step_rows = 3;
  Scheduler one(make_engine(graph, World::get().options(), options), TokenizerFuture(), SchedulerOptions{});
  ASSERT_FALSE(one.decoder().recognised);
  RequestOptions request;
  request.kind = RequestOptions::Kind::score;
  request.prompt = {1, 0, 1, 1, 0};
  auto scored = one.submit(request);
  collect(*scored);
  EXPECT_EQ(scored->take_matrix(), (std::vector<float>{15, 20, 5, 10, 15, 20, 15, 20, 5, 10}));
}

/// A decoder that raise leaves as it is: with token 1 in it a loop without a limit goes round forever.
Graph endless() {
  return parse_graph(R"(
input %0 "input_ids" : i64[b, s]
const %1 "table" = inline : f32[4, 4] = 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16
const %2 = inline : i64[] = 1
node "" : %3 : bool[b, s] = Equal(%0, %2)
node "" : %4 : i32[b, s] = Cast(%3) to=6
const %5 = inline : i32[] = 0
node "" : %6 : i32[] = ReduceMax(%4) keepdims=0
node "" : %7 : bool[] = Greater(%6, %5)
node "" : %8 : f32[b, s, 4] = Gather(%1, %0) axis=0
const %9 = inline : i64[] = 9223372036854775807
node "turns" : %10 "logits" : f32[b, s, 4] = Loop(%9, %7, %8) carried=1
body "body" {
  input %0 "i" : i64[]
  input %1 "more" : bool[]
  input %2 "in" : f32[b, s, 4]
  node "" : %3 : f32[b, s, 4] = Neg(%2)
  output %1
  output %3
}
output %10
)");
}

std::unique_ptr<Scheduler> endless_scheduler() {
  return std::make_unique<Scheduler>(make_engine(endless(), World::get().options(), small_engine()),
                                     TokenizerFuture(), SchedulerOptions{});
}

std::shared_ptr<Request> submitted(Scheduler& scheduler, int32_t token) {
  RequestOptions request;
  request.prompt = {token};
  request.max_tokens = 1;
  return scheduler.submit(std::move(request));
}

/// A step whose requests are cancelled ends at once, whatever the graph does in it, and the next request is served.
TEST(Scheduler, CancelInMidStep) {
  auto one = endless_scheduler();
  auto stuck = submitted(*one, 1);
  EXPECT_FALSE(stuck->next(50ms)) << "the loop ends";
  auto waiting = submitted(*one, 2);
  stuck->cancel();
  Answer answer = collect(*stuck);
  EXPECT_TRUE(answer.tokens.empty());
  EXPECT_EQ(answer.finish[0], FinishReason::cancelled);
  EXPECT_EQ(collect(*waiting).finish[0], FinishReason::length);
  for (int round = 0; round < 50; ++round) {  // a cancel at any time, before its step or in it
    auto soon = submitted(*one, 1);
    std::this_thread::sleep_for(std::chrono::microseconds(20 * round));
    soon->cancel();
    ASSERT_EQ(collect(*soon).finish[0], FinishReason::cancelled) << round;
  }
}

TEST(Scheduler, ClosingEndsTheStep) {
  auto one = endless_scheduler();
  auto stuck = submitted(*one, 1);
  EXPECT_FALSE(stuck->next(50ms));
  one.reset();
  try {
    stuck->next(hang);
    ADD_FAILURE() << "it has ended well";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::closed);
  }
}

TEST(Scheduler, DroppedRequestsGiveTheirPagesBack) {
  auto one = scheduler("llama-standard23");
  for (int i = 0; i < 20; ++i) {
    RequestOptions request;
    request.prompt = prompt(60, static_cast<uint32_t>(i));
    request.max_tokens = 1000;
    auto running = one->submit(std::move(request));
    running->next(hang);
  }
  // The last one's are free once the step that it was in has ended.
  const int64_t pages = one->stats().engine.pages;
  EXPECT_TRUE(eventually([&] { return !one->stats().running && one->stats().engine.pages_free == pages; }));
  EXPECT_EQ(one->stats().waiting, 0);
}

TEST(Scheduler, HostSamplingGivesTheSameTokens) {
  auto one = scheduler("llama-standard23");
  RequestOptions request;
  request.prompt = prompt(9, 3);
  request.max_tokens = 8;
  Answer expected = collect(*one->submit(request));
  request.host_sampling = true;
  auto hosted = one->submit(request);
  std::vector<int32_t> tokens;
  while (!hosted->finished()) {
    auto event = hosted->next(hang);
    if (!event) break;
    if (!event->logits.empty()) {
      auto best = std::max_element(event->logits.begin(), event->logits.end()) - event->logits.begin();
      hosted->push(static_cast<int32_t>(best));
    }
    if (event->has_token) tokens.push_back(event->token.id);
  }
  EXPECT_EQ(tokens, expected.tokens[0]);
  EXPECT_THROW(hosted->push(1), Error);  // nothing is asked any more
}

TEST(Scheduler, RefusesWhatCannotWork) {
  SchedulerOptions limits;
  limits.queue = 2;
  EngineOptions options = small_engine();
  options.context = 100;
  auto one = scheduler("llama-standard23", options, limits);
  auto code = [&](RequestOptions request) {
    try {
      one->submit(std::move(request));
    } catch (const Error& error) {
      return error.code();
    }
    return Code::ok;
  };
  RequestOptions request;
  EXPECT_EQ(code(request), Code::invalid_argument);  // empty
  request.prompt = {1, 100000};
  EXPECT_EQ(code(request), Code::invalid_argument);
  request.prompt = prompt(101, 1);
  EXPECT_EQ(code(request), Code::invalid_argument);  // longer than the context
  request.prompt = prompt(10, 1);
  request.stop_strings = {"x"};
  EXPECT_EQ(code(request), Code::invalid_argument);  // no tokenizer
  options.context = 0;
  options.cache_bytes = 40000;
  auto small = scheduler("llama-standard23", options);
  request.stop_strings.clear();
  request.prompt = prompt(400, 1);
  EXPECT_THROW(small->submit(request), Error);  // can never fit
  options.cache_bytes = 100;
  EXPECT_THROW(scheduler("llama-standard23", options), Error);  // not one page
}

TEST(Scheduler, ContextEndsARequest) {
  EngineOptions options = small_engine();
  options.context = 20;
  auto one = scheduler("llama-standard23", options);
  RequestOptions request;
  request.prompt = prompt(15, 1);
  request.max_tokens = 100;
  Answer answer = collect(*one->submit(request));
  EXPECT_EQ(answer.tokens[0].size(), 5u);
  EXPECT_EQ(answer.finish[0], FinishReason::length);
}

TEST(Scheduler, DeadlinesAndAFullQueue) {
  SchedulerOptions limits;
  limits.queue = 2;
  limits.running = 1;
  auto one = scheduler("llama-standard23", small_engine(), limits);
  std::vector<std::shared_ptr<Request>> kept;
  RequestOptions request;
  request.prompt = prompt(200, 1);
  request.max_tokens = 3000;
  bool full = false;
  for (int i = 0; i < 8 && !full; ++i) {
    try {
      kept.push_back(one->submit(request));
    } catch (const Error& error) {
      full = error.code() == Code::overloaded;
    }
  }
  EXPECT_TRUE(full);
  kept.clear();
  EXPECT_TRUE(eventually([&] { return !one->stats().waiting; }));
  request.deadline = 5ms;
  auto late = one->submit(request);
  EXPECT_THROW(collect(*late), Error);
}

TEST(Scheduler, TheLastHolderOfAConversationMayDieInTheQueue) {
  SchedulerOptions limits;
  limits.running = 1;
  auto one = scheduler("llama-standard23", small_engine(), limits);
  RequestOptions first;
  first.prompt = prompt(20, 1);
  first.max_tokens = 4;
  first.keep = true;
  auto begun = one->submit(first);
  collect(*begun);
  RequestOptions busy;
  busy.prompt = prompt(30, 2);
  busy.max_tokens = 3000;
  busy.sampling.logit_bias = {{0, -1000.0f}};
  auto running = one->submit(std::move(busy));
  ASSERT_TRUE(running->next(hang));
  RequestOptions next;
  next.parent = begun->conversation();
  next.prompt = prompt(3, 3);
  auto waiting = one->submit(std::move(next));
  begun.reset();
  waiting.reset();  // only the queue holds the conversation now
  running.reset();
  Answer after = collect(*one->submit(first));
  EXPECT_EQ(after.tokens[0].size(), 4u);
}

TEST(Scheduler, ClosingEndsRequestsWithAnError) {
  auto one = scheduler("llama-standard23");
  RequestOptions request;
  request.prompt = prompt(100, 1);
  request.max_tokens = 100000;
  request.keep = true;
  auto running = one->submit(request);
  running->next(hang);
  one.reset();
  EXPECT_THROW(collect(*running), Error);
}

}  // namespace
}  // namespace plait::test
