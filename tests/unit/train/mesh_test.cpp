// Training on several ranks is training on one: for every family, mesh and level of ZeRO the losses, the norm of the
// gradients and what the weights become.
#include <cstring>
#include <filesystem>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/schedule/schedule.h"
#include "tests/unit/train/runs.h"

namespace plait::test {
namespace {

std::vector<std::string> variants_of(const std::string& family) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(PLAIT_FIXTURES "/zoo/" + family))
    if (std::filesystem::exists(entry.path() / "model.onnx"))
      out.push_back("zoo/" + family + "/" + entry.path().filename().string());
  return out;
}

struct Case {
  std::string fixture, mesh;
};

class MeshTraining : public testing::TestWithParam<Case> {};

TEST_P(MeshTraining, IsTrainingOnOneRank) {
  const auto& [fixture, mesh] = GetParam();
  const Outcome expected = run(fixture, "", training(OptimizerKind::sgd, 0));
  for (int zero = 0; zero < 4; ++zero) {
    SCOPED_TRACE(zero);
    expect_same(run(fixture, mesh, training(OptimizerKind::sgd, zero)), expected);
  }
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const char* fixture : {"llama-standard23", "gpt2-optimum18", "gemma3-standard23"})
    for (const char* mesh : {"data=2", "data=4", "tensor=2", "data=2,tensor=2"}) out.push_back({fixture, mesh});
  // Sinks, experts (as nodes and stacked), layer norms before heads, positions as biases.
  for (const char* family :
       {"gpt_oss", "mixtral", "qwen3_moe", "granitemoe", "mpt", "bloom", "deepseek_v3", "phi", "gptj"})
    for (const std::string& variant : variants_of(family))
      if (variant.find("int4") == std::string::npos && variant.find("nocache") == std::string::npos)
        out.push_back({variant, "data=2,tensor=2"});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshTraining, testing::ValuesIn(cases()), [](const auto& info) {
  std::string out = info.param.fixture + "_" + info.param.mesh;
  for (char& letter : out)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return out;
});

/// In f64 nothing is left of rounding, so what differs by more than 1e-10 would be wrong.
void expect_equality_in_f64(const std::string& mesh, plait::World* world) {
  const Outcome expected = run("llama-standard23", "", training(OptimizerKind::adamw, 0), nullptr, DType::f64);
  for (int zero = 0; zero < 4; ++zero) {
    SCOPED_TRACE(cat(mesh, " zero ", zero));
    const Outcome got = run("llama-standard23", mesh, training(OptimizerKind::adamw, zero), world, DType::f64);
    if (!world || world->rank() == 0) expect_same(got, expected, in_f64);
  }
}

TEST(MeshTraining, IsTheSameInDoublePrecision) {
  for (const char* mesh : {"data=2", "data=4", "tensor=2", "data=2,tensor=2"}) expect_equality_in_f64(mesh, nullptr);
  const Outcome wide = run("llama-standard23", "", training(OptimizerKind::sgd, 0), nullptr, DType::f64);
  expect_same(run("llama-standard23", "", training(OptimizerKind::sgd, 0)), wide);
}

/// Tokens are sharded over tensor ranks between products (Korthikanti et al. 2022): rows are padded to what the ranks can share.
TEST(MeshTraining, WithShardedTokens) {
  const std::vector<std::string> seeds{"sequence"};
  const Outcome expected = run("llama-standard23", "", training(OptimizerKind::adamw, 0), nullptr, DType::f64);
  for (const char* mesh : {"tensor=2", "tensor=4", "data=2,tensor=2"})
    for (int zero : {0, 2, 3}) {
      if (zero && !std::strchr(mesh, ',')) continue;
      SCOPED_TRACE(cat(mesh, " zero ", zero));
      const TrainingOptions options = training(OptimizerKind::adamw, zero);
      expect_same(run("llama-standard23", mesh, options, nullptr, DType::f64, seeds), expected, in_f64);
    }
  for (const char* fixture : {"gpt2-optimum18", "gemma3-standard23", "zoo/mixtral/dynamo18", "zoo/lfm2/genai_fp32"}) {
    SCOPED_TRACE(fixture);
    TrainingOptions options = training(OptimizerKind::sgd, 0);
    const Outcome one = run(fixture, "", options);
    for (const Recompute how : {Recompute::off, Recompute::full}) {
      options.recompute = how;
      expect_same(run(fixture, "tensor=2", options, nullptr, DType::none, seeds), one);
    }
  }
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  const Outcome one = run("llama-standard23", "", options);
  options.host_loss = true;
  expect_same(run("llama-standard23", "data=2,tensor=2", options, nullptr, DType::none, seeds), one);
}

/// Sums over tensor ranks are reduced into parts of the tokens, and gathered. (What that saves: StageCosts.ShardedTokensDivideWhatIsKept.)
TEST(MeshTraining, SumsAreReducedIntoPartsOfTokens) {
  const auto counts_of = [](const std::vector<std::string>& seeds) {
    CompileOptions compile = on("tensor=4");
    compile.seeds = seeds;
    const TrainingModel model =
        compile_training(fixture_graph("llama-standard23"), compile, training(OptimizerKind::sgd, 0));
    EXPECT_EQ(model.token_multiple, seeds.empty() ? 1 : 4);
    std::map<std::string, int> out;
    for (const PlannedCollective& one : model.plan.collectives)
      if (one.for_node != "the output") ++out[std::string(kind_name(one.step.kind))];
    return out;
  };
  std::map<std::string, int> whole = counts_of({}), sharded = counts_of({"sequence"});
  EXPECT_EQ(whole["reduce_scatter"], 0);
  EXPECT_GT(sharded["reduce_scatter"], 7) << "four a layer, and the embedding's";
  EXPECT_LT(sharded["all_reduce"], whole["all_reduce"]);
}

/// A loss that the host computes of the logits, the trainer's own as it happens, goes the same way.
TEST(MeshTraining, OfAHostsLoss) {
  for (const char* fixture : {"llama-standard23", "gpt2-optimum18", "zoo/mixtral/dynamo18"}) {
    TrainingOptions options = training(OptimizerKind::sgd, 0);
    const Outcome expected = run(fixture, "", options);
    options.host_loss = true;
    for (const char* mesh : {"", "data=2", "tensor=2", "data=2,tensor=2"})
      for (int zero : {0, 1, 2, 3}) {
        if (!std::strchr(mesh, ',') && zero % 3) continue;
        SCOPED_TRACE(cat(fixture, " ", mesh, " ", zero));
        options.zero = zero;
        expect_same(run(fixture, mesh, options), expected);
      }
  }
}

TEST(MeshTraining, AdaptersOfAdamW) {
  TrainingOptions options = training(OptimizerKind::adamw, 0);
  options.lora.rank = 4;
  const Outcome expected = run("llama-standard23", "", options);
  for (const char* mesh : {"data=2", "tensor=2", "data=2,tensor=2"})
    for (int zero : {0, 2, 3}) {
      SCOPED_TRACE(cat(mesh, " ", zero));
      options.zero = zero;
      const Outcome got = run("llama-standard23", mesh, options);
      for (size_t i = 0; i < steps; ++i) EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-4 * expected.losses[i]);
    }
}

/// Next to codes; the last block of a row of Gemma 2's is used in part.
TEST(MeshTraining, AdaptersOfQuantisedWeights) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.lora.rank = 4;
  for (const char* fixture : {"zoo/gemma2/genai_int4", "zoo/qwen3/q_int4_qdq"}) {
    const Outcome expected = run(fixture, "", options);
    EXPECT_LT(expected.losses.back(), expected.losses.front());
    for (const char* mesh : {"data=2", "tensor=2", "data=2,tensor=2"}) {
      SCOPED_TRACE(cat(fixture, " ", mesh));
      expect_same(run(fixture, mesh, options), expected);
    }
  }
}

/// What a token's adapters do not see is drawn of its place in the step: the same wherever it is computed.
TEST(MeshTraining, DropoutIsTheSameOnEveryMesh) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.lora.rank = 4;
  const Outcome without = run("llama-standard23", "", options);
  options.lora.dropout = 0.3;
  const Outcome expected = run("llama-standard23", "", options);
  EXPECT_EQ(expected.losses[0], without.losses[0]) << "b begins as zeros";
  EXPECT_GT(std::fabs(expected.norms[0] - without.norms[0]), 1e-3 * without.norms[0]);
  EXPECT_EQ(run("llama-standard23", "", options).losses, expected.losses);
  for (const char* mesh : {"data=2", "tensor=2", "data=2,tensor=2"})
    for (int zero : {0, 3}) {
      SCOPED_TRACE(cat(mesh, " ", zero));
      options.zero = zero;
      expect_same(run("llama-standard23", mesh, options), expected);
    }
  options.zero = 0;
  options.recompute = Recompute::full;
  EXPECT_EQ(run("llama-standard23", "", options).losses, expected.losses);
  options.lora.seed = 9;
  EXPECT_NE(run("llama-standard23", "", options).norms, expected.norms);
}

TEST(Dropout, EvaluationsHaveNone) {
  TrainingOptions options = training(OptimizerKind::sgd, 0);
  options.lora.rank = 4;
  ThreadPool pool(2);
  TrainingEngine plain(fixture_graph("llama-standard23"), World::get().options(), options, pool);
  options.lora.dropout = 0.5;
  TrainingEngine engine(fixture_graph("llama-standard23"), World::get().options(), options, pool);
  const auto all = documents();
  const std::vector<TrainingSample> samples{{all[0], {}}, {all[1], {}}};
  const PackedRow row = fill_row(samples, std::vector<int64_t>{0, 1});
  double before = 0;
  for (int step = 0; step < 3; ++step) {
    const double loss = engine.accumulate({.rows = {row}, .weight = 1.0 / 28});
    EXPECT_EQ(engine.accumulate({.rows = {row}, .weight = 1.0 / 28}), loss) << "one step, one draw";
    EXPECT_NE(loss, before);
    before = loss;
    engine.update(0.5, 0.5);
  }
  for (const TrainedParameter& one : engine.parameters()) plain.set_array(one.key, engine.array(one.key).view());
  EXPECT_EQ(engine.evaluate({.rows = {row}}), plain.evaluate({.rows = {row}}));
  EXPECT_NE(engine.accumulate({.rows = {row}}), plain.accumulate({.rows = {row}}));
}

/// The same with ranks that are processes: mpirun starts this one, with 2 or 4 of them.
TEST(MeshTraining, OfProcesses) {
  plait::World* const world = processes();
  if (!world) GTEST_SKIP() << "only under mpirun";
  const std::vector<std::string> meshes = world->size() == 2 ? std::vector<std::string>{"data=2", "tensor=2"}
                                                             : std::vector<std::string>{"data=4", "data=2,tensor=2"};
  for (const char* fixture : {"llama-standard23", "gpt2-optimum18"}) {
    const Outcome expected = run(fixture, "", training(OptimizerKind::sgd, 0));
    for (const std::string& mesh : meshes)
      for (int zero = 0; zero < 4; ++zero) {
        SCOPED_TRACE(cat(fixture, " ", mesh, " zero ", zero));
        TrainingOptions options = training(OptimizerKind::sgd, zero);
        options.host_loss = zero == 3;
        const Outcome got = run(fixture, mesh, options, world);
        options.overlap_bytes = 0;
        const Outcome waited = run(fixture, mesh, options, world);
        if (world->rank() != 0) continue;
        expect_same(got, expected);
        expect_equal(waited, got);
      }
  }
  for (const std::string& mesh : meshes) expect_equality_in_f64(mesh, world);
}

/// The same bits, and less memory where a model's layers take most of it: in small ones the head may.
TEST(MeshTraining, OfAdafactor) {
  const Outcome expected = run("llama-standard23", "", training(OptimizerKind::adafactor, 0));
  for (const char* mesh : {"data=2,tensor=2", "data=4", "tensor=2"})
    for (int zero = 0; zero <= 3; ++zero) {
      SCOPED_TRACE(cat(mesh, ", zero ", zero));
      expect_same(run("llama-standard23", mesh, training(OptimizerKind::adafactor, zero)), expected);
    }
}

TEST(Recomputing, ChangesNothingButTheMemory) {
  for (const char* fixture : {"llama-standard23", "gpt2-optimum18", "gemma3-standard23", "zoo/mixtral/dynamo18"})
    for (const char* mesh : {"", "data=2,tensor=2"}) {
      SCOPED_TRACE(cat(fixture, " ", mesh));
      TrainingOptions options = training(OptimizerKind::sgd, 3);
      options.bucket_bytes = 0;  // one would hold all weights of so small a model
      const Outcome kept = run(fixture, mesh, options);
      for (Recompute how : {Recompute::selective, Recompute::full}) {
        options.recompute = how;
        const Outcome again = run(fixture, mesh, options);
        expect_equal(again, kept);
        if (fixture == std::string("llama-standard23")) {
          EXPECT_LT(again.run_bytes, kept.run_bytes);
        }
      }
    }
}

/// Whether ranks compute while they speak, and how much of it at once, is no matter to the bits.
TEST(Overlapping, ChangesNoBits) {
  for (const char* mesh : {"data=2", "data=4", "data=2,tensor=2"})
    for (int zero = 0; zero < 4; ++zero)
      for (int64_t bucket_bytes : {0, 32 << 10}) {
        if (bucket_bytes == 0 && mesh != std::string("data=2")) continue;
        SCOPED_TRACE(cat(mesh, " zero ", zero, " bundles ", bucket_bytes));
        TrainingOptions options = training(OptimizerKind::adamw, zero);
        options.bucket_bytes = bucket_bytes;
        options.overlap_bytes = 0;
        const Outcome expected = run("llama-standard23", mesh, options);
        for (int64_t bytes : {64 << 10, 64 << 20}) {
          options.overlap_bytes = bytes;
          const Outcome got = run("llama-standard23", mesh, options);
          expect_equal(got, expected);
          EXPECT_LE(got.run_bytes, expected.run_bytes + bytes);
        }
      }
}

/// Gradients' sums are under way while earlier layers' gradients are computed, and weights while layers before them
/// are.
TEST(Overlapping, HasSomethingToDo) {
  CompileOptions compile = World::get().options();
  compile.mesh = Mesh::parse("data=2");
  for (int zero = 0; zero < 4; ++zero) {
    TrainingOptions options = training(OptimizerKind::adamw, zero);
    options.bucket_bytes = 32 << 10;
    const TrainingModel model = compile_training(fixture_graph("llama-standard23"), compile, options);
    ASSERT_EQ(model.has(TrainingProgram::settle), zero < 2);
    const auto last = zero < 2 ? TrainingProgram::settle : TrainingProgram::accumulate;
    const Program& program = model.program(last);
    int all = 0, beside = 0;
    for (const Instruction& one : program.instructions)
      if (one.kind == Instruction::Kind::collective && one.call.kind != CollectiveKind::shard)
        ++all, beside += one.wait_before >= 0;
    EXPECT_GE(2 * beside, all) << "zero " << zero;
    compile.rank = 1;
    const TrainingModel other = compile_training(fixture_graph("llama-standard23"), compile, options);
    for (const auto& [name, one] : model.programs)
      EXPECT_EQ(other.program(name).fingerprint, one->fingerprint) << program_name(name);
    compile.rank = 0;
  }
}

std::string group_text(const std::vector<int32_t>& group) {
  std::string out = " group";
  for (int32_t rank : group) out += cat(" ", rank);
  return out;
}

/// What tells a rank's program from another's.
std::string of_rank(std::string_view name, const Program& program) {
  std::string out = cat(name, " ", program.fingerprint);
  for (const auto& group : program.groups) out += group_text(group);
  for (const StoreEntry& entry : program.entries) out += cat(" ", entry.key);
  for (const Instruction& one : program.instructions)
    out += cat(" ", one.call.part, " ", one.attributes.integer("offset", -1));
  return out;
}

std::vector<std::string> of_rank(const TrainingModel& model) {
  std::vector<std::string> out;
  for (const auto& [name, program] : model.programs) out.push_back(of_rank(program_name(name), *program));
  for (const auto& [name, sections] : model.sections)
    for (const StageSection& section : sections)
      out.push_back(of_rank(cat(program_name(name), section.stage, action_letter(section.kind)), *section.program));
  for (const auto& group : model.groups) out.push_back(group_text(group));
  return out;
}

/// Ranks of a process share all of a compilation but its end, whichever rank it began for.
TEST(MeshTraining, SharedCompilationsAreThoseOfEachRank) {
  for (const char* mesh : {"data=2,tensor=2", "pipeline=2,tensor=2"}) {
    CompileOptions compile = World::get().options();
    compile.mesh = Mesh::parse(mesh);
    if (compile.mesh.blocks(compile.mesh.parts("pipeline")) > 1) compile.stages.seats = {{0}, {1}};
    const TrainingOptions options = training(OptimizerKind::adamw, 3);
    const Graph graph = fixture_graph("llama-standard23");
    const auto model_of = training_compiler(graph, compile, options);
    std::set<std::vector<std::string>> all;
    for (int64_t rank = 0; rank < 4; ++rank) {
      CompileOptions own = compile;
      own.rank = rank;
      const std::vector<std::string> one = of_rank(model_of(own));
      EXPECT_EQ(one, of_rank(compile_training(graph, own, options))) << mesh << ", rank " << rank;
      all.insert(one);
    }
    EXPECT_EQ(all.size(), 4u) << mesh;
  }
}

TEST(MeshTraining, APipelineHasStages) {
  try {
    CompileOptions compile = World::get().options();
    compile.mesh = Mesh::parse("pipeline=2");
    compile_training(fixture_graph("llama-standard23"), compile, training(OptimizerKind::sgd, 0));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(error.message().find("pipeline"), std::string::npos) << error.message();
  }
}

/// The collectives of each level, one line each, with buckets of so many bytes.
std::string collectives_at_each_level(int64_t bucket_bytes) {
  CompileOptions compile = World::get().options();
  compile.mesh = Mesh::parse("data=4");
  std::string all;
  for (int zero = 0; zero < 4; ++zero) {
    TrainingOptions options = training(OptimizerKind::adamw, zero);
    options.bucket_bytes = bucket_bytes;
    options.row_tokens = 4096;  // of a size at which weights are moved rather than tokens
    const TrainingModel model = compile_training(fixture_graph("llama-standard23"), compile, options);
    EXPECT_EQ(model.parameters.size(), 20u);
    all += cat("zero ", zero, ": micro-batch: ", collectives(model.program(TrainingProgram::accumulate)),
               "; norm: ", collectives(model.program(TrainingProgram::norm)),
               "; update: ", collectives(model.program(TrainingProgram::update)), "\n");
  }
  return all;
}

/// One each for a parameter, of what is in ZeRO's papers; and those of the loss and the norm.
TEST(ZeroLevels, Collectives) {
  EXPECT_EQ(collectives_at_each_level(0),
            "zero 0: micro-batch: AllReduce 1; norm: AllReduce 20; update: \n"
            "zero 1: micro-batch: AllReduce 1; norm: AllReduce 1, ReduceScatter 20; update: AllGather 20\n"
            "zero 2: micro-batch: AllReduce 1, ReduceScatter 20; norm: AllReduce 1; update: AllGather 20\n"
            "zero 3: micro-batch: AllGather 41, AllReduce 1, ReduceScatter 20; norm: AllReduce 1; update: \n");
}

/// All at once, where that fits.
TEST(ZeroLevels, CollectivesInBuckets) {
  EXPECT_EQ(collectives_at_each_level(64 << 20),
            "zero 0: micro-batch: AllReduce 1; norm: AllReduce 1; update: \n"
            "zero 1: micro-batch: AllReduce 1; norm: AllReduce 1, ReduceScatter 1; update: AllGather 1\n"
            "zero 2: micro-batch: AllReduce 1, ReduceScatter 1; norm: AllReduce 1; update: AllGather 1\n"
            "zero 3: micro-batch: AllGather 1, AllReduce 1, ReduceScatter 1; norm: AllReduce 1; update: \n");
}

TEST(ZeroLevels, MemoryOfARank) {
  const int64_t whole = run("llama-standard23", "", training(OptimizerKind::adamw, 0)).state_bytes;
  EXPECT_LE(run("llama-standard23", "data=4", training(OptimizerKind::adamw, 3)).state_bytes, 3 * whole / 10);
}

}  // namespace
}  // namespace plait::test
