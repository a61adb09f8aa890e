// Expert parallel: experts that are sharded over `data` learn what they learn on one rank, and each rank has only
// its own.
#include <filesystem>

#include "core/train/data/document_encoder.h"
#include "core/train/trainer.h"
#include "tests/unit/train/runs.h"
#include "tests/unit/train/train_test.h"

namespace plait::test {
namespace {

using Texts = std::vector<std::string>;

const Texts given_out{"expert_data"};
constexpr const char* mixtral = "zoo/mixtral/dynamo18";

CompileOptions given_out_on(const std::string& mesh, const Texts& seeds = given_out) {
  CompileOptions out = World::get().options();
  out.mesh = Mesh::parse(mesh);
  out.seeds = seeds;
  return out;
}

struct ExpertCase {
  std::string fixture, mesh;
  std::vector<int> levels = {0, 1, 2, 3};
  Texts seeds = given_out;
};

class ExpertParallel : public testing::TestWithParam<ExpertCase> {};

TEST_P(ExpertParallel, IsTrainingOnOneRank) {
  const ExpertCase& one = GetParam();
  const Outcome expected = run(one.fixture, "", training(OptimizerKind::sgd, 0));
  for (int zero : one.levels) {
    SCOPED_TRACE(cat("zero ", zero));
    const TrainingOptions options = training(OptimizerKind::sgd, zero);
    expect_same(run(one.fixture, one.mesh, options, nullptr, DType::none, one.seeds), expected);
  }
}

std::vector<ExpertCase> expert_cases() {
  std::vector<ExpertCase> out;
  for (const char* mesh : {"data=2", "data=4", "data=2,tensor=2"}) out.push_back({mixtral, mesh});
  // Cut by both axes; by a part of one, so that experts' gradients owe a sum along the other.
  out.push_back({mixtral, "data=2,tensor=2", {0, 3}, {"expert", "expert_data"}});
  out.push_back({mixtral, "data=4", {0, 3}, {"val_*=[data.1, -, -]"}});
  // Products that are not of experts may be shared out, too.
  out.push_back({"llama-standard23",
                 "data=2",
                 {0, 3},
                 {"*.gate_proj.*=[data, -]", "*.up_proj.*=[data, -]", "*.down_proj.*=[-, data]"}});
  // Experts next to one that all take, packed halves, biases and limits, halves in turns, a router with groups.
  for (const char* fixture : {"zoo/qwen2_moe/dynamo18", "zoo/qwen3_moe/optimum18", "zoo/granitemoe/dynamo18",
                              "zoo/gpt_oss/dynamo18", "zoo/gpt_oss_fused/genai_fp32", "zoo/deepseek_v3/optimum18"})
    out.push_back({fixture, "data=2,tensor=2", {0, 3}});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Meshes, ExpertParallel, testing::ValuesIn(expert_cases()), [](const auto& info) {
  std::string out = cat(info.index, "_", info.param.fixture, "_", info.param.mesh);
  for (char& letter : out)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return out;
});

TEST(ExpertParallel, IsTheSameInDoublePrecision) {
  const Outcome expected = run(mixtral, "", training(OptimizerKind::adamw, 0), nullptr, DType::f64);
  for (const char* mesh : {"data=2", "data=4", "data=2,tensor=2"})
    for (int zero = 0; zero < 4; ++zero) {
      SCOPED_TRACE(cat(mesh, " zero ", zero));
      const TrainingOptions options = training(OptimizerKind::adamw, zero);
      expect_same(run(mixtral, mesh, options, nullptr, DType::f64, given_out), expected, in_f64);
    }
}

/// A quarter of the weights of experts, of their gradients' sums and of what the optimizer keeps of them, at each
/// level.
TEST(ExpertParallel, EachRankHasItsOwnAlone) {
  ThreadPool pool(2);
  for (int zero = 0; zero < 4; ++zero) {
    SCOPED_TRACE(cat("zero ", zero));
    const TrainingEngine engine(fixture_graph(mixtral), given_out_on("data=4"), training(OptimizerKind::adamw, zero),
                                pool);
    int stacks = 0;
    for (const TrainedParameter& one : engine.parameters()) {
      if (one.shape.rank() != 3) continue;
      ++stacks;
      for (const char* what : {"", ".gradient", ".first", ".second"})
        for (int64_t local = 0; local < 4; ++local) {
          const ArrayBlock block = engine.block(local, one.key + what);
          EXPECT_EQ(block.whole, one.shape);
          EXPECT_EQ(block.part.shape[0] * 4, one.shape[0]);
          EXPECT_EQ(block.part.elements() * 4, one.shape.elements());
          EXPECT_EQ(block.begin[0], block.part.shape[0] * local);
        }
      EXPECT_FALSE(engine.model().places.contains(one.key + ".reduced")) << "there is nothing to be summed";
    }
    EXPECT_EQ(stacks, 6);
  }
}

/// Of a layer: who chose which expert, with which shares, and x; what experts made; and the same backwards, but for
/// what is known.
TEST(ExpertParallel, SaysSoMuchForALayer) {
  constexpr int64_t tokens = 4096, hidden = 48, choices = 2, ranks = 4;
  TrainingOptions options = training(OptimizerKind::adamw, 0);
  options.row_tokens = tokens;
  std::map<std::string, int> counts;
  double bytes = 0;
  const ShardPlan plan = compile_training(fixture_graph(mixtral), given_out_on("data=4"), options).plan;
  for (const PlannedCollective& one : plan.collectives)
    if (one.for_node != "the output") ++counts[std::string(kind_name(one.step.kind))], bytes += one.bytes;
  constexpr int layers = 2;
  EXPECT_EQ(counts, (std::map<std::string, int>{{"all_gather", 4 * layers}, {"reduce_scatter", 3 * layers}}));
  // x, y, dx and dy; shares and their gradients; numbers of 64 bits.
  EXPECT_EQ(bytes, layers * (ranks - 1) * tokens * (4 * 4 * hidden + 2 * 4 * choices + 8 * choices));
}

/// Those of the 17 other parameters as ever (`ZeroLevels.Collectives`) next to those of tokens. The experts' part of
/// the norm is one number more, where else the others' are told anyway.
TEST(ExpertParallel, NoLevelOfZeroSaysAnythingOfExperts) {
  std::string all;
  for (int zero = 0; zero < 4; ++zero) {
    TrainingOptions options = training(OptimizerKind::adamw, zero);
    options.bucket_bytes = 0;
    options.row_tokens = 4096;
    const TrainingModel model = compile_training(fixture_graph(mixtral), given_out_on("data=4"), options);
    all += cat("zero ", zero, ": micro-batch: ", collectives(model.program(TrainingProgram::accumulate)),
               "; norm: ", collectives(model.program(TrainingProgram::norm)),
               "; update: ", collectives(model.program(TrainingProgram::update)), "\n");
  }
  EXPECT_EQ(
      all,
      "zero 0: micro-batch: AllGather 8, AllReduce 1, ReduceScatter 6; norm: AllReduce 18; update: \n"
      "zero 1: micro-batch: AllGather 8, AllReduce 1, ReduceScatter 6; norm: AllReduce 1, ReduceScatter 17; "
      "update: AllGather 17\n"
      "zero 2: micro-batch: AllGather 8, AllReduce 1, ReduceScatter 23; norm: AllReduce 1; update: AllGather 17\n"
      "zero 3: micro-batch: AllGather 41, AllReduce 1, ReduceScatter 23; norm: AllReduce 1; update: \n");
}

/// Experts that adapters leave as they are, whole or quantised: ranks have only their own, for any size of a step.
TEST(ExpertParallel, OfExpertsThatAreNotTrained) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.lora.rank = 4;
  for (const char* fixture : {mixtral, "zoo/qwen3_moe/q_int4", "zoo/gpt_oss_fused/q_experts"}) {
    SCOPED_TRACE(fixture);
    expect_same(run(fixture, "data=2", options, nullptr, DType::none, given_out), run(fixture, "", options));
    TrainingOptions large = options;
    large.row_tokens = 1 << 16;
    const Graph graph = fixture_graph(fixture);
    const ShardPlan plan = compile_training(graph, given_out_on("data=2"), large).plan;
    EXPECT_TRUE(plan.copies.empty());
    EXPECT_GE(std::count_if(plan.weights.begin(), plan.weights.end(),
                            [](const auto& one) { return !one.second.dims.empty() && !one.second.dims[0].empty(); }),
              4);
  }
}

TEST(ExpertParallel, OfOtherWaysToTrain) {
  TrainingOptions options = training(OptimizerKind::sgd, 1);
  const Outcome expected = run(mixtral, "", options),
                given = run(mixtral, "data=2", options, nullptr, DType::none, given_out);
  options.recompute = Recompute::full;
  expect_equal(run(mixtral, "data=2", options, nullptr, DType::none, given_out), given);
  options.host_loss = true;
  expect_same(run(mixtral, "data=2", options, nullptr, DType::none, given_out), expected);
  expect_same(run(mixtral, "data=2", training(OptimizerKind::adafactor, 3), nullptr, DType::none, given_out),
              run(mixtral, "", training(OptimizerKind::adafactor, 0)));
}

/// What experts were saved on is no matter: a checkpoint has them whole.
TEST(ExpertParallel, CheckpointsAreOfAnyMesh) {
  Folder folder;
  ThreadPool pool(2);
  std::vector<Document> documents;
  for (const auto& ids : test::documents()) documents.push_back({ids, {}});
  auto trainer = [&](const CompileOptions& compile, int zero, const std::string& directory, bool resume) {
    TrainerOptions out;
    out.training = training(OptimizerKind::adamw, zero);
    out.rate = {.peak = 1e-3};
    out.steps = 3;
    out.batch = 4;
    out.directory = directory;
    out.resume = resume;
    return std::make_unique<Trainer>(fixture_graph(mixtral), compile, std::move(out),
                                     Dataset::of(documents, {.seq = 40}), std::nullopt, pool);
  };
  const auto straight = trainer(given_out_on("", {}), 0, "", false);
  straight->step();
  const double expected = straight->step()->loss;
  const auto first = trainer(given_out_on("data=2"), 1, folder.path("run"), false);
  first->step();
  first->save();
  const std::tuple<const char*, Texts, int> others[] = {
      {"", {}, 0}, {"tensor=2", {"expert"}, 0}, {"data=4", given_out, 3}};
  for (const auto& [mesh, seeds, zero] : others) {
    SCOPED_TRACE(mesh);
    const std::string copy = folder.path(cat("copy", mesh));
    std::filesystem::copy(folder.path("run"), copy, std::filesystem::copy_options::recursive);
    EXPECT_NEAR(trainer(given_out_on(mesh, seeds), zero, copy, true)->step()->loss, expected, 1e-5 * expected);
  }
}

/// Ranks that are processes: mpirun starts this one, with 2 or 4 of them.
TEST(ExpertParallel, OfProcesses) {
  plait::World* const world = processes();
  if (!world) GTEST_SKIP() << "only under mpirun";
  const Texts meshes = world->size() == 2 ? Texts{"data=2"} : Texts{"data=4", "data=2,tensor=2"};
  const Outcome expected = run(mixtral, "", training(OptimizerKind::sgd, 0));
  for (const std::string& mesh : meshes)
    for (int zero = 0; zero < 4; ++zero) {
      SCOPED_TRACE(cat(mesh, " zero ", zero));
      const Outcome got = run(mixtral, mesh, training(OptimizerKind::sgd, zero), world, DType::none, given_out);
      if (world->rank() == 0) expect_same(got, expected);
    }
}

TEST(ExpertParallel, NeedsExpertsAndAnAxis) {
  for (const auto& [fixture, mesh] :
       {std::pair{"llama-standard23", "data=2"}, {mixtral, "tensor=2"}, {mixtral, "data=3"}}) {
    ThreadPool pool(2);
    const Error error = error_of([&, fixture = fixture, mesh = mesh] {
      TrainingEngine(fixture_graph(fixture), given_out_on(mesh), training(OptimizerKind::sgd, 0), pool);
    });
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find(cat("shard no weight on the mesh \"", mesh)), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace plait::test
