// Every decoder of the zoo learns, in each of its dialects: adapters next to weights of floats or quantised ones.
#include "core/passes/adapt/linear_roles.h"
#include "core/passes/train/parameters.h"
#include "tests/unit/train/runs.h"
#include "tests/unit/support/zoo.h"

namespace plait::test {
namespace {

/// What files call a product that is known to Hugging Face's models, and what it does.
constexpr std::pair<const char*, const char*> known_roles[] = {
    {"q_proj", "query"},           {"k_proj", "key"},
    {"v_proj", "value"},           {"o_proj", "attention_output"},
    {"gate_proj", "feed_forward"}, {"up_proj", "feed_forward"},
    {"down_proj", "feed_forward"}, {"lm_head", "head"},
};

/// The graph gives products the roles that their names have. Returns how many have such names.
int check_roles(const Graph& graph) {
  int told = 0;
  for (const auto& [at, roles] : linear_roles(graph)) {
    const Node& node = graph.nodes[at];
    std::string names = node.name;
    if (const auto& weight = graph.value(node.inputs[1]).constant) names += " " + join(names_of(*weight), " ");
    for (const auto& [name, role] : known_roles)
      if (names.find(cat(".", name)) != std::string::npos || names.find(cat("/", name)) != std::string::npos) {
        EXPECT_TRUE(roles.contains(role)) << names << " is no " << role;
        ++told;
      }
    EXPECT_FALSE(roles.empty());
  }
  return told;
}

TEST(Zoo, AdaptersOfEveryDecoderLearn) {
  TrainingOptions options = training(OptimizerKind::adamw, 0);
  options.lora.rank = 4;
  CompileOptions compile = World::get().options();
  compile.exact_activations = true;
  int told = 0;
  compile.dump = [&](std::string_view pass, const Graph& graph) {
    if (pass == "drop_cache") told += check_roles(graph);
  };
  ThreadPool pool(2);
  const auto all = documents();
  const PackedRow row = fill_row(std::vector<TrainingSample>{{all[0], {}}, {all[1], {}}}, std::vector<int64_t>{0, 1});
  const double weight = 1.0 / 28;
  for (const ZooModel& model : zoo()) {
    SCOPED_TRACE(model.name);
    if (model.family == "llama_dynamic") {  // angles that are a formula of the length: not recognised
      EXPECT_THROW(TrainingEngine(imported(model), compile, options, pool), Error);
      continue;
    }
    TrainingEngine engine(imported(model), compile, options, pool);
    const double before = engine.accumulate({.rows = {row}, .weight = weight});
    engine.update(1, 1e-3);  // which changes only b, for a's gradients are zeros at first
    EXPECT_LT(engine.evaluate({.rows = {row}}) * weight, before);
  }
  EXPECT_GT(told, 500);
}

/// Adapters next to codes under bf16: what products multiply is rounded, as next to frozen floats, so that losses are
/// those of f32 but for what rounding by 2^-9 costs, and what three steps make of that.
TEST(Zoo, QuantisedProductsRoundInBf16) {
  TrainingOptions options = training(OptimizerKind::adamw, 0);
  options.lora.rank = 4;
  const bool rounds = has_isa("avx512_bf16");
  for (const char* fixture : {"zoo/gemma2/genai_int4", "zoo/qwen3/q_int4_qdq"}) {
    SCOPED_TRACE(fixture);
    const TrainingModel model = compile_training(fixture_graph(fixture), World::get().options(DType::bf16), options);
    for (const Instruction& one : model.program(TrainingProgram::accumulate).instructions)
      if (rounds && one.kernel && (one.kernel->op == "plait.Linear" || one.kernel->op == "plait.LinearBack")) {
        EXPECT_NE(one.kernel->isa, "avx512") << one.kernel->op << " " << one.kernel->dtypes;
      }
    const Outcome whole = run(fixture, "", options), rounded = run(fixture, "", options, nullptr, DType::bf16);
    for (size_t i = 0; i < steps; ++i) {
      EXPECT_NEAR(rounded.losses[i], whole.losses[i], 5e-3 * whole.losses[i]) << "step " << i;
      EXPECT_NEAR(rounded.norms[i], whole.norms[i], 5e-2 * whole.norms[i]) << "step " << i;
    }
    EXPECT_LT(rounded.losses.back(), rounded.losses.front());
    if (rounds) {
      EXPECT_NE(rounded.losses.front(), whole.losses.front());
    }
  }
}

}  // namespace
}  // namespace plait::test
