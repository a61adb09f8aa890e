// Which request starts next, which is refused, and how a step's prompts follow its time.
#include <gtest/gtest.h>

#include <numeric>

#include "serving/forecast.h"
#include "serving/step_goal.h"
#include "tests/unit/serving/requests.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

RequestOptions short_request(uint32_t seed, int32_t priority = 0) {
  RequestOptions out;
  out.prompt = prompt(6, seed);
  out.max_tokens = 1;
  out.priority = priority;
  return out;
}

/// Runs from its start until the test releases it: it waits for the host's token.
class Blocker {
 public:
  explicit Blocker(Scheduler& scheduler, size_t length = 4) {
    RequestOptions options;
    options.prompt = prompt(length, 1);
    options.max_tokens = 1;
    options.host_sampling = true;
    request_ = scheduler.submit(std::move(options));
    EXPECT_TRUE(request_->next(hang));
  }
  void release() {
    request_->push(5);
    collect(*request_);
  }

 private:
  std::shared_ptr<Request> request_;
};

/// Requests that were submitted, and the order in which they ended: one at a time, so that in which they started.
struct Line {
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::vector<std::shared_ptr<Request>> requests;

  void submit(Scheduler& scheduler, RequestOptions options) {
    requests.push_back(scheduler.submit(std::move(options)));
    requests.back()->attach(mailbox, static_cast<int64_t>(requests.size()) - 1);
  }
  std::vector<int64_t> order() {
    std::vector<int64_t> out;
    for (size_t i = 0; i < requests.size(); ++i) out.push_back(mailbox->next(hang).value_or(-1));
    return out;
  }
};

SchedulerOptions one_at_a_time() {
  SchedulerOptions out;
  out.running = 1;
  return out;
}

template <class Call>
Code code_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_FALSE(error.hint().empty());
    return error.code();
  }
  return Code::ok;
}

TEST(Admission, LowerNumbersStartFirst) {
  auto one = scheduler("llama-standard23", small_engine(), one_at_a_time());
  Blocker blocker(*one);
  Line line;
  for (int32_t priority : {5, 5, 0, -1, 0}) line.submit(*one, short_request(9, priority));
  blocker.release();
  EXPECT_EQ(line.order(), (std::vector<int64_t>{3, 2, 4, 0, 1}));
}

TEST(Admission, NoneIsOvertakenForever) {
  SchedulerOptions options = one_at_a_time();
  options.overtakes = 3;
  auto one = scheduler("llama-standard23", small_engine(), options);
  Blocker blocker(*one);
  Line line;
  line.submit(*one, short_request(9, 1));
  for (uint32_t i = 0; i < 6; ++i) line.submit(*one, short_request(10 + i));
  blocker.release();
  EXPECT_EQ(line.order(), (std::vector<int64_t>{1, 2, 3, 0, 4, 5, 6}));
}

/// A cache of six pages: a blocker that has two of them, a request that needs five, and small ones.
TEST(Admission, WhatFitsPassesWhatDoesNotYet) {
  EngineOptions engine = small_engine();
  auto probe = fixture_engine("llama-standard23", engine);
  int64_t page = 0;
  for (const PageGroup& group : probe->decoder().groups)
    page += probe->decoder().pools[static_cast<size_t>(group.pool)].page_bytes(16, DType::f32);
  engine.cache_bytes = page * 6;
  engine.step_tokens = 96;
  for (int64_t overtakes : {0, 2, 32}) {
    SchedulerOptions options;
    options.overtakes = overtakes;
    auto one = scheduler("llama-standard23", engine, options);
    Blocker blocker(*one, 20);
    Line line;
    RequestOptions large = short_request(7);
    large.prompt = prompt(70, 7);
    line.submit(*one, large);
    int64_t passed = 0;
    for (uint32_t i = 0; i < 4; ++i) {  // one after another
      line.submit(*one, short_request(20 + i));
      passed += line.mailbox->next(passed < overtakes ? std::chrono::milliseconds(hang) : 50ms).has_value();
    }
    EXPECT_EQ(passed, std::min<int64_t>(overtakes, 4));
    blocker.release();
    for (auto& request : line.requests) EXPECT_EQ(collect(*request).finish[0], FinishReason::length);
  }
}

TEST(Admission, QueueIsLimitedInTokensAndInTime) {
  SchedulerOptions options = one_at_a_time();
  options.queue_tokens = 20;
  auto one = scheduler("llama-standard23", small_engine(), options);
  {
    Blocker blocker(*one);
    RequestOptions large = short_request(3);
    large.prompt = prompt(30, 3);
    auto first = one->submit(large);  // larger than the limit, and nothing else waits
    EXPECT_EQ(one->stats().waiting_tokens, 30);
    EXPECT_EQ(code_of([&] { one->submit(short_request(4)); }), Code::overloaded);
    first->cancel();
    collect(*first);
    EXPECT_EQ(one->stats().waiting_tokens, 0);
    auto second = one->submit(short_request(4));
    RequestOptions soon = short_request(5);
    soon.queue_deadline = 20ms;
    auto third = one->submit(soon);
    EXPECT_EQ(code_of([&] { collect(*third); }), Code::overloaded);
    blocker.release();
    EXPECT_EQ(collect(*second).finish[0], FinishReason::length);
  }
  RequestOptions in_time = short_request(6);
  in_time.queue_deadline = hang;
  EXPECT_EQ(collect(*one->submit(in_time)).finish[0], FinishReason::length);
}

/// A request that ran for 0.4 s: the next one would wait for as long.
TEST(Admission, ExpectedWaitIsThatOfTheRequestsBefore) {
  const double load = machine_load();
  SchedulerOptions options = one_at_a_time();
  options.queue_wait = std::chrono::milliseconds(static_cast<int64_t>(100 * load));
  auto one = scheduler("llama-standard23", small_engine(), options);
  EXPECT_EQ(one->stats().expected_wait_s, 0);
  {
    Blocker blocker(*one);
    EXPECT_EQ(one->stats().expected_wait_s, 0) << "nothing has ended yet";
    std::this_thread::sleep_for(std::chrono::duration<double>(0.4 * load));
    blocker.release();
    EXPECT_TRUE(eventually([&] { return one->stats().finished != 0; }));
  }
  Blocker blocker(*one);
  EXPECT_GT(one->stats().expected_wait_s, 0.1 * load);
  EXPECT_LT(one->stats().expected_wait_s, 5 * load);
  EXPECT_EQ(code_of([&] { one->submit(short_request(2)); }), Code::overloaded);
  blocker.release();
  EXPECT_TRUE(eventually([&] { return !one->stats().running; }));
  EXPECT_EQ(one->stats().expected_wait_s, 0) << "it starts at once";
  collect(*one->submit(short_request(2)));
}

/// Prompts of 1 ms and new tokens of 10 ms a token.
TEST(Forecast, PlacesAndPromptsAreWaitedFor) {
  Forecast forecast;
  EXPECT_EQ(forecast.wait(std::vector<WorkLeft>{{1, 1000, 1000}}, {}, 1, 1), 0) << "nothing is known yet";
  forecast.set_prompt_token(0.001);
  forecast.ended(101, 101, 1.0);
  using Work = std::vector<WorkLeft>;
  EXPECT_EQ(forecast.wait({}, {}, 1, 2), 0);
  EXPECT_EQ(forecast.wait(Work{{1, 0, 50}}, {}, 1, 2), 0) << "there is a place";
  EXPECT_DOUBLE_EQ(forecast.wait(Work{{1, 500, 50}}, {}, 1, 2), 0.5) << "a prompt is being computed";
  EXPECT_DOUBLE_EQ(forecast.wait(Work{{1, 0, 10}, {1, 0, 50}}, {}, 1, 2), 0.1) << "the shorter one ends";
  EXPECT_DOUBLE_EQ(forecast.wait(Work{{1, 0, 10}, {1, 0, 50}}, {}, 2, 2), 0.5) << "two places";
  EXPECT_DOUBLE_EQ(forecast.wait(Work{{2, 0, 10}}, {}, 1, 2), 0.1) << "its two samples end together";
  // The one ahead begins at 0.1, its prompt is there at 0.3, it ends at 0.4.
  EXPECT_DOUBLE_EQ(forecast.wait(Work{{1, 0, 10}, {1, 0, 50}}, Work{{1, 200, 10}}, 1, 2), 0.4);
  EXPECT_DOUBLE_EQ(forecast.wait(Work{{1, 0, 10}, {1, 0, 50}}, Work{{1, 200, 90}}, 1, 2), 0.5);
  EXPECT_DOUBLE_EQ(forecast.wait(Work{{1, 0, 10}, {1, 0, 11}}, Work{{1, 200, 90}}, 1, 2), 0.3)
      << "places, but prompts";
  EXPECT_DOUBLE_EQ(forecast.wait(Work{{1, 0, 10}}, {}, 3, 2), 0.1) << "more than there are: by itself";
}

TEST(Forecast, AnswersReachTheirLimitAsOftenAsBefore) {
  Forecast forecast;
  EXPECT_EQ(forecast.left(100, 0), 100);
  EXPECT_EQ(forecast.left(100, 40), 60);
  for (int i = 0; i < 200; ++i) forecast.ended(1000, 1000, 1);
  forecast.ended(20, 1000, 1);
  EXPECT_GT(forecast.left(1000, 0), 800) << "one of many ended early";
  for (int i = 0; i < 200; ++i) forecast.ended(20, 1000, 1);
  EXPECT_NEAR(forecast.left(1000, 0), 20, 0.1);
  EXPECT_NEAR(forecast.left(1000, 15), 5, 0.1);
  EXPECT_NEAR(forecast.left(1000, 500), 2.5, 0.1) << "longer than expected: not about to end";
  EXPECT_EQ(forecast.left(10, 0), 10);
  EXPECT_EQ(forecast.left(10, 9), 1);
  EXPECT_EQ(forecast.left(0, 0), 0);
  EXPECT_EQ(forecast.uncached(300), 300);
  for (int i = 0; i < 200; ++i) forecast.began(100, 75);
  EXPECT_NEAR(forecast.uncached(300), 75, 0.1);
}

TEST(StepGoal, BoundsPromptsWhereSamplesDecode) {
  StepGoal goal(0.1);
  EXPECT_EQ(goal.prompt_tokens(4, 512), 512) << "nothing is known yet";
  for (int i = 0; i < 100; ++i) {
    goal.measured(4, 0, 0.02);
    goal.measured(0, 100, 0.1);  // a millisecond a token
    goal.measured(4, 50, 0.07);  // and so it is next to decodes
  }
  EXPECT_EQ(goal.prompt_tokens(4, 512), 80);
  EXPECT_EQ(goal.prompt_tokens(0, 512), 512) << "no sample waits";
  EXPECT_EQ(goal.prompt_tokens(4, 40), 40);
  for (int i = 0; i < 100; ++i) goal.measured(4, 0, 0.5);
  EXPECT_EQ(goal.prompt_tokens(4, 512), 16) << "prompts never stand still";
  EXPECT_EQ(StepGoal(0).prompt_tokens(4, 512), 512);
}

/// With a goal that no step can reach, prompts are processed in the smallest chunks, and the tokens are the same.
TEST(StepGoal, ChangesNoToken) {
  EngineOptions engine = small_engine();
  engine.step_tokens = 64;
  std::vector<Answer> expected;
  for (uint32_t i = 0; i < 6; ++i) {
    RequestOptions request = short_request(30 + i);
    request.prompt = prompt(60, 30 + i);
    request.max_tokens = 20;
    expected.push_back(collect(*scheduler("llama-standard23", engine)->submit(request)));
  }
  for (auto goal : {0us, 1000us}) {
    SchedulerOptions options;
    options.step_goal = std::chrono::duration_cast<std::chrono::milliseconds>(goal);
    auto one = scheduler("llama-standard23", engine, options);
    std::vector<std::shared_ptr<Request>> running;
    for (uint32_t i = 0; i < 6; ++i) {
      RequestOptions request = short_request(30 + i);
      request.prompt = prompt(60, 30 + i);
      request.max_tokens = 20;
      running.push_back(one->submit(request));
      running.back()->next(hang);  // it decodes while the next one's prompt comes
    }
    const SchedulerStats stats = one->stats();
    EXPECT_GT(stats.step_s, 0);
    EXPECT_GT(stats.sampling_s, 0);
    for (size_t i = 0; i < running.size(); ++i) {
      Answer got = collect(*running[i]);
      got.tokens[0].insert(got.tokens[0].begin(), expected[i].tokens[0][0]);
      EXPECT_EQ(got.tokens, expected[i].tokens) << i;
    }
  }
}

/// Each step and each request is in them once, and their sums are the tokens that were computed.
TEST(Histograms, CountStepsAndTokens) {
  EngineOptions engine = small_engine();
  engine.step_tokens = 16;  // prompts are cut
  auto one = scheduler("llama-standard23", engine);
  double prompts = 0, outputs = 0;
  constexpr size_t lengths[] = {6, 20, 60};
  for (size_t length : lengths) {
    RequestOptions request = short_request(static_cast<uint32_t>(length));
    request.prompt = prompt(length, static_cast<uint32_t>(length));
    request.max_tokens = 5;
    outputs += static_cast<double>(collect(*one->submit(request)).tokens.at(0).size());
    prompts += static_cast<double>(length);
  }
  SchedulerStats stats = one->stats();
  EXPECT_TRUE(eventually([&] { return (stats = one->stats()).finished == 3; }));
  const SchedulerHistograms& all = stats.histograms;
  const auto count = [](const Histogram& of) {
    return std::accumulate(of.counts.begin(), of.counts.end(), int64_t{0});
  };
  for (const Histogram* of : {&all.step_seconds, &all.step_samples, &all.step_tokens})
    EXPECT_EQ(count(*of), stats.steps);
  for (const Histogram* of : {&all.request_prompt_tokens, &all.request_cached_tokens, &all.request_new_tokens})
    EXPECT_EQ(count(*of), 3);
  EXPECT_EQ(all.request_prompt_tokens.sum, prompts);
  EXPECT_EQ(all.request_new_tokens.sum, outputs);
  EXPECT_EQ(all.step_tokens.sum, prompts - all.request_cached_tokens.sum + outputs - 3)
      << "the last token of each is not computed";
  EXPECT_EQ(all.step_samples.sum, static_cast<double>(stats.steps)) << "one at a time";
  EXPECT_DOUBLE_EQ(all.step_seconds.sum, stats.step_s);
  EXPECT_EQ(all.request_prompt_tokens.counts[3], 1) << "6 tokens: up to 8";
}

}  // namespace
}  // namespace plait::test
