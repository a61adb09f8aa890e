// Expert parallel: experts over the ranks along `data` train as on one rank, and each rank has its own alone.
#include "core/base/error.h"
#include "tests/unit/train/runs.h"

namespace plait::test {
namespace {

TEST(ExpertParallel, Try) {
  for (const char* fixture : {"zoo/mixtral/dynamo18", "zoo/qwen3_moe/optimum18", "zoo/qwen2_moe/dynamo18", "zoo/granitemoe/dynamo18", "zoo/gpt_oss/dynamo18", "zoo/gpt_oss/optimum18", "zoo/gpt_oss_fused/dynamo18", "zoo/gpt_oss_fused/genai_fp32", "zoo/lfm2_moe/hf5", "zoo/deepseek_v3/optimum18"}) {
    const Outcome expected = run(fixture, "", training(OptimizerKind::sgd, 0));
    for (const char* mesh : {"data=2", "data=4", "data=2,tensor=2"})
      for (int zero = 0; zero < 4; ++zero) {
        SCOPED_TRACE(cat(fixture, " ", mesh, " zero ", zero));
        try {
          Outcome plain = run(fixture, mesh, training(OptimizerKind::sgd, zero));
          Outcome got = run(fixture, mesh, training(OptimizerKind::sgd, zero), nullptr, DType::none, {"expert_data"});
          expect_same(got, expected);
          std::printf("%s %s %d: %ld -> %ld, arena %ld -> %ld\n", fixture, mesh, zero, (long)plain.state_bytes, (long)got.state_bytes, (long)plain.run_bytes, (long)got.run_bytes);
        } catch (const Error& error) {
          ADD_FAILURE() << error.message() << " | " << error.hint();
        }
      }
  }
}

}  // namespace
}  // namespace plait::test
