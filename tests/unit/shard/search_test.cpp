// The search for seeds, against the recipes.
#include "core/passes/shard_search.h"

#include <gtest/gtest.h>

#include "core/base/text.h"
#include "tests/unit/shard/families.h"
#include "tests/unit/shard/lockstep.h"

namespace plait::test {
namespace {

/// The test models are some ten thousand times smaller than those for which the defaults stand: so are the collectives, or the
/// best plan would be to share nothing.
const LinkPrices prices{.memory = 20e9, .link = 5e11, .latency = 1e-9};

double recipe_seconds(const Graph& graph, const Mesh& mesh, Recipe recipe) {
  const OpSet& ops = World::get().ops;
  Graph local = graph;
  const ShardSeeds seeds = recipe_seeds(graph, ops, mesh, mesh.parts("tensor"), recipe);
  return price_of(graph, shard(local, ops, mesh, 0, seeds), mesh, prices).seconds();
}

void expect_no_dearer_than_recipes(Raised raised, bool from_nothing = true) {
  set_typical_step(raised.graph);
  for (const char* text : {"tensor=2", "tensor=4"}) {
    SCOPED_TRACE(text);
    const Mesh mesh = Mesh::parse(text);
    const FoundSeeds found = search_seeds(raised.graph, World::get().ops, mesh, {}, prices);
    EXPECT_TRUE(found.from_nothing || !from_nothing);
    EXPECT_LE(found.plans, 600);
    Graph local = raised.graph;
    EXPECT_EQ(price_of(raised.graph, shard(local, World::get().ops, mesh, 0, found.seeds), mesh, prices).seconds(),
              found.seconds);
    for (Recipe recipe : {Recipe::tensor, Recipe::expert})
      EXPECT_LE(found.seconds, recipe_seconds(raised.graph, mesh, recipe));
  }
}

TEST(Search, ReachesTheRecipesFromNothing) {
  for (const char* name : {"gpt2-optimum18", "llama-standard23", "llama-untied-optimum18", "gemma3-plain18",
                           "gemma3-standard23", "qwen2-optimum18", "qwen3-dynamo23"}) {
    SCOPED_TRACE(name);
    expect_no_dearer_than_recipes(raised(fixture_graph(name)));
  }
  for (bool exact : {true, false})
    for (const ZooModel& model : families(exact)) {
      SCOPED_TRACE(model.name);
      // Codes, scales and zero points of quantised experts are weights of their own, each of which alone moves the others.
      expect_no_dearer_than_recipes(raised(imported(model)), model.name != "gpt_oss_fused/q_experts");
    }
}

}  // namespace
}  // namespace plait::test
