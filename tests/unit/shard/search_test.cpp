// The search for seeds, against the recipes.
#include "core/passes/shard_search.h"

#include <gtest/gtest.h>
#include <chrono>
#include <set>
#include <iostream>

#include "tests/unit/shard/lockstep.h"
#include "tests/unit/zoo.h"

namespace plait::test {
namespace {

/// As if the test models were a hundred times as large, so that it is worth while to share their work.
const LinkPrices prices{.memory = 20e9, .link = 5e11, .latency = 1e-9};

double recipe_seconds(const Graph& graph, const Mesh& mesh, Recipe recipe) {
  const OpSet& ops = World::get().ops;
  Graph local = graph;
  const ShardSeeds seeds = recipe_seeds(graph, ops, mesh, mesh.parts("tensor"), recipe);
  return price_of(graph, shard(local, ops, mesh, 0, seeds), mesh, prices).seconds();
}

TEST(Search, X) {
  std::set<std::string> families;
  for (const ZooModel& model : zoo()) {
    if (!model.plain.empty() || !families.insert(model.family).second) continue;
    Raised one = raised(imported(model));
    set_typical_step(one.graph);
    for (const char* text : {"tensor=2", "tensor=4"}) {
      const Mesh mesh = Mesh::parse(text);
      auto t0 = std::chrono::steady_clock::now();
      const FoundSeeds found = search_seeds(one.graph, World::get().ops, mesh, {}, prices);
      auto t1 = std::chrono::steady_clock::now();
      const double tensor = recipe_seconds(one.graph, mesh, Recipe::tensor), expert = recipe_seconds(one.graph, mesh, Recipe::expert);
      std::cerr << model.name << " " << text << " plans " << found.plans << " ms " << std::chrono::duration<double, std::milli>(t1 - t0).count() << " found " << found.seconds*1e6 << " recipe " << tensor*1e6 << " " << expert*1e6 << "" << "\n";
      EXPECT_LE(found.seconds, std::min(tensor, expert));
    }
  }
}

}  // namespace
}  // namespace plait::test
