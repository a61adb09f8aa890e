// The search for seeds, against the recipes.
#include "core/passes/shard/search.h"

#include <gtest/gtest.h>

#include "core/base/text.h"
#include "core/passes/shard/layers.h"
#include "tests/unit/shard/families.h"
#include "tests/unit/shard/lockstep.h"

namespace plait::test {
namespace {

/// The test models are some ten thousand times smaller than those for which the defaults stand: so are the
/// collectives, or the best plan would be to share nothing.
const LinkPrices prices{.memory = 20e9, .link = 5e11, .latency = 1e-9};

double recipe_seconds(const Graph& graph, const Mesh& mesh, Recipe recipe) {
  const OpSet& ops = World::get().ops;
  Graph local = graph;
  const ShardSeeds seeds = recipe_seeds(graph, ops, mesh, mesh.parts("tensor"), recipe);
  return price_of(graph, shard(local, ops, mesh, seeds), mesh, prices).seconds();
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
    EXPECT_EQ(price_of(raised.graph, shard(local, World::get().ops, mesh, found.seeds), mesh, prices).seconds(),
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
      // Codes, scales and zero points of quantised experts are weights of their own, each of which by itself moves the
      // others.
      expect_no_dearer_than_recipes(raised(imported(model)), model.name != "gpt_oss_fused/q_experts");
    }
}

/// The decoder with `copies` of its first layer after that.
Graph deeper(const Graph& from, int copies) {
  const GraphLayers layers = layers_of(from, World::get().ops);
  Graph out = from;
  std::map<ValueId, int> made;  // the layer of the node that makes a value
  for (size_t i = 0; i < from.nodes.size(); ++i)
    for (ValueId id : from.nodes[i].outputs) made[id] = layers.of_node[i];
  // The second layer reads at the same place what the first hands on, as the first reads what the embedding hands on.
  std::vector<ValueId> reads[2];
  for (size_t i = 0; i < from.nodes.size(); ++i)
    if (const int layer = layers.of_node[i]; layer == 0 || layer == 1)
      for (ValueId id : from.nodes[i].inputs)
        if (made.contains(id) && made[id] == layer - 1) reads[layer].push_back(id);
  const ValueId begin = reads[0].back(), end = reads[1].back();
  ValueId last = end;
  for (int copy = 0; copy < copies; ++copy) {
    std::map<ValueId, ValueId> fresh{{begin, last}};
    auto renamed = [&](ValueId id) {
      if (id == no_value || fresh.contains(id)) return id == no_value ? id : fresh[id];
      const Value& value = from.value(id);
      if (value.constant && !value.constant->initializer.empty()) {
        Constant constant = *value.constant;
        constant.initializer += cat(" of copy ", copy);
        fresh[id] = out.add_constant(std::move(constant));
        out.value(fresh[id]).type = value.type;
      } else if (made.contains(id) && made[id] == 0) {
        fresh[id] = out.add_value("", value.type);
      } else {
        fresh[id] = id;
      }
      return fresh[id];
    };
    for (size_t i = 0; i < from.nodes.size(); ++i) {
      if (layers.of_node[i] != 0) continue;
      Node node = from.nodes[i];
      for (ValueId& id : node.inputs) id = renamed(id);
      for (ValueId& id : node.outputs) id = renamed(id);
      out.nodes.push_back(std::move(node));
    }
    last = fresh.at(end);
  }
  for (size_t i = 0; i < from.nodes.size(); ++i)
    if (layers.of_node[i] == 1)
      for (ValueId& id : out.nodes[i].inputs)
        if (id == end) id = last;
  out.sort();
  return out;
}

TEST(Search, LayersOfAKindAreOneDecision) {
  Raised one = raised(fixture_graph("gemma3-standard23"));
  set_typical_step(one.graph);
  const Graph deep = deeper(one.graph, 15);
  EXPECT_EQ(layers_of(deep, World::get().ops).count, 18);
  const Mesh mesh = Mesh::parse("tensor=2");
  const FoundSeeds few = search_seeds(one.graph, World::get().ops, mesh, {}, prices);
  const FoundSeeds many = search_seeds(deep, World::get().ops, mesh, {}, prices);
  EXPECT_EQ(many.plans, few.plans);
  for (const auto& [id, sharding] : few.seeds) EXPECT_EQ(many.seeds.at(id), sharding);
}

}  // namespace
}  // namespace plait::test
