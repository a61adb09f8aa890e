// Pass shard: what it finds by itself on decoders of each shape, and that all ranks together compute what one does.
#include "core/passes/shard.h"

#include <gmock/gmock.h>

#include <fstream>

#include "core/base/text.h"
#include "core/graph/infer.h"
#include "tests/unit/lockstep.h"
#include "tests/unit/models.h"

namespace plait::test {
namespace {

struct Sharded {
  std::vector<Graph> graphs;
  ShardPlan plan;
};

Sharded sharded(const Raised& raised, const Mesh& mesh, Recipe recipe = Recipe::tensor) {
  Sharded out;
  const OpSet& ops = World::get().ops;
  const ShardSeeds seeds = recipe_seeds(raised.graph, ops, mesh, mesh.parts("tensor"), recipe);
  for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
    Graph graph = raised.graph;
    out.plan = shard(graph, ops, mesh, rank, seeds);
    verify(graph, "shard");
    out.graphs.push_back(std::move(graph));
  }
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

const std::vector<std::vector<int32_t>> prompts{{1, 5, 9, 200, 3, 7, 7, 12, 31, 90, 4, 2, 18, 25, 33, 41, 8, 60, 11},
                                                {3, 100, 17},
                                                {44}};

void expect_equals_whole(const Raised& raised, const std::string& mesh_text, double tolerance = 2e-5) {
  SCOPED_TRACE(mesh_text);
  const Mesh mesh = Mesh::parse(mesh_text);
  const Step step = step_of(raised, prompts);
  const Tensor whole = run_lockstep({raised.graph}, Mesh(), step)[0];
  const Sharded all = sharded(raised, mesh);
  for (const Tensor& one : run_lockstep(all.graphs, mesh, step)) {
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

TEST(Shard, FindsTheTwoSumsOfALayer) {
  const Raised llama = raised(fixture_graph("llama-standard23"));
  const Mesh mesh = Mesh::parse("tensor=2");
  const Sharded all = sharded(llama, mesh);
  for (const PlannedCollective& one : all.plan.collectives)
    std::printf("%s %s of %s for %s\n", std::string(kind_name(one.step.kind)).c_str(), mesh.text(one.step.axes).c_str(), one.what.c_str(), one.for_node.c_str());
  EXPECT_EQ(counts(all.plan), (std::map<std::string, int>{{"all_gather", 1}, {"all_reduce", 5}}));
}

}  // namespace
}  // namespace plait::test
