// Requests that name adapters: what one gives does not depend on its company, whatever that names, and adapters come and go
// while requests run.
#include "tests/unit/support/adapters.h"

#include <gtest/gtest.h>

#include "tests/unit/serving/requests.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

/// Of what `body` throws; code ok if it throws nothing.
template <class Body>
Error error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return {Code::ok, ""};
}

class AdapterRequests : public testing::TestWithParam<const char*> {
 protected:
  AdapterRequests() {
    const auto probe = engine_with_capacity(graph_, capacity_of(1, 8), compile());
    weights_ = {{"a", random_adapter(probe->decoder(), 5, 1)},
                {"b", random_adapter(probe->decoder(), 8, 2, 0.5)},
                {"p", random_prefix(probe->decoder(), 21, 3)}};  // a page of 16 places and a part
  }
  static CompileOptions compile() { return World::get().options(DType::f32); }
  std::unique_ptr<Scheduler> scheduler(int64_t slots, const EngineOptions& options = small_engine(),
                                       const std::vector<std::string>& names = {"a", "b", "p"}) const {
    auto out = std::make_unique<Scheduler>(engine_with_capacity(graph_, capacity_of(slots, 8), compile(), options),
                                           TokenizerFuture(), SchedulerOptions());
    for (const std::string& name : names) out->add_adapter(name, weights_.at(name));
    return out;
  }
  /// What the request gives by itself, of a generator of this adapter and no other.
  Answer alone(RequestOptions request, const std::string& name) const {
    AdapterCapacity capacity = name.empty() ? AdapterCapacity{} : capacity_for_one(weights_.at(name));
    Scheduler own(engine_with_capacity(graph_, capacity, compile()), TokenizerFuture(), SchedulerOptions());
    if (!name.empty()) own.add_adapter(name, weights_.at(name));
    request.adapter = name;
    return collect(*own.submit(std::move(request)));
  }
  static RequestOptions request(uint32_t index) {
    static constexpr size_t lengths[] = {1, 50, 7, 33, 16, 17};
    RequestOptions out;
    out.prompt = prompt(lengths[index % 6], 100 + index / 3);  // three in a row have one beginning
    out.max_tokens = 8 + index;
    out.sampling.top_logprobs = 1;
    out.sampling.temperature = index % 2 ? 0.9 : 0;
    out.sampling.seed = 7 + index;
    if (index == 4) out.samples = 3;
    return out;
  }

  Graph graph_ = fixture_graph(GetParam());
  std::map<std::string, AdapterWeights> weights_;
};

TEST_P(AdapterRequests, CompanyAndPreemptionChangeNothing) {
  const std::string names[] = {"", "a", "p", "b"};
  constexpr uint32_t count = 12;
  std::vector<Answer> expected;
  for (uint32_t i = 0; i < count; ++i) expected.push_back(alone(request(i), names[i % 4]));
  int64_t page = 0;
  const Decoder decoder = recognise(graph_, compile());
  for (const PageGroup& group : decoder.groups)
    page += decoder.pools[static_cast<size_t>(group.pool)].page_bytes(16, DType::f32);
  for (int64_t cache_bytes : {int64_t{8} << 20, page * 9}) {
    EngineOptions options = small_engine();
    options.cache_bytes = cache_bytes;
    auto together = scheduler(2, options);
    std::vector<std::shared_ptr<Request>> running;
    for (uint32_t i = 0; i < count; ++i) {
      RequestOptions one = request(i);
      one.adapter = names[i % 4];
      running.push_back(together->submit(std::move(one)));
    }
    for (uint32_t i = 0; i < count; ++i) {
      const Answer got = collect(*running[i]);
      EXPECT_EQ(got.tokens, expected[i].tokens) << "request " << i;
      EXPECT_EQ(got.logprobs, expected[i].logprobs) << "request " << i << ": the bits of log-probabilities";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, AdapterRequests, testing::Values("llama-standard23", "gemma3-optimum18"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class AdaptersComeAndGo : public AdapterRequests {};

TEST_P(AdaptersComeAndGo, WhatRunsGoesOn) {
  auto one = scheduler(1, small_engine(), {"a"});
  EXPECT_EQ(one->adapters(), std::vector<std::string>{"a"});
  RequestOptions options = request(3);
  options.sampling.temperature = 0;
  const Answer expected = alone(options, "a");
  options.adapter = "a";
  options.host_sampling = true;  // it runs until it is told what comes next
  auto running = one->submit(options);
  ASSERT_TRUE(running->next(hang));
  options.host_sampling = false;
  EXPECT_EQ(error_of([&] { one->add_adapter("a", weights_.at("a")); }).code(), Code::invalid_argument);
  one->remove_adapter("a");
  EXPECT_TRUE(one->adapters().empty());
  const Error gone = error_of([&] { one->submit(options); });
  EXPECT_EQ(gone.code(), Code::not_found);
  EXPECT_NE(gone.message().find("\"a\""), std::string::npos);
  EXPECT_EQ(error_of([&] { one->remove_adapter("a"); }).code(), Code::not_found);
  const Error full = error_of([&] { one->add_adapter("b", weights_.at("b")); });
  EXPECT_EQ(full.code(), Code::overloaded);
  EXPECT_NE(full.message().find("adapter \"b\": all 1 slots"), std::string::npos) << full.message();

  std::vector<int32_t> tokens;
  for (int32_t token : expected.tokens.at(0)) {
    running->push(token);
    auto event = running->next(hang);
    while (event && event->logits.empty() && event->finish == FinishReason::none) event = running->next(hang);
    if (!event || event->logits.empty()) break;
    tokens.push_back(
        static_cast<int32_t>(std::max_element(event->logits.begin(), event->logits.end()) - event->logits.begin()));
  }
  // What its logits choose is what was expected, from the second token on.
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), expected.tokens.at(0).begin() + 1));
  EXPECT_GE(tokens.size() + 1, expected.tokens.at(0).size());
  while (!running->finished()) running->next(hang);
  one->add_adapter("b", weights_.at("b"));  // its slot is free
  // The same name for another adapter: nothing that the first left in the cache is found.
  one->remove_adapter("b");
  one->add_adapter("a", weights_.at("b"));
  EXPECT_EQ(collect(*one->submit(options)).tokens, alone(options, "b").tokens);
}

class OfEachKind : public AdapterRequests {
 protected:
  void conversations_keep(const std::string& name);
  void scores_have(const std::string& name);
};

void OfEachKind::conversations_keep(const std::string& name) {
  auto one = scheduler(3);
  RequestOptions first = request(1);
  first.adapter = name;
  first.keep = true;
  auto begun = one->submit(first);
  const Answer head = collect(*begun);
  std::vector<int32_t> whole = first.prompt;
  whole.insert(whole.end(), head.tokens.at(0).begin(), head.tokens.at(0).end());
  RequestOptions next = request(2), fresh = next;
  fresh.prompt = whole;
  fresh.prompt.insert(fresh.prompt.end(), next.prompt.begin(), next.prompt.end());
  next.parent = begun->conversation();
  EXPECT_EQ(collect(*one->submit(next)).tokens, alone(fresh, name).tokens);
  for (const char* other : {"b", ""}) {  // asked for: the whole is computed anew
    RequestOptions changed = next;
    changed.adapter = other;
    EXPECT_EQ(collect(*one->submit(changed)).tokens, alone(fresh, other).tokens) << "with " << other;
  }
  const std::vector<std::byte> saved = one->save(*begun->conversation());
  one->remove_adapter(name);
  EXPECT_EQ(collect(*one->submit(next)).tokens, alone(fresh, name).tokens) << "a conversation holds its adapter";
  auto elsewhere = scheduler(2, small_engine(), {"b"});
  EXPECT_EQ(error_of([&] { elsewhere->restore(saved); }).code(), Code::not_found);
  elsewhere->add_adapter("again", weights_.at(name));
  next.parent = elsewhere->restore(saved);
  EXPECT_EQ(collect(*elsewhere->submit(next)).tokens, alone(fresh, name).tokens);
}

void OfEachKind::scores_have(const std::string& name) {
  auto one = scheduler(2);
  RequestOptions options = request(3);
  options.kind = RequestOptions::Kind::score;
  options.adapter = name;
  auto scored = one->submit(options);
  collect(*scored);
  Scheduler own(engine_with_capacity(graph_, capacity_for_one(weights_.at(name)), compile()), TokenizerFuture(), {});
  own.add_adapter(name, weights_.at(name));
  auto expected = own.submit(options);
  collect(*expected);
  EXPECT_EQ(scored->take_matrix(), expected->take_matrix());
}

TEST_P(OfEachKind, ConversationsKeepTheirs) {
  for (const char* name : {"a", "p"}) conversations_keep(name);
}
TEST_P(OfEachKind, ScoresHaveThem) {
  for (const char* name : {"a", "p"}) scores_have(name);
}

/// What stands in front of a prompt counts in the context and in the cache.
TEST_P(OfEachKind, APrefixTakesPlaces) {
  EngineOptions options = small_engine();
  options.context = 40;
  auto one = scheduler(2, options);
  RequestOptions request;
  request.prompt = prompt(19, 1);
  request.max_tokens = 100;
  EXPECT_EQ(collect(*one->submit(request)).tokens.at(0).size(), 21u);
  request.adapter = "p";
  EXPECT_EQ(collect(*one->submit(request)).tokens.at(0).size(), 1u) << "of the context 19 are left";
  request.prompt.push_back(5);
  const Error full = error_of([&] { one->submit(request); });
  EXPECT_EQ(full.code(), Code::invalid_argument);
  EXPECT_NE(full.message().find("after a prefix of 21"), std::string::npos) << full.message();
}

INSTANTIATE_TEST_SUITE_P(Fixtures, OfEachKind, testing::Values("llama-standard23", "gemma3-standard23"),
                         [](const auto& info) { return std::string(info.param).substr(0, 5); });

TEST_P(AdaptersComeAndGo, UnknownNamesAndOnesThatDoNotFitAreErrors) {
  auto one = scheduler(2);
  RequestOptions options = request(0);
  options.adapter = "c";
  const Error unknown = error_of([&] { one->submit(options); });
  EXPECT_EQ(unknown.code(), Code::not_found);
  EXPECT_NE(unknown.hint().find("a, b, p"), std::string::npos) << unknown.hint();
  AdapterWeights wrong = weights_.at("a");
  wrong.modules["no.such.layer"] = wrong.modules.begin()->second;
  one->remove_adapter("a");
  const Error misfit = error_of([&] { one->add_adapter("c", wrong); });
  EXPECT_EQ(misfit.code(), Code::invalid_argument);
  for (const char* word : {"adapter \"c\"", "no.such.layer"})
    EXPECT_NE(misfit.message().find(word), std::string::npos) << misfit.message();
  EXPECT_EQ(error_of([&] { one->add_adapter("", weights_.at("a")); }).code(), Code::invalid_argument);
  EXPECT_EQ(one->adapters(), (std::vector<std::string>{"b", "p"}));
  one->add_adapter("a", weights_.at("a"));  // the failures left their slot free
}

INSTANTIATE_TEST_SUITE_P(Fixtures, AdaptersComeAndGo, testing::Values("llama-standard23"),
                         [](const auto&) { return std::string("llama"); });

}  // namespace
}  // namespace plait::test
