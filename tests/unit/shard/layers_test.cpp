// Layers are found in the shape of the graph, for any exporter.
#include <gtest/gtest.h>

#include "core/passes/shard/layers.h"
#include "core/passes/train/train.h"
#include "tests/unit/shard/families.h"
#include "tests/unit/shard/lockstep.h"

namespace plait::test {
namespace {

TEST(PlanLayers, EveryFamilyHasItsOwn) {
  for (const ZooModel& model : families()) {
    SCOPED_TRACE(model.name);
    const Raised one = raised(imported(model));
    int layers = 0;
    for (const auto& [kind, count] : one.decoder.layer_kinds()) layers += count;
    const GraphLayers found = layers_of(one.graph, World::get().ops);
    ASSERT_EQ(found.of_node.size(), one.graph.nodes.size());
    EXPECT_EQ(found.count, layers);
    std::map<int, int> products, embeddings;
    for (size_t i = 0; i < one.graph.nodes.size(); ++i) {
      if (one.graph.nodes[i].op.find("Linear") != std::string::npos) ++products[found.of_node[i]];
      if (one.graph.nodes[i].op == "plait.Embedding") ++embeddings[found.of_node[i]];
    }
    EXPECT_EQ(products[layers], 1) << "the head";
    EXPECT_GE(embeddings[-1], 1);
    // Gemma 4 makes an embedding by layer for all of them at once.
    EXPECT_EQ(products[-1], model.family == "gemma4" ? 1 : 0);
    for (int layer = 0; layer < layers; ++layer) EXPECT_GE(products[layer], 4);
  }
}

// Pipeline stages are cut between layers of the graph without caches.
TEST(PlanLayers, TrainingGraphsHaveTheSame) {
  for (const ZooModel& model : families()) {
    SCOPED_TRACE(model.name);
    Raised one = raised(imported(model));
    const int layers = layers_of(one.graph, World::get().ops).count;
    const CompileOptions options = World::get().options();
    PassContext context{options};
    drop_cache(one.graph, context);
    const GraphLayers found = layers_of(one.graph, World::get().ops);
    EXPECT_EQ(found.count, layers);
    int heads = 0;
    for (size_t i = 0; i < one.graph.nodes.size(); ++i)
      if (one.graph.nodes[i].op == "plait.Linear" && found.of_node[i] == layers) ++heads;
    EXPECT_EQ(heads, 1);
  }
}

}  // namespace
}  // namespace plait::test
