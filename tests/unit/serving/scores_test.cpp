// Requests for logits and hidden states instead of tokens.
#include <gtest/gtest.h>

#include "tests/unit/serving/requests.h"
#include "tests/unit/support/machine_load.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

TEST(Scores, AreTheLogitsOfEveryPosition) {
  auto one = scheduler("gemma3-standard23");
  RequestOptions request;
  request.prompt = prompt(40, 3);
  request.kind = RequestOptions::Kind::score;
  auto scored = one->submit(request);
  collect(*scored);
  std::vector<float> matrix = scored->take_matrix();
  auto vocabulary = static_cast<size_t>(one->vocabulary());
  ASSERT_EQ(matrix.size(), 40 * vocabulary);
  for (size_t length : {size_t{1}, size_t{17}, size_t{40}}) {  // row i is what a prompt of i + 1 tokens gives
    RequestOptions hosted;
    hosted.prompt.assign(request.prompt.begin(), request.prompt.begin() + static_cast<std::ptrdiff_t>(length));
    hosted.host_sampling = true;
    auto event = one->submit(hosted)->next(hang);
    ASSERT_TRUE(event);
    EXPECT_TRUE(std::equal(event->logits.begin(), event->logits.end(),
                           matrix.begin() + static_cast<std::ptrdiff_t>((length - 1) * vocabulary)));
  }
}

TEST(Scores, StartAgainWhenPreempted) {
  RequestOptions score;
  score.prompt = prompt(60, 3);
  score.kind = RequestOptions::Kind::score;
  auto wide = scheduler("llama-standard23");
  auto alone = wide->submit(score);
  collect(*alone);
  EngineOptions options = small_engine();
  options.cache_bytes =
      fixture_engine("llama-standard23", options)->decoder().pools[0].page_bytes(16, DType::f32) * 5;
  auto one = scheduler("llama-standard23", options);
  const std::vector<float> expected = alone->take_matrix();
  for (int tries = 0; tries < 50 && one->stats().preempted == 0; ++tries) {
    std::vector<std::shared_ptr<Request>> others;
    for (uint32_t i = 0; i < 2; ++i) {
      RequestOptions request;
      request.prompt = prompt(8, i);
      request.max_tokens = 50;
      request.sampling.logit_bias = {{0, -1000.0f}};
      others.push_back(one->submit(std::move(request)));
    }
    auto scored = one->submit(score);
    for (auto& request : others) collect(*request);
    collect(*scored);
    EXPECT_EQ(scored->take_matrix(), expected);
  }
  EXPECT_GT(one->stats().preempted, 0);
}

TEST(Embeddings, AreTheHiddenStates) {
  auto one = scheduler("llama-dynamo23");
  RequestOptions request;
  request.prompt = prompt(30, 3);
  request.kind = RequestOptions::Kind::embed;
  auto first = one->submit(request);
  collect(*first);
  std::vector<float> matrix = first->take_matrix();
  EXPECT_EQ(matrix.size(), 30u * static_cast<size_t>(one->decoder().hidden));
  request.prompt.resize(12);
  auto shorter = one->submit(request);
  collect(*shorter);
  std::vector<float> head = shorter->take_matrix();
  EXPECT_TRUE(std::equal(head.begin(), head.end(), matrix.begin()));
}

}  // namespace
}  // namespace plait::test
