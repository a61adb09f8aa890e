// Every kind of training in pipeline stages is that kind on one rank.
#include "core/schedule/schedules.h"
#include "tests/unit/train/pipeline/deep_decoder.h"

namespace plait::test {
namespace {

/// A graph and its outcome on one rank. What all of a row's scores have in common, as a bias of keys, has a gradient of
/// rounding only, which AdamW and Adafactor make large: they train models without.
struct OneRank {
  OneRank(Graph of, const TrainingOptions& with, DType in = DType::f64)
      : graph(std::move(of)), options(with), dtype(in) {
    expected = run(graph, "", options, nullptr, dtype);
    if (dtype == DType::f64) tolerance = in_f64;
  }
  OneRank(const std::string& fixture, const TrainingOptions& with, DType in = DType::f64)
      : OneRank(fixture_graph(fixture), with, in) {}

  void expect_on(const std::string& mesh, const std::string& schedule, int zero = 0,
                 const std::vector<std::string>& seeds = {}) const {
    SCOPED_TRACE(cat(mesh, " ", schedule, " zero ", zero));
    TrainingOptions own = options;
    own.pipeline.schedule = schedule;
    own.zero = zero;
    expect_same(run(graph, mesh, own, nullptr, dtype, seeds), expected, tolerance);
  }

  Graph graph;
  TrainingOptions options;
  DType dtype;
  Tolerance tolerance = {};
  Outcome expected;
};

/// Eight units are stages for any schedule: the embedding, six layers, the head.
TEST(PipelineKinds, EveryScheduleOfFourRanks) {
  const OneRank one(deep_graph(6), training(OptimizerKind::sgd, 0));
  for (const ScheduleRow& row : schedule_rows())
    if (!row.asynchronous) one.expect_on("pipeline=4", std::string(row.name));
}

TEST(PipelineKinds, StagesOfSeveralRanks) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.pipeline.seats = "2:1";
  OneRank("llama-untied-optimum18", options).expect_on("pipeline=3", "1f1b");
  OneRank("gpt2-optimum18", options).expect_on("pipeline=3", "1f1b");
}

TEST(PipelineKinds, ThreeAxesAndZero) {
  const OneRank one("llama-standard23", training(OptimizerKind::adamw, 0));
  for (int zero = 1; zero <= 3; ++zero) one.expect_on("pipeline=2,data=2,tensor=2", "1f1b", zero);
  for (int zero = 1; zero <= 3; zero += 2) one.expect_on("pipeline=2,data=2", "chimera", zero);
  const OneRank tied("gpt2-optimum18", training(OptimizerKind::sgd, 0));
  for (int zero = 1; zero <= 3; ++zero) tied.expect_on("pipeline=2,data=2", "zb-h1", zero);
}

/// Tokens are sharded between products, also where they cross.
TEST(PipelineKinds, SequenceParallel) {
  const OneRank one("llama-standard23", training(OptimizerKind::sgd, 0));
  CompileOptions compile = on("pipeline=2,tensor=2");
  compile.stages.seats = {{0}, {1}};
  const auto crossing = [&](std::vector<std::string> seeds) {
    compile.seeds = std::move(seeds);
    const TrainingModel model =
        compile_training(fixture_graph("llama-standard23"), compile, training(OptimizerKind::sgd, 0));
    const StageSection& first = model.sections.at(TrainingProgram::accumulate).front();
    const std::vector<int64_t> sizes(static_cast<size_t>(first.program->symbols.size()),
                                     row_tokens / model.token_multiple);
    int64_t all = 0;
    for (const int32_t value : first.gives.at(0).values) {
      int64_t elements = 1;
      const auto output = static_cast<size_t>(first.program->outputs[static_cast<size_t>(value)]);
      for (const Dim& dim : first.program->buffers[output].dims) elements *= dim.evaluate(sizes);
      all += elements;
    }
    return all;
  };
  EXPECT_EQ(2 * crossing({"sequence"}), crossing({}));
  one.expect_on("pipeline=2,tensor=2", "1f1b", 0, {"sequence"});
  one.expect_on("pipeline=2,data=2,tensor=2", "zb-h1", 2, {"sequence"});
}

TEST(PipelineKinds, Adafactor) {
  const OneRank one("llama-standard23", training(OptimizerKind::adafactor, 0));
  one.expect_on("pipeline=2", "1f1b");
  one.expect_on("pipeline=2,tensor=2", "zb-v");
  one.expect_on("pipeline=2,data=2", "chimera", 1);
}

TEST(PipelineKinds, Prefixes) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.prefix.tokens = 3;
  for (const char* fixture : {"llama-standard23", "gemma3-standard23"}) {
    SCOPED_TRACE(fixture);
    const OneRank one(fixture, options, DType::none);  // prefixes are trained in f32
    one.expect_on("pipeline=2", "1f1b");
    one.expect_on("pipeline=2,data=2", "zb-h1");
    one.expect_on("pipeline=2,tensor=2", "chimera");
  }
}

TEST(PipelineKinds, AdaptersOfQuantisedWeights) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.lora.rank = 4;
  for (const char* fixture : {"zoo/gemma2/genai_int4", "zoo/qwen3/q_int4_qdq"}) {
    SCOPED_TRACE(fixture);
    const OneRank one(fixture, options);
    one.expect_on("pipeline=2", "1f1b");
    one.expect_on("pipeline=2,tensor=2", "zb-h1");
  }
}

TEST(PipelineKinds, Experts) {
  const OneRank one("zoo/mixtral/dynamo18", training(OptimizerKind::sgd, 0));
  one.expect_on("pipeline=2", "zb-h1");
  one.expect_on("pipeline=2,data=2", "1f1b", 0, {"expert_data"});
  one.expect_on("pipeline=2,data=2", "interleaved:2", 3, {"expert_data"});
}

TEST(PipelineKinds, ConvolutionsNextToAttention) {
  const OneRank one("zoo/lfm2/genai_fp32", training(OptimizerKind::sgd, 0));
  one.expect_on("pipeline=2", "1f1b");
  one.expect_on("pipeline=2", "zb-v");
  one.expect_on("pipeline=2,data=2", "zb-h1", 2);
}

/// Later layers read keys and values of earlier ones, and each layer its part of an embedding.
TEST(PipelineKinds, KeysThatLayersShare) {
  OneRank one(import_file(PLAIT_FIXTURES "/zoo/gemma4/hf5/decode.onnx", World::get().ops).graph,
              training(OptimizerKind::sgd, 0));
  one.tolerance = {1e-10, 1e-10, 1e-10, 1e-10};  // its steps are long: rounding grows
  one.expect_on("pipeline=2", "1f1b");
  one.expect_on("pipeline=4", "zb-h1");
}

/// bf16 rounds what it rounds on one rank: the same bits of the same micro-batches.
TEST(PipelineKinds, HalfPrecision) {
  TrainingOptions options = training(OptimizerKind::adamw, 0);
  options.pipeline.micro_batches = 8;
  const Outcome expected = run("llama-untied-optimum18", "", options, nullptr, DType::bf16);
  for (const char* schedule : {"1f1b", "zb-v"}) {
    SCOPED_TRACE(schedule);
    options.pipeline.schedule = schedule;
    const Outcome got = run("llama-untied-optimum18", "pipeline=2", options, nullptr, DType::bf16);
    EXPECT_EQ(got.losses, expected.losses);
    expect_equal_updates(got, expected);
  }
}

}  // namespace
}  // namespace plait::test
