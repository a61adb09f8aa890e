// What users write about where weights live.
#include <gmock/gmock.h>

#include "core/base/text.h"
#include "core/passes/shard/search.h"
#include "tests/unit/shard/families.h"
#include "tests/unit/shard/lockstep.h"

namespace plait::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class Seeds : public testing::Test {
 protected:
  static const Raised& model() {
    static const Raised one = [] {
      Raised out = raised(fixture_graph("gemma3-plain18"));
      set_typical_step(out.graph);
      return out;
    }();
    return one;
  }

  static ShardSeeds seeds(const std::vector<std::string>& texts, const std::string& mesh = "tensor=2") {
    return seeds_of(model().graph, World::get().ops, Mesh::parse(mesh), texts);
  }

  /// The seeds of the weights of that name.
  static std::set<std::string> cuts(const ShardSeeds& seeds, const std::string& name,
                                    const std::string& mesh = "tensor=2") {
    std::set<std::string> out;
    for (const Node& node : model().graph.nodes)
      for (ValueId id : node.inputs) {
        if (id == no_value || !model().graph.value(id).constant) continue;
        if (model().graph.value(id).constant->initializer.find(name) == std::string::npos) continue;
        auto found = seeds.find(id);
        out.insert(found == seeds.end() ? "none" : text(found->second, Mesh::parse(mesh)));
      }
    EXPECT_FALSE(out.empty()) << name;
    return out;
  }

  /// Message and hint.
  static std::string error(const std::vector<std::string>& texts, const std::string& mesh = "tensor=2") {
    try {
      seeds(texts, mesh);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument);
      return cat(error.message(), " | ", error.hint());
    }
    return "no error";
  }
};

TEST_F(Seeds, TheRecipeTensorIsWhatNoTextMeans) {
  EXPECT_EQ(seeds({}), seeds({"tensor"}));
  const Mesh mesh = Mesh::parse("tensor=2");
  EXPECT_EQ(seeds({}), recipe_seeds(model().graph, World::get().ops, mesh, mesh.parts("tensor")));
}

TEST_F(Seeds, DataCutsNothing) {
  EXPECT_TRUE(seeds({"data"}, "data=4").empty());
  EXPECT_TRUE(seeds({}, "data=4").empty());
  EXPECT_EQ(seeds({"tensor"}, "data=2,tensor=2").size(), seeds({"tensor"}).size());
}

TEST_F(Seeds, PatternsGoBeforeTheRecipe) {
  const ShardSeeds found = seeds({"*.down_proj.weight=[tensor, -]", "*.layers.1.mlp.*=[-, -]"});
  EXPECT_EQ(cuts(found, "layers.0.mlp.down_proj"), std::set<std::string>{"[tensor, -]"});
  EXPECT_EQ(cuts(found, "layers.1.mlp.down_proj"), std::set<std::string>{"[-, -]"});
  EXPECT_EQ(cuts(found, "layers.0.mlp.up_proj"), std::set<std::string>{"[tensor, -]"});
  EXPECT_EQ(cuts(found, "layers.1.mlp.up_proj"), std::set<std::string>{"[-, -]"});
  EXPECT_EQ(cuts(found, "o_proj"), std::set<std::string>{"[-, tensor]"});
  EXPECT_EQ(cuts(seeds({"model.layers.?.mlp.up_proj.weight = [ - , tensor ]"}), "up_proj"),
            std::set<std::string>{"[-, tensor]"});
}

TEST_F(Seeds, PatternsAloneCutWhatTheySay) {
  const ShardSeeds found = seeds({"data", "*.up_proj.weight=[tensor.1, tensor.0]"}, "tensor=4");
  EXPECT_EQ(found.size(), 3u);
  EXPECT_EQ(cuts(found, "up_proj", "tensor=4"), std::set<std::string>{"[tensor.1, tensor.0]"});
}

TEST_F(Seeds, ConstantsOfOtherDimsAreLeftAlone) {
  const ShardSeeds found = seeds({"data", "model.layers.0.*=[-, tensor]"});
  EXPECT_EQ(cuts(found, "layers.0.mlp.gate_proj"), std::set<std::string>{"[-, tensor]"});
  EXPECT_EQ(cuts(found, "layers.0.input_layernorm"), std::set<std::string>{"none"});
  EXPECT_EQ(cuts(found, "layers.1.mlp.gate_proj"), std::set<std::string>{"none"});
}

TEST_F(Seeds, SearchKeepsWhatIsGiven) {
  const ShardSeeds found = seeds({"search", "*.up_proj.weight=[-, tensor]"});
  EXPECT_EQ(cuts(found, "up_proj"), std::set<std::string>{"[-, tensor]"});
}

TEST_F(Seeds, WhatSeedsSayRunsEqually) {
  const Mesh mesh = Mesh::parse("tensor=2");
  const Step step = step_of(model(), {{1, 5, 9, 200, 3}, {3, 100, 17}});
  const Tensor whole = run_lockstep(model().graph, Mesh(), step)[0];
  const std::vector<std::vector<std::string>> cases{
      {"*.down_proj.weight=[tensor, -]"},
      {"data", "*embed_tokens*=[-, tensor]"},
      {"data", "*_proj.weight=[-, tensor]"},
      {"search"},
  };
  for (const auto& texts : cases) {
    SCOPED_TRACE(texts.back());
    const ShardSeeds found = seeds(texts);
    Graph graph = model().graph;
    shard(graph, World::get().ops, mesh, found);
    for (const Tensor& one : run_lockstep(graph, mesh, step)) {
      double worst = 0, largest = 0;
      for (int64_t i = 0; i < whole.elements(); ++i) {
        worst = std::max(worst, std::fabs(element(one, i) - element(whole, i)));
        largest = std::max(largest, std::fabs(element(whole, i)));
      }
      EXPECT_LT(worst / largest, 2e-5);
    }
  }
}

TEST_F(Seeds, ErrorsNameWhatIsWrong) {
  EXPECT_THAT(error({"megatron"}),
              AllOf(HasSubstr("\"megatron\", which is no recipe"), HasSubstr("PATTERN=SHARDING")));
  EXPECT_THAT(error({"tensor", "expert"}), HasSubstr("two recipes, tensor and expert"));
  EXPECT_THAT(error({"model.layers.0.mlp.up_prj.weight=[tensor, -]"}),
              AllOf(HasSubstr("no weight's name fits"), HasSubstr("near: \"model.layers.0.mlp.up_proj.weight\"")));
  EXPECT_THAT(error({"*.embed=[tensor, -]"}), HasSubstr("near: "));
  EXPECT_THAT(error({"*.up_proj.weight=[tensor, -]"}, "tensor=3"),
              AllOf(HasSubstr("shard dimension 0 of \"model.layers.0.mlp.up_proj.weight\" into 3 parts"),
                    HasSubstr("sizes are [64, 48]"), HasSubstr("tensor.0")));
  EXPECT_THAT(error({"*.up_proj.weight=[rows, -]"}), AllOf(HasSubstr("seeds \"*.up_proj.weight=[rows, -]\""),
                                                           HasSubstr("has no axis \"rows\""), HasSubstr("tensor=2")));
  EXPECT_THAT(error({"*.up_proj.weight=tensor"}), HasSubstr("expected one like"));
  EXPECT_THAT(error({"*.up_proj.weight=[tensor, tensor]"}), HasSubstr("names an axis twice"));
  EXPECT_THAT(error({"*.up_proj.weight=[tensor, -, -]"}), HasSubstr("have 3 dimensions, but the weights that fit"));
  EXPECT_THAT(error({"*.up_proj.weight=[-, -] sum(tensor)"}), HasSubstr("is not a partial sum"));
  EXPECT_THAT(error({"*.up_proj.weight=[data, -]"}, "data=2,tensor=2"), HasSubstr("work on different requests"));
}

/// Of one family each stack of experts is cut as `text` specifies, and nothing else by data.
void expect_experts(const std::string& mesh_text, const std::vector<std::string>& texts, const std::string& gate,
                    const std::string& down) {
  SCOPED_TRACE(cat(mesh_text, " ", join(texts, " ")));
  const Mesh mesh = Mesh::parse(mesh_text);
  const AxisList data = mesh.parts("data");
  for (const char* name : {"mixtral", "qwen2_moe"}) {
    SCOPED_TRACE(name);
    const Graph graph = raised(imported(family(name))).graph;
    std::set<ValueId> experts;
    for (const Node& node : graph.nodes)
      if (node.op == "plait.Experts") experts.insert(node.inputs.begin() + 3, node.inputs.end());
    ASSERT_FALSE(experts.empty());
    const ShardSeeds found = seeds_of(graph, World::get().ops, mesh, texts, true);
    for (const auto& [id, sharding] : found) {
      const AxisList axes = sharding.axes();
      if (!experts.contains(id)) {
        EXPECT_EQ(std::find_first_of(axes.begin(), axes.end(), data.begin(), data.end()), axes.end());
      } else if (sharding.dims.size() == 3) {
        EXPECT_THAT(text(sharding, mesh), testing::AnyOf(gate, down));
      }
    }
    for (const Node& node : graph.nodes) {
      if (node.op != "plait.Experts") continue;
      for (size_t k : {3u, 5u}) EXPECT_EQ(text(found.at(node.inputs[k]), mesh), k == 3 ? gate : down);
    }
  }
}

TEST(SeedsOfExperts, AreGivenOutOverData) {
  expect_experts("data=2", {"expert_data"}, "[data, -, -]", "[data, -, -]");
  expect_experts("data=2,tensor=2", {"expert_data"}, "[data, tensor, -]", "[data, -, tensor]");
  expect_experts("data=2", {"expert_data", "data"}, "[data, -, -]", "[data, -, -]");
  expect_experts("data=2,tensor=2", {"expert", "expert_data"}, "[data tensor, -, -]", "[data tensor, -, -]");
  expect_experts("data=2,tensor=2", {"expert"}, "[tensor, -, -]", "[tensor, -, -]");
  expect_experts("data=12", {"expert_data"}, "[data.0 data.1, -, -]", "[data.0 data.1, -, -]");
  expect_experts("data=8", {"expert_data"}, "[data.1 data.2, -, -]", "[data.1 data.2, -, -]");
}

TEST_F(Seeds, CutAlongDataToTrainAlone) {
  const Mesh mesh = Mesh::parse("data=2,tensor=2");
  const std::vector<std::string> texts{"*.up_proj.weight=[data, -]"};
  EXPECT_EQ(cuts(seeds_of(model().graph, World::get().ops, mesh, texts, true), "up_proj", "data=2,tensor=2"),
            std::set<std::string>{"[data, -]"});
  EXPECT_THAT(error({"expert_data"}, "data=2"),
              AllOf(HasSubstr("give experts out over the axis data"), HasSubstr("work on different requests")));
}

TEST_F(Seeds, RanksThatWouldAllDoTheSameAreRefused) {
  EXPECT_THAT(error({"data"}), AllOf(HasSubstr("the recipe data shards no weight"), HasSubstr("--mesh data=N")));
  EXPECT_THAT(error({}, "tensor=7"), AllOf(HasSubstr("on the mesh \"tensor=7\" the recipe tensor shards no weight"),
                                           HasSubstr("each of the 7 ranks")));
}

TEST_F(Seeds, SaysWhyAWeightIsWhole) {
  const Raised gpt2 = raised(fixture_graph("gpt2-optimum18"));
  const Mesh mesh = Mesh::parse("tensor=3");
  const ShardSeeds none;
  std::map<std::string, std::string> why;
  for (const auto& [id, text] : why_whole(gpt2.graph, World::get().ops, mesh, mesh.parts("tensor"), none))
    why[gpt2.graph.value(id).constant->initializer] = text;
  EXPECT_EQ(why["transformer.wte.weight"],
            "dim 0: 512 is no multiple of 3; dim 1: 64 is needed whole by node "
            "\"/transformer/h.0/ln_1/LayerNormalization\" (LayerNormalization)");
  EXPECT_EQ(why["transformer.h.0.mlp.c_fc.weight"],
            "dim 0: 128 is no multiple of 3; dim 1: 64 is needed whole by node "
            "\"/transformer/h.0/ln_1/LayerNormalization\" (LayerNormalization)");
  EXPECT_THAT(why["transformer.h.0.attn.c_attn.weight"], HasSubstr("64 is 4 parts, no multiple of 3"));
  EXPECT_FALSE(why.contains("transformer.h.0.mlp.c_fc.bias"));

  const Mesh two = Mesh::parse("tensor=2");
  for (const auto& [id, text] : why_whole(gpt2.graph, World::get().ops, two, two.parts("tensor"), none))
    EXPECT_EQ(text, "the seeds leave it so");
  EXPECT_TRUE(why_whole(gpt2.graph, World::get().ops, two, two.parts("tensor"),
                        recipe_seeds(gpt2.graph, World::get().ops, two, two.parts("tensor")))
                  .empty());
}

}  // namespace
}  // namespace plait::test
