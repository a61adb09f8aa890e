// Log-probabilities of a prompt's tokens: those of the matrix that the kind "score" gives, without the matrix.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/serving/requests.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

RequestOptions scored(std::vector<int32_t> prompt, int32_t top = 3) {
  RequestOptions out;
  out.prompt = std::move(prompt);
  out.max_tokens = 6;
  out.prompt_logprobs = top;
  return out;
}

/// The events of the prompt, which have to come before all others; `rest` gets those.
std::vector<SampledToken> prompt_events(Request& request, Answer* rest = nullptr) {
  std::vector<SampledToken> out;
  Answer others;
  while (!request.finished()) {
    auto event = request.next(hang);
    if (!event) break;
    if (event->of_prompt) {
      EXPECT_TRUE(others.tokens.empty());
      EXPECT_EQ(event->sample, 0);
      EXPECT_EQ(event->finish, FinishReason::none);
      out.push_back(event->token);
      continue;
    }
    if (event->has_token) others.tokens[event->sample].push_back(event->token.id);
    if (event->finish != FinishReason::none) others.finish[event->sample] = event->finish;
  }
  if (rest) *rest = others;
  return out;
}

std::vector<float> matrix_of(Scheduler& scheduler, const std::vector<int32_t>& prompt) {
  RequestOptions options;
  options.prompt = prompt;
  options.kind = RequestOptions::Kind::score;
  auto request = scheduler.submit(options);
  collect(*request);
  return request->take_matrix();
}

double log_softmax(std::span<const float> row, int32_t id) {
  double sum = 0;
  for (float logit : row) sum += std::exp(static_cast<double>(logit));
  return row[static_cast<size_t>(id)] - std::log(sum);
}

/// float: what an event has; the rows are the same bits.
constexpr double rounding = 1e-5;

void expect_those_of(std::span<const float> matrix, std::span<const int32_t> prompt,
                     std::span<const SampledToken> got) {
  ASSERT_EQ(got.size(), prompt.size());
  EXPECT_TRUE(std::isnan(got[0].logprob));
  EXPECT_TRUE(got[0].top.empty());
  const size_t vocabulary = matrix.size() / prompt.size();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].id, prompt[i]);
    if (i == 0) continue;
    const std::span<const float> row = matrix.subspan((i - 1) * vocabulary, vocabulary);
    EXPECT_NEAR(got[i].logprob, log_softmax(row, got[i].id), rounding) << i;
    for (const auto& [id, logprob] : got[i].top) EXPECT_NEAR(logprob, log_softmax(row, id), rounding) << i;
    const auto likeliest = static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    EXPECT_EQ(got[i].top.at(0).first, likeliest);
  }
}

TEST(PromptLogprobs, AreTheLogSoftmaxOfScores) {
  for (const char* model : {"gemma3-standard23", "llama-standard23"}) {
    auto one = scheduler(model);
    for (const size_t length : {1, 2, 16, 33, 150}) {  // a step has at most 64 rows
      const std::vector<int32_t> ids = prompt(length, 3);
      Answer with, without;
      const auto got = prompt_events(*one->submit(scored(ids)), &with);
      expect_those_of(matrix_of(*one, ids), ids, got);
      RequestOptions plain = scored(ids, -1);
      EXPECT_TRUE(prompt_events(*one->submit(plain), &without).empty());
      EXPECT_EQ(with, without) << "what follows the prompt";
    }
  }
}

TEST(PromptLogprobs, ComeWithEmptyOutputsAndWithSeveral) {
  auto one = scheduler("gemma3-standard23");
  const std::vector<int32_t> ids = prompt(40, 5);
  const std::vector<float> matrix = matrix_of(*one, ids);
  RequestOptions none = scored(ids), several = scored(ids);
  none.max_tokens = 0;
  several.samples = 3;
  several.sampling.temperature = 1;
  several.sampling.seed = 4;
  Answer rest;
  expect_those_of(matrix, ids, prompt_events(*one->submit(none), &rest));
  EXPECT_TRUE(rest.tokens.empty());
  auto request = one->submit(several);
  expect_those_of(matrix, ids, prompt_events(*request, &rest));
  EXPECT_EQ(request->usage().new_tokens, 18);
  Answer plain;
  several.prompt_logprobs = -1;
  prompt_events(*one->submit(several), &plain);
  EXPECT_EQ(rest, plain);
}

/// Of a conversation all tokens are told, also those that it has in the cache.
TEST(PromptLogprobs, OfAContinuedConversation) {
  auto one = scheduler("gemma3-standard23");
  RequestOptions first = scored(prompt(20, 1), -1);
  first.keep = true;
  auto begun = one->submit(first);
  const Answer answer = collect(*begun);
  RequestOptions next = scored(prompt(9, 2));
  next.parent = begun->conversation();
  std::vector<int32_t> whole = first.prompt;
  whole.insert(whole.end(), answer.tokens.at(0).begin(), answer.tokens.at(0).end());
  whole.insert(whole.end(), next.prompt.begin(), next.prompt.end());
  expect_those_of(matrix_of(*one, whole), whole, prompt_events(*one->submit(next)));
}

TEST(PromptLogprobs, GoOnAfterPreemption) {
  const std::vector<int32_t> ids = prompt(60, 3);
  auto wide = scheduler("llama-standard23");
  const std::vector<float> matrix = matrix_of(*wide, ids);
  EngineOptions options = small_engine();
  options.step_tokens = 16;  // so that a prompt takes several steps
  options.cache_bytes =
      fixture_engine("llama-standard23", options)->decoder().pools[0].page_bytes(16, DType::f32) * 5;
  auto one = scheduler("llama-standard23", options);
  for (int tries = 0; tries < 50 && one->stats().preempted == 0; ++tries) {
    std::vector<std::shared_ptr<Request>> others;
    for (uint32_t i = 0; i < 2; ++i) {
      RequestOptions request;
      request.prompt = prompt(8, i);
      request.max_tokens = 50;
      request.sampling.logit_bias = {{0, -1000.0f}};
      others.push_back(one->submit(std::move(request)));
    }
    auto request = one->submit(scored(ids));
    for (auto& other : others) collect(*other);
    expect_those_of(matrix, ids, prompt_events(*request));
  }
  EXPECT_GT(one->stats().preempted, 0);
}

}  // namespace
}  // namespace plait::test
