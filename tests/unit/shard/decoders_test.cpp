// Pass shard: what it finds by itself on decoders of each shape, and that all ranks together compute what one does.
#include "core/passes/shard/shard.h"

#include <gmock/gmock.h>

#include "core/base/text.h"
#include "core/graph/infer.h"
#include "tests/unit/shard/families.h"
#include "tests/unit/shard/lockstep.h"

namespace plait::test {
namespace {

struct Sharded {
  Graph graph;
  ShardPlan plan;
};

/// Places are chosen for a step of the usual size, or as `typical` specifies for its symbols.
Sharded sharded(Raised raised, const Mesh& mesh, Recipe recipe = Recipe::tensor,
                const std::map<std::string, int64_t>& typical = {}) {
  Sharded out;
  const OpSet& ops = World::get().ops;
  set_typical_step(raised.graph);
  for (const auto& [name, size] : typical) raised.graph.symbols[*raised.graph.symbols.find(name)].typical = size;
  const ShardSeeds seeds = recipe_seeds(raised.graph, ops, mesh, mesh.parts("tensor"), recipe);
  out.graph = std::move(raised.graph);
  out.plan = shard(out.graph, ops, mesh, seeds);
  verify(out.graph, "shard");
  return out;
}

std::map<std::string, int> counts(const ShardPlan& plan) {
  std::map<std::string, int> out;
  for (const PlannedCollective& one : plan.collectives) ++out[std::string(kind_name(one.step.kind))];
  return out;
}

/// Of the largest element.
double error_of(const Tensor& got, const Tensor& expected) {
  double worst = 0, largest = 1e-30;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    worst = std::max(worst, std::fabs(element(got, i) - element(expected, i)));
    largest = std::max(largest, std::fabs(element(expected, i)));
  }
  return worst / largest;
}

const std::vector<std::vector<int32_t>> prompts{
    {1, 5, 9, 200, 3, 7, 7, 12, 31, 90, 4, 2, 18, 25, 33, 41, 8, 60, 11}, {3, 100, 17}, {44}};

void expect_equals_whole(const Raised& raised, const std::string& mesh_text, double tolerance = 2e-5,
                         Recipe recipe = Recipe::tensor) {
  SCOPED_TRACE(mesh_text);
  const Mesh mesh = Mesh::parse(mesh_text);
  const Step step = step_of(raised, prompts);
  const Tensor whole = run_lockstep(raised.graph, Mesh(), step)[0];
  const Sharded all = sharded(raised, mesh, recipe);
  for (const Tensor& one : run_lockstep(all.graph, mesh, step)) {
    ASSERT_EQ(one.shape(), whole.shape());
    EXPECT_LT(error_of(one, whole), tolerance);
  }
}

TEST(Shard, FixturesEqualTheWhole) {
  for (const char* name : {"gpt2-optimum18", "llama-standard23", "llama-untied-optimum18", "gemma3-plain18",
                           "gemma3-standard23", "qwen2-optimum18", "qwen3-dynamo23"}) {
    SCOPED_TRACE(name);
    const Raised one = raised(fixture_graph(name));
    ASSERT_TRUE(one.decoder.recognised);
    for (const char* mesh : {"tensor=2", "tensor=3", "tensor=4", "tensor=6"}) expect_equals_whole(one, mesh);
  }
}

class ShardedFamily : public testing::TestWithParam<ZooModel> {};

TEST_P(ShardedFamily, EqualsTheWhole) {
  const Raised one = raised(imported(GetParam()));
  ASSERT_TRUE(one.decoder.recognised);
  // Gemma 4's weights make much of little: its logits differ by 5e-4 of the largest between instruction sets.
  const double tolerance = GetParam().family == "gemma4" ? 1e-3 : 2e-5;
  for (const char* mesh : {"tensor=2", "tensor=4"}) expect_equals_whole(one, mesh, tolerance);
}

/// What is paid where depends on how many tokens a step is expected to have; what comes out does not.
TEST(Shard, StepsOfAnySizeEqualTheWhole) {
  const Mesh mesh = Mesh::parse("tensor=4");
  for (const char* name : {"gpt2-optimum18", "llama-standard23"}) {
    const Raised one = raised(fixture_graph(name));
    const Step step = step_of(one, prompts);
    const Tensor whole = run_lockstep(one.graph, Mesh(), step)[0];
    for (const auto& [tokens, rows] : {std::pair(1, 1), std::pair(64, 1), std::pair(64, 64), std::pair(4096, 8)}) {
      SCOPED_TRACE(cat(name, ", steps of ", tokens));
      const Sharded all = sharded(one, mesh, Recipe::tensor, {{"t", tokens}, {"r", rows}});
      for (const Tensor& got : run_lockstep(all.graph, mesh, step)) EXPECT_LT(error_of(got, whole), 2e-5);
    }
  }
}

/// No dimension is padded: an axis, or a part of one, cuts what it divides, and nothing else.
TEST(Shard, WhatDoesNotDivideIsCutByThePartsThatDo) {
  const Mesh mesh = Mesh::parse("tensor=6");
  const Raised one = raised(fixture_graph("llama-standard23"));
  std::set<std::string> found;
  for (const auto& [id, sharding] : sharded(one, mesh).plan.weights) {
    const Value& value = one.graph.value(id);
    if (value.type.dims->size() == 2)
      found.insert(cat(text(value.type, one.graph.symbols), " ", text(sharding, mesh)));
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre(
                         // 96 features: all of it; 512 words, 4 heads of queries and 2 of keys: the 2 of 2 x 3.
                         "f32[96, 48] [tensor, -]", "f32[48, 96] [-, tensor]", "f32[512, 48] [tensor.0, -]",
                         "f32[64, 48] [tensor.0, -]", "f32[48, 64] [-, tensor.0]", "f32[32, 48] [tensor.0, -]"));
}

/// Attention is cut by the 4 of 8 ranks that its heads allow, so that its sum and the residual stream's are along
/// different axes: what was paid for the norm is added, and nothing is paid in parts.
TEST(Shard, WhatWasPaidForOthersIsNotPaidAgain) {
  const Mesh mesh = Mesh::parse("tensor=8");
  const ShardPlan plan = sharded(raised(fixture_graph("llama-standard23")), mesh).plan;
  EXPECT_TRUE(plan.paid_early);
  EXPECT_EQ(counts(plan), (std::map<std::string, int>{{"all_gather", 1}, {"all_reduce", 5}}));
  EXPECT_EQ(plan.bytes(), 25024);
}

/// However many parts an axis has, its ranks communicate in one collective.
TEST(Shard, PartsOfAnAxisAreOneCollective) {
  const Mesh mesh = Mesh::parse("tensor=4");
  for (const char* name : {"gpt2-optimum18", "qwen3-dynamo23"}) {
    const ShardPlan plan = sharded(raised(fixture_graph(name)), mesh).plan;
    EXPECT_EQ(plan.collectives.size(), 6u) << name;
    for (const PlannedCollective& one : plan.collectives)
      EXPECT_EQ(mesh.text(one.step.axes), "tensor") << name << ": " << one.what;
  }
}

std::string test_name(const testing::TestParamInfo<ZooModel>& info) {
  std::string name = info.param.name;
  for (char& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Whole, ShardedFamily, testing::ValuesIn(families()), test_name);
INSTANTIATE_TEST_SUITE_P(Quantised, ShardedFamily, testing::ValuesIn(families(false)), test_name);

TEST(Shard, ExpertsAreHandedOutWhole) {
  for (const ZooModel& model : families()) {
    if (model.family != "mixtral" && model.family != "qwen3_moe") continue;
    SCOPED_TRACE(model.name);
    const Raised one = raised(imported(model));
    const Mesh mesh = Mesh::parse("tensor=2");
    int stacks = 0;
    for (const auto& [id, sharding] : sharded(one, mesh, Recipe::expert).plan.weights) {
      const Shape shape = one.graph.value(id).constant->shape();
      if (shape.rank() != 3 || shape[0] == 1) continue;  // a vector that is spread out over tokens
      ++stacks;
      EXPECT_EQ(text(sharding, mesh), "[tensor, -, -]");
    }
    EXPECT_EQ(stacks, 6);
    expect_equals_whole(one, "tensor=2", 2e-5, Recipe::expert);
  }
}

/// What a decoder of `layers` layers owes: a sum after the embedding and two a layer, as Megatron has them, and the
/// logits together at the end.
std::string megatron(size_t layers, int a_layer = 2) {
  return cat("all_gather 1 all_reduce ", 1 + a_layer * static_cast<int>(layers));
}

TEST(Shard, FindsTheSumsOfALayer) {
  // Families that differ, and why.
  const std::map<std::string, std::string> others{
      // Attention and MLP side by side: one sum a layer.
      {"gptj", megatron(2, 1)},
      {"codegen", megatron(2, 1)},
      {"cohere", megatron(2, 1)},
      {"cohere2", megatron(2, 1)},
      {"falcon", megatron(2, 1)},
      {"falcon_new", megatron(2, 1)},
      {"gpt_bigcode", megatron(2, 1)},
      {"gpt_neox", megatron(2, 1)},
      {"phi", megatron(2, 1)},
      // Nothing stands between embedding and projections, so that the embedding's sum passes them.
      {"olmo2", "all_gather 1 all_reduce 6"},
      // Two of three layers are convolutions, whose packed projections stay whole; queries and keys of the third are
      // normalised as rows of all heads.
      {"lfm2", "all_gather 3 all_reduce 5"},
      {"lfm2_moe", "all_gather 1 all_reduce 4"},
      // In addition to its layers' eight and the embedding's: a second embedding, by layer, and what is projected
      // next to it.
      {"gemma4", "all_gather 1 all_reduce 11"},
  };
  for (const ZooModel& model : families()) {
    const Raised one = raised(imported(model));
    std::string found;
    for (const auto& [kind, count] : counts(sharded(one, Mesh::parse("tensor=2")).plan))
      found += cat(found.empty() ? "" : " ", kind, " ", count);
    auto other = others.find(model.family);
    EXPECT_EQ(found, other == others.end() ? megatron(one.decoder.layers.size()) : other->second) << model.name;
  }
}

}  // namespace
}  // namespace plait::test
