// Pass split: sections have every node once, weight gradients are apart, and slots live as long as they are read.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/passes/staged_graph.h"

namespace plait::test {
namespace {

using Kind = Action::Kind;

/// Of two stages, each with layers: most of a fixture's two or three are on the first.
StagedOptions stages(int count, Recompute recompute = Recompute::off, const std::string& fixture = "") {
  StagedOptions out{.stages = straight(count)};
  if (count == 2) out.stages.layers = {fixture.starts_with("gemma3") ? 2 : 1, 1};
  out.training.recompute = recompute;
  return out;
}

/// A node by what it makes: sections keep the numbers of values.
ValueId made_by(const Node& node) {
  for (ValueId id : node.outputs)
    if (id != no_value) return id;
  return no_value;
}

/// Of each node of a graph in how many sections it is.
std::map<ValueId, int> uses_of(const std::vector<StageGraphs>& all) {
  std::map<ValueId, int> out;
  for (const StageGraphs& stage : all)
    for (const SectionGraph& section : stage.sections)
      for (const Node& node : section.graph.nodes) ++out[made_by(node)];
  return out;
}

/// Views, what is computed again, and what depends on inputs or weights only are copied to where they are read.
bool may_be_copied(const Graph& graph, const Node& node) {
  const OpSchema* schema = World::get().ops.find(node.op);
  if (node.recomputed || node.stage < 0 || node.op == "plait.State") return true;
  if (schema && schema->updates) return false;
  if (schema && schema->view) return true;
  const std::vector<int32_t> makers = producers(graph);
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    if (id == no_value || graph.value(id).constant) return true;
    const int32_t maker = makers[static_cast<size_t>(id)];
    return maker >= 0 && (graph.nodes[static_cast<size_t>(maker)].op == "plait.State");
  });
}

void expect_every_node_once(const Staged& made, const std::vector<StageGraphs>& all) {
  const std::map<ValueId, int> uses = uses_of(all);
  size_t known = 0;
  for (const Node& node : made.whole.nodes) {
    const auto found = uses.find(made_by(node));
    const int count = found == uses.end() ? 0 : found->second;
    if (found != uses.end()) ++known;
    if (node.op == "plait.Cross") {
      EXPECT_EQ(count, 0) << "what crosses is a message";
    } else if (may_be_copied(made.whole, node)) {
      EXPECT_GE(count, 1) << describe(made.whole, node);
    } else {
      EXPECT_EQ(count, 1) << describe(made.whole, node);
    }
  }
  EXPECT_EQ(known, uses.size()) << "sections have nodes of the graph only";
}

constexpr const char* split_fixtures[] = {"llama-untied-optimum18", "gpt2-optimum18", "gemma3-standard23",
                                          "zoo/mixtral/dynamo18"};

TEST(Split, EveryNodeIsInOneSection) {
  for (const char* fixture : split_fixtures)
    for (Recompute recompute : {Recompute::off, Recompute::selective, Recompute::full}) {
      SCOPED_TRACE(cat(fixture, " ", static_cast<int>(recompute)));
      const Staged made = staged(fixture, stages(2, recompute, fixture));
      {
        SCOPED_TRACE("F and B");
        expect_every_node_once(made, made.split(true, false));
      }
      SCOPED_TRACE("F, I and W");
      expect_every_node_once(made, made.split(false, true));
    }
}

/// Both kinds of backward sections at once share slots and change neither.
TEST(Split, WholeAndHalvesTogether) {
  const Staged made = staged("llama-untied-optimum18", stages(2));
  const auto both = made.split(true, true), halves = made.split(false, true);
  for (size_t s = 0; s < both.size(); ++s) {
    ASSERT_EQ(both[s].sections.size(), 4u);
    EXPECT_EQ(both[s].slots.size(), halves[s].slots.size());
    EXPECT_EQ(both[s].sections[1].kind, Kind::backward);
  }
}

const SectionGraph* section(const StageGraphs& stage, Kind kind) {
  for (const SectionGraph& one : stage.sections)
    if (one.kind == kind) return &one;
  return nullptr;
}

/// Of each working op how many; sums of parameters are "sum".
std::map<std::string, int> ops_of(const SectionGraph& section) {
  std::map<std::string, int> out;
  for (const Node& node : section.graph.nodes) {
    const OpSchema* schema = World::get().ops.find(node.op);
    if (node.inputs.empty() || node.stage < 0 || (schema && schema->view)) continue;
    ++out[schema && schema->updates ? "sum" : node.op];
  }
  return out;
}

TEST(Split, WeightGradientsAreProductsOfActivations) {
  const Staged made = staged("llama-untied-optimum18", stages(2));
  const auto all = made.split(false, true);
  using Ops = std::map<std::string, int>;
  // Seven Linears a layer; the embedding; the head.
  EXPECT_EQ(ops_of(*section(all[0], Kind::weight_gradient)), (Ops{{"plait.LinearWeight", 7}, {"plait.EmbeddingBack", 1}, {"sum", 8}}));
  EXPECT_EQ(ops_of(*section(all[1], Kind::weight_gradient)), (Ops{{"plait.LinearWeight", 7}, {"sum", 7}}));
  // Two norms a layer, and the last one with the head, whose gradient its loss makes.
  EXPECT_EQ(ops_of(*section(all[0], Kind::input_gradient))["sum"], 2);
  EXPECT_EQ(ops_of(*section(all[1], Kind::input_gradient))["sum"], 4);
  for (const StageGraphs& stage : all) {
    EXPECT_TRUE(section(stage, Kind::weight_gradient)->takes.empty());
    EXPECT_TRUE(section(stage, Kind::weight_gradient)->gives.empty());
    EXPECT_EQ(ops_of(*section(stage, Kind::input_gradient)).count("plait.LinearWeight"), 0u);
  }
}

/// What crosses is listed alike on both sides, and goes one way in F and the other in I or B.
TEST(Split, MessagesMatch) {
  for (const char* fixture : split_fixtures)
    for (bool halves : {false, true}) {
      SCOPED_TRACE(cat(fixture, halves));
      const Staged made = staged(fixture, stages(3));
      const auto all = made.split(!halves, halves);
      const Kind back = halves ? Kind::input_gradient : Kind::backward;
      for (const StageGraphs& stage : all)
        for (const SectionGraph& one : stage.sections)
          for (const StageMessage& give : one.gives) {
            EXPECT_EQ(give.stage, stage.stage + (one.kind == Kind::forward ? 1 : -1));
            const SectionGraph* taker =
                section(all[static_cast<size_t>(give.stage)], one.kind == Kind::forward ? Kind::forward : back);
            ASSERT_TRUE(taker);
            ASSERT_EQ(taker->takes.size(), 1u);
            EXPECT_EQ(taker->takes[0].stage, stage.stage);
            ASSERT_EQ(taker->takes[0].values.size(), give.values.size());
            for (size_t i = 0; i < give.values.size(); ++i) {
              const Type& given = one.graph.value(one.graph.outputs[static_cast<size_t>(give.values[i])]).type;
              const Slot& slot = all[static_cast<size_t>(give.stage)].slots[static_cast<size_t>(taker->takes[0].values[i])];
              EXPECT_EQ(given.dtype, slot.dtype);
              EXPECT_EQ(*given.dims, slot.dims);
            }
          }
    }
}

/// A slot's pool ends with the last section that reads it, and one section makes it or takes it.
TEST(Split, SlotsLiveAsLongAsTheyAreRead) {
  for (Recompute recompute : {Recompute::off, Recompute::full}) {
    const Staged made = staged("llama-untied-optimum18", stages(2, recompute));
    for (const StageGraphs& stage : made.split(false, true)) {
      SCOPED_TRACE(cat(static_cast<int>(recompute), " stage ", stage.stage));
      for (size_t number = 0; number < stage.slots.size(); ++number) {
        std::set<Kind> makers, readers;
        for (const SectionGraph& one : stage.sections)
          for (const auto& [id, slot] : one.slots) {
            if (static_cast<size_t>(slot) != number) continue;
            const auto& inputs = one.graph.inputs;
            const bool reads = std::find(inputs.begin(), inputs.end(), id) != inputs.end();
            (reads ? readers : makers).insert(one.kind);
            for (const StageMessage& take : one.takes)
              if (std::find(take.values.begin(), take.values.end(), slot) != take.values.end()) makers.insert(one.kind);
          }
        ASSERT_EQ(makers.size(), 1u) << number;
        ASSERT_FALSE(readers.empty()) << number;
        const Kind last = *readers.rbegin();
        const SlotPool pool = stage.slots[number].pool;
        EXPECT_EQ(pool == SlotPool::action, last == *makers.begin()) << number;
        EXPECT_EQ(pool == SlotPool::forward_to_weight, *makers.begin() == Kind::forward && last == Kind::weight_gradient);
        EXPECT_EQ(pool == SlotPool::input_to_weight, *makers.begin() == Kind::input_gradient && last == Kind::weight_gradient);
      }
    }
  }
}

TEST(Split, EvaluationsAreForwardOnly) {
  const Staged made = staged("llama-untied-optimum18", stages(3));
  for (const StageGraphs& stage : split(made.after.at("stage"), World::get().ops, {.stages = 3})) {
    ASSERT_EQ(stage.sections.size(), 1u);
    EXPECT_EQ(stage.sections[0].kind, Kind::forward);
    EXPECT_EQ(stage.sections[0].results.empty(), stage.stage != 2);
  }
}

/// Values that a size is found from only when they are computed cannot wait in a slot.
TEST(Split, RefusesSizesThatAreComputed) {
  const Graph graph = parse_graph(R"(input %0 "x" : f32[4]
node "places" stage 0 : %1 : i64[1, n] = NonZero(%0)
node "reals" stage 0 : %2 : f32[1, n] = Cast(%1) to=1
node "across" stage 1 : %3 : f32[1, n] = plait.Cross(%2) from=0 to=1
node "out" stage 1 : %4 : f32[1, n] = Tanh(%3)
output %4
)");
  try {
    split(graph, World::get().ops, {.stages = 2});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    EXPECT_NE(error.message().find("whose size is known only when it is computed"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace plait::test
