// The scheduler on an engine of several ranks keeps its promise: what a request gives does not depend on its company.
#include <gtest/gtest.h>

#include <cmath>

#include "serving/scheduler.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

using namespace std::chrono_literals;

using Tokens = std::vector<std::pair<int32_t, float>>;  // ids, and their log probabilities

class OnMesh : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Scheduler> scheduler(int64_t cache_bytes = 8 << 20) const {
    CompileOptions compile = World::get().options(DType::f32);
    compile.mesh = Mesh::parse(GetParam());
    EngineOptions options = small_engine();
    options.threads = 1;
    options.cache_bytes = cache_bytes;
    return std::make_unique<Scheduler>(make_engine(graph_, compile, options), TokenizerFuture(), SchedulerOptions());
  }

  /// Long and short ones, greedy and sampled.
  static RequestOptions request(uint32_t index) {
    static constexpr size_t lengths[] = {1, 50, 7, 33, 16, 17};
    RequestOptions out;
    for (size_t i = 0; i < lengths[index % 6]; ++i)
      out.prompt.push_back(static_cast<int32_t>((i * 7919 + index * 31) % 500) + 3);
    out.max_tokens = 8 + 2 * index;
    out.sampling.top_logprobs = 1;
    out.sampling.temperature = index % 2 ? 0.9 : 0;
    out.sampling.seed = 7 + index;
    out.prompt_logprobs = index % 3 ? -1 : 1;
    return out;
  }

  static Tokens collect(Request& request) {
    Tokens out;
    while (!request.finished()) {
      auto event = request.next(hang);
      if (!event) break;
      if (!event->has_token) continue;
      const float logprob = event->token.logprob;
      out.emplace_back(event->token.id, std::isnan(logprob) ? 1 : logprob);  // a prompt's first token has none
    }
    return out;
  }

  static constexpr uint32_t count = 6;
  Graph graph_ = fixture_graph("llama-standard23");
};

TEST_P(OnMesh, CompanyAndPreemptionChangeNothing) {
  std::vector<Tokens> expected;
  {
    auto one = scheduler();
    for (uint32_t i = 0; i < count; ++i) expected.push_back(collect(*one->submit(request(i))));
  }
  const int64_t page = recognise(graph_, World::get().options(DType::f32)).pools[0].page_bytes(16, DType::f32);
  const int64_t replicas = Mesh::parse(GetParam()).blocks(Mesh::parse(GetParam()).parts("data"));
  for (int64_t cache_bytes : {int64_t{8} << 20, replicas * page * 6}) {
    auto together = scheduler(cache_bytes);
    std::vector<std::shared_ptr<Request>> running;
    for (uint32_t i = 0; i < count; ++i) running.push_back(together->submit(request(i)));
    for (uint32_t i = 0; i < count; ++i) EXPECT_EQ(collect(*running[i]), expected[i]) << "request " << i;
  }
}

TEST_P(OnMesh, OthersGoOnWhenRequestsAreCancelled) {
  auto one = scheduler();
  const Tokens expected = collect(*one->submit(request(4)));
  for (int round = 0; round < 5; ++round) {
    RequestOptions endless = request(1);
    endless.max_tokens = 10000;
    auto cancelled = one->submit(endless), dropped = one->submit(endless), kept = one->submit(request(4));
    ASSERT_TRUE(cancelled->next(hang));
    cancelled->cancel();
    dropped.reset();
    EXPECT_EQ(collect(*kept), expected);
    collect(*cancelled);
    EXPECT_TRUE(cancelled->finished());
  }
}

/// The scheduler ends in the middle of steps.
TEST_P(OnMesh, EndsWhileRequestsRun) {
  auto one = scheduler();
  std::vector<std::shared_ptr<Request>> running;
  for (uint32_t i = 0; i < count; ++i) {
    running.push_back(one->submit(request(i)));
    running.back()->next(hang);
  }
  one.reset();
  for (auto& request : running) try {
      collect(*request);
    } catch (const Error& error) {
      EXPECT_NE(error.code(), Code::internal) << error.message();
    }
}

INSTANTIATE_TEST_SUITE_P(All, OnMesh,
                         testing::Values("tensor=2", "data=2", "data=2,tensor=2", "pipeline=2", "pipeline=3",
                                         "pipeline=2,tensor=2", "data=2,pipeline=2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace_if(
                               name.begin(), name.end(), [](char letter) { return !std::isalnum(letter); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace plait::test
