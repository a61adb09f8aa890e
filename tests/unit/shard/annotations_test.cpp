// Annotations of a file's tensors and plans: one leads to the other and back, for every recipe of a weight that there is.
#include "core/passes/shard/annotations.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/text.h"
#include "core/passes/compile.h"
#include "importers/onnx/export.h"
#include "tests/unit/shard/lockstep.h"
#include "tests/unit/support/zoo.h"

namespace plait::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

ShardPlan plan_of(const Raised& raised, const Mesh& mesh, const ShardSeeds& seeds) {
  Graph graph = raised.graph;
  return shard(graph, World::get().ops, mesh, seeds);
}

std::vector<std::string> collectives(const ShardPlan& plan, const Mesh& mesh) {
  std::vector<std::string> out;
  for (const PlannedCollective& one : plan.collectives)
    out.push_back(cat(kind_name(one.step.kind), " ", mesh.text(one.step.axes), " ", one.step.dim, " of ", one.what,
                      " for ", one.for_node));
  return out;
}

std::map<std::string, std::string> weights(const Raised& raised, const ShardPlan& plan, const Mesh& mesh) {
  std::map<std::string, std::string> out;
  for (const auto& [id, sharding] : plan.weights)
    out[cat(id, " ", raised.graph.value(id).name)] = text(sharding, mesh);
  return out;
}

/// Plans the recipe, annotates, reads the annotations as seeds, and plans again.
void expect_round_trip(Raised raised, const std::string& mesh_text, Recipe recipe = Recipe::tensor) {
  SCOPED_TRACE(mesh_text);
  const Mesh mesh = Mesh::parse(mesh_text);
  for (const auto& [name, typical] : {std::pair("t", 16), std::pair("r", 4)})
    if (auto id = raised.graph.symbols.find(name)) raised.graph.symbols[*id].typical = typical;
  const ShardSeeds seeds = recipe_seeds(raised.graph, World::get().ops, mesh, mesh.parts("tensor"), recipe);
  const ShardPlan plan = plan_of(raised, mesh, seeds);
  std::vector<std::string> notes;
  const DeviceConfiguration written = configuration_of(raised.graph, mesh, plan.weights, notes);
  EXPECT_EQ(written.devices, mesh.ranks());
  const ShardSeeds read = annotated_seeds(raised.graph, mesh, {{written}}, notes);
  // A byte of the file that holds the zero points of two blocks, which two ranks have, is no part of one.
  for (const std::string& note : notes)
    EXPECT_THAT(note, testing::AnyOf(HasSubstr("computed at compile time"),
                                     testing::AllOf(HasSubstr("zero_points"), HasSubstr("through elements"))));
  for (const auto& [id, sharding] : plan.weights) {
    auto found = read.find(id);
    if (found == read.end()) EXPECT_TRUE(sharding.is_replicated() || !notes.empty()) << raised.graph.value(id).name;
    else EXPECT_EQ(text(found->second, mesh), text(sharding, mesh)) << raised.graph.value(id).name;
  }
  const ShardPlan again = plan_of(raised, mesh, read);
  EXPECT_EQ(weights(raised, again, mesh), weights(raised, plan, mesh));
  EXPECT_EQ(collectives(again, mesh), collectives(plan, mesh));
}

class Annotated : public testing::TestWithParam<ZooModel> {};

TEST_P(Annotated, APlanComesBack) {
  const Raised one = raised(imported(GetParam()));
  ASSERT_TRUE(one.decoder.recognised);
  for (const char* mesh : {"tensor=2", "tensor=3", "tensor=4", "tensor=6", "data=2,tensor=2"})
    expect_round_trip(one, mesh);
  expect_round_trip(one, "tensor=2", Recipe::expert);
}

std::vector<ZooModel> every_recognised() {
  std::vector<ZooModel> out;
  for (const ZooModel& model : zoo())
    if (model.plain.empty() && model.name.find("nocache") == std::string::npos) out.push_back(model);
  return out;
}
INSTANTIATE_TEST_SUITE_P(Zoo, Annotated, testing::ValuesIn(every_recognised()),
                         [](const auto& info) { return test_name(info.param.name); });

/// Packed and split projections, tied and quantised weights, experts one by one and stacked, weights that bodies read.
TEST(ShardAnnotations, AreTheSameThroughAFile) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / cat("plait_annotations_", getpid());
  for (const char* name : {"gpt2/optimum18", "gpt2/merged13", "phi3/optimum18", "qwen3/q_int4", "qwen3_moe/q_int4",
                           "mixtral/dynamo18", "gemma3/q_int4_qdq"})
    for (const char* mesh_text : {"tensor=2", "pipeline=2,tensor=2"}) {
      const auto found =
          std::find_if(zoo().begin(), zoo().end(), [&](const ZooModel& one) { return one.name == name; });
      ASSERT_NE(found, zoo().end()) << name;
      const ZooModel& model = *found;
      SCOPED_TRACE(cat(model.name, " ", mesh_text));
      fs::remove_all(folder);
      CompileOptions options = World::get().options();
      options.mesh = Mesh::parse(mesh_text);
      if (options.mesh.ranks() == 4) options.stages.seats = {{0}, {1}};
      const Raised before = raised(imported(model));
      std::vector<std::string> notes;
      const DeviceConfiguration plan = planned_configuration(before.graph, before.graph, options, notes);
      EXPECT_GT(plan.tensors.size(), 5u);
      EXPECT_EQ(plan.stages.empty(), options.stages.seats.empty());
      const auto beside = [&](const std::string& location) { return map_beside(model.path, location); };
      EXPECT_THAT(export_model(map_file(model.path), beside, {nullptr, &plan}, folder.string(), "m.onnx"), IsEmpty());
      const ImportedModel after = import_file((folder / "m.onnx").string(), options.ops);
      ASSERT_EQ(after.configurations.size(), 1u);
      EXPECT_EQ(after.configurations[0].name, mesh_text);
      EXPECT_THAT(after.configurations[0].tensors, testing::UnorderedElementsAreArray(plan.tensors));
      EXPECT_THAT(after.warnings, testing::Not(testing::Contains(HasSubstr("annotation"))));
      // The raised graphs are the same, and so are the seeds, and the plan.
      const Raised again = raised(after.graph);
      options.configurations = after.configurations;
      const ShardSeeds seeds = seeds_for(again.graph, options);
      EXPECT_EQ(seeds, annotated_seeds(before.graph, options.mesh, {{plan}}, notes));
      options.stages.from_file = true;
      const DeviceConfiguration second = planned_configuration(after.graph, again.graph, options, notes);
      EXPECT_EQ(second.tensors, plan.tensors);
      EXPECT_EQ(second.stages, plan.stages);
    }
  fs::remove_all(folder);
}

/// A graph of one product per constant, for annotations made by hand. Tensor "w" of [8, 12] is its weight.
struct ByHand {
  Graph graph;
  ShardingSpec spec{"w", {}, {}, {}};

  explicit ByHand(std::vector<RecipeStep> steps = {}) { add(std::move(steps)); }
  ValueId add(std::vector<RecipeStep> steps) {
    std::vector<float> numbers(96);
    const Constant constant{"w", Tensor::of<float>(DType::f32, Shape{8, 12}, numbers), std::move(steps)};
    const ValueId id = graph.add_constant(constant);
    graph.add_node("Identity", {id});
    return id;
  }
  ByHand& cut(int32_t axis, std::vector<ShardingSpec::Factor> factors) {
    spec.axes.push_back({axis, std::move(factors)});
    return *this;
  }
  ByHand& on(const std::vector<std::vector<int32_t>>& parts) {
    for (const auto& devices : parts) {
      spec.holders.push_back(static_cast<int32_t>(spec.groups.size()));
      spec.groups.push_back(devices);
    }
    return *this;
  }
  ShardSeeds seeds(const std::string& mesh, int32_t devices, std::vector<std::string>* told = nullptr) const {
    std::vector<std::string> notes;
    ShardSeeds out = annotated_seeds(graph, Mesh::parse(mesh), {{DeviceConfiguration{"c", devices, {spec}}}}, notes);
    if (told) *told = notes;
    else EXPECT_THAT(notes, IsEmpty());
    return out;
  }
  std::string seed(const std::string& mesh, int32_t devices) const {
    const ShardSeeds all = seeds(mesh, devices);
    return all.empty() ? "none" : text(all.begin()->second, Mesh::parse(mesh));
  }
};

TEST(ShardAnnotations, BlocksInTheOrderOfTheRanks) {
  EXPECT_EQ(ByHand().cut(0, {{8, 2}}).on({{0}, {1}}).seed("tensor=2", 2), "[tensor, -]");
  EXPECT_EQ(ByHand().on({{0, 1}}).seed("tensor=2", 2), "[-, -]") << "everywhere, as the file wants it";
  // Devices of one replica, and of all.
  EXPECT_EQ(ByHand().cut(1, {{12, 2}}).on({{0}, {1}}).seed("data=2,tensor=2", 2), "[-, tensor]");
  EXPECT_EQ(ByHand().cut(1, {{12, 2}}).on({{0, 2}, {1, 3}}).seed("data=2,tensor=2", 4), "[-, tensor]");
  // Sub-axes: two by two, both dims, and the faster axis in front.
  EXPECT_EQ(ByHand().cut(0, {{8, 2}}).on({{0, 1}, {2, 3}}).seed("tensor=4", 4), "[tensor.0, -]");
  EXPECT_EQ(ByHand().cut(0, {{8, 2}}).on({{0, 2}, {1, 3}}).seed("tensor=4", 4), "[tensor.1, -]");
  EXPECT_EQ(ByHand().cut(0, {{8, 2}}).cut(1, {{12, 2}}).on({{0}, {1}, {2}, {3}}).seed("tensor=4", 4),
            "[tensor.0, tensor.1]");
  EXPECT_EQ(ByHand().cut(1, {{12, 2}}).cut(0, {{8, 2}}).on({{0}, {1}, {2}, {3}}).seed("tensor=4", 4),
            "[tensor.1, tensor.0]");
  EXPECT_EQ(ByHand().cut(0, {{8, 4}}).on({{0}, {2}, {1}, {3}}).seed("tensor=4", 4), "[tensor.1 tensor.0, -]");
  EXPECT_EQ(ByHand({{RecipeStep::Kind::transpose, {1, 0}}}).cut(0, {{8, 2}}).on({{0}, {1}}).seed("tensor=2", 2),
            "[-, tensor]");
}

TEST(ShardAnnotations, SlicesOfATensor) {
  using Kind = RecipeStep::Kind;
  // Three matrices of 4 columns side by side, each cut.
  ByHand packed({{Kind::slice, {1, 0, 4}}});
  packed.add({{Kind::slice, {1, 4, 8}}});
  packed.add({{Kind::slice, {1, 8, 12}}, {Kind::transpose, {1, 0}}});
  packed.cut(1, {{3, 1}, {4, 2}}).on({{0}, {1}});
  std::vector<std::string> found;
  for (const auto& [id, sharding] : packed.seeds("tensor=2", 2))
    found.push_back(text(sharding, Mesh::parse("tensor=2")));
  EXPECT_THAT(found, testing::ElementsAre("[-, tensor]", "[-, tensor]", "[tensor, -]"));
  // What is written of it.
  std::vector<std::string> notes;
  const Mesh mesh = Mesh::parse("tensor=2");
  std::map<ValueId, Sharding> weights;
  for (const auto& [id, sharding] : packed.seeds("tensor=2", 2)) weights[id] = sharding;
  const DeviceConfiguration written = configuration_of(packed.graph, mesh, weights, notes);
  EXPECT_EQ(written.name, "tensor=2");
  EXPECT_THAT(written.tensors, testing::ElementsAre(packed.spec));
  EXPECT_THAT(notes, IsEmpty());

  // Parts of different widths, each cut: pieces that go to the ranks by turns.
  ByHand uneven({{Kind::slice, {1, 0, 8}}});
  const ValueId narrow = uneven.add({{Kind::slice, {1, 8, 12}}});
  weights.clear();
  weights[0] = weights[narrow] = Sharding::cut(2, 1, mesh.parts("tensor"));
  uneven.spec = configuration_of(uneven.graph, mesh, weights, notes).tensors.at(0);
  EXPECT_THAT(uneven.spec.axes, testing::ElementsAre(ShardingSpec::Axis{1, {{12, 6}}}));
  EXPECT_THAT(uneven.spec.holders, testing::ElementsAre(0, 0, 1, 1, 0, 1));
  EXPECT_EQ(uneven.seeds("tensor=2", 2), weights);

  // All of it cut in two, regardless of what is packed: neither half has both parts of a slice.
  std::vector<std::string> told;
  ByHand across({{Kind::slice, {1, 0, 4}}});
  EXPECT_THAT(across.cut(1, {{12, 2}}).on({{0}, {1}}).seeds("tensor=2", 2, &told), IsEmpty());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], testing::AllOf(HasSubstr("\"w\""), HasSubstr("slice 1 0 4"), HasSubstr("equal blocks")));
}

template <class Action>
void expect_refused(const std::vector<std::string>& parts, Action action) {
  try {
    action();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    for (const std::string& part : parts) EXPECT_THAT(error.message(), HasSubstr(part));
  }
}

TEST(ShardAnnotations, WhatDoesNotFitAMeshIsAnError) {
  expect_refused({"\"tensor=3\" has 3 ranks", "\"c\" of 2 devices"}, [] {
    ByHand().cut(0, {{8, 2}}).on({{0}, {1}}).seeds("tensor=3", 2);
  });
  expect_refused({"\"w\"", "2 parts on devices 1, 0", "tensor=2"}, [] {
    ByHand().cut(0, {{8, 2}}).on({{1}, {0}}).seeds("tensor=2", 2);
  });
  expect_refused({"4 parts on devices 0, 1, 0, 1"}, [] {
    ByHand().cut(0, {{8, 4}}).on({{0}, {1}, {0}, {1}}).seeds("tensor=2", 2);
  });
  expect_refused({"2 parts on devices 0, 1", "tensor=4"}, [] {
    ByHand().cut(0, {{8, 2}}).on({{0}, {1}}).seeds("tensor=4", 4);
  });
  expect_refused({"2 parts on devices 0+1, 2+3", "axis tensor"},  // along the axis data
                 [] {
                   ByHand().cut(1, {{12, 2}}).on({{0, 1}, {2, 3}}).seeds("data=2,tensor=2", 4);
                 });
  expect_refused({"2 parts on devices 0+1+2, 3"}, [] {
    ByHand().cut(0, {{8, 2}}).on({{0, 1, 2}, {3}}).seeds("tensor=4", 4);
  });
}

TEST(ShardAnnotations, OneTensorCutInTwoWaysIsTold) {
  const Mesh mesh = Mesh::parse("tensor=2");
  ByHand tied;
  const ValueId transposed = tied.add({{RecipeStep::Kind::transpose, {1, 0}}});
  std::map<ValueId, Sharding> weights{{0, Sharding::cut(2, 0, mesh.parts("tensor"))},
                                      {transposed, Sharding::cut(2, 1, mesh.parts("tensor"))}};
  std::vector<std::string> notes;
  EXPECT_EQ(configuration_of(tied.graph, mesh, weights, notes).tensors.size(), 1u);
  EXPECT_THAT(notes, IsEmpty()) << "both are the same of the file";
  weights[transposed] = Sharding::replicated(2);
  EXPECT_EQ(configuration_of(tied.graph, mesh, weights, notes).tensors.at(0).axes.at(0).axis, 0);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], testing::AllOf(HasSubstr("\"w\""), HasSubstr("different shardings")));
}

/// Of the weights whose names end so.
std::set<std::string> cuts_of(const Graph& graph, const ShardSeeds& seeds, const Mesh& mesh, std::string_view end) {
  std::set<std::string> out;
  for (const auto& [id, sharding] : seeds)
    if (graph.value(id).constant->initializer.ends_with(end)) out.insert(text(sharding, mesh));
  return out;
}

TEST(ShardAnnotations, AFileThatWasAnnotatedByHandIsHonoured) {
  const ImportedModel model = import_file(fixture("llama-annotated23"), World::get().ops);
  EXPECT_THAT(model.warnings, IsEmpty());
  const Raised one = raised(model.graph);
  ASSERT_TRUE(one.decoder.recognised);
  // By the file's axes: weights of Linears are the other way round in the raised graph.
  const std::map<std::string, std::map<std::string, std::string>> expected{{"tensor=2",
                                                                            {{"q_proj.weight", "[tensor, -]"},
                                                                             {"k_proj.weight", "[tensor, -]"},
                                                                             {"o_proj.weight", "[-, tensor]"},
                                                                             {"up_proj.weight", "[tensor, -]"},
                                                                             {"down_proj.weight", "[-, tensor]"},
                                                                             {"embed_tokens.weight", "[tensor, -]"}}},
                                                                           {"tensor=4",
                                                                            {{"q_proj.weight", "[tensor, -]"},
                                                                             {"k_proj.weight", "[tensor.0, -]"},
                                                                             {"o_proj.weight", "[-, tensor]"},
                                                                             {"up_proj.weight", "[tensor, -]"},
                                                                             {"down_proj.weight", "[-, tensor]"},
                                                                             {"embed_tokens.weight", "[-, -]"}}}};
  // Four ranks, of which two by two have the same: what is said of two devices.
  auto all = expected;
  all["data=2,tensor=2"] = expected.at("tensor=2");
  for (const auto& [mesh_text, cuts] : all) {
    SCOPED_TRACE(mesh_text);
    const Mesh mesh = Mesh::parse(mesh_text);
    CompileOptions options = World::get().options();
    options.mesh = mesh;
    options.configurations = model.configurations;
    const ShardSeeds seeds = seeds_for(one.graph, options);
    for (const auto& [name, cut] : cuts)
      EXPECT_THAT(cuts_of(one.graph, seeds, mesh, name), testing::ElementsAre(cut)) << name;
    options.seeds = {"file"};
    EXPECT_EQ(seeds_for(one.graph, options), seeds);
    options.seeds = {"tensor"};
    EXPECT_EQ(seeds_for(one.graph, options), recipe_seeds(one.graph, options.ops, mesh, mesh.parts("tensor")));
    options.seeds = {"file", "tensor"};
    expect_refused({"\"file\"", "others"}, [&] { seeds_for(one.graph, options); });
    // And what the ranks compute is what one does.
    const Step step = step_of(one, {{1, 5, 9, 200, 3, 7, 7, 12, 31, 90, 4, 2, 18, 25, 33, 41, 8}, {3, 100}});
    const Tensor whole = run_lockstep(one.graph, Mesh(), step)[0];
    Graph of_ranks = one.graph;
    shard(of_ranks, options.ops, mesh, seeds);
    for (const Tensor& got : run_lockstep(of_ranks, mesh, step))
      for (int64_t i = 0; i < whole.elements(); ++i) ASSERT_NEAR(got.as<float>()[i], whole.as<float>()[i], 2e-4) << i;
  }
  CompileOptions options = World::get().options();
  options.mesh = Mesh::parse("tensor=3");
  options.configurations = model.configurations;
  EXPECT_EQ(seeds_for(one.graph, options), seeds_of(one.graph, options.ops, options.mesh, {}))
      << "the file has nothing for three";
  options.mesh = Mesh::parse("data=2");
  EXPECT_EQ(seeds_for(one.graph, options), seeds_of(one.graph, options.ops, options.mesh, {}))
      << "two ranks, but not of the axis tensor";
  options.seeds = {"file"};
  expect_refused({"2 parts on devices 0, 1", "\"data=2\""}, [&] { seeds_for(one.graph, options); });
  options.mesh = Mesh::parse("tensor=3");
  expect_refused({"\"tensor=3\" has 3 ranks", "\"two\" of 2 devices", "\"four\" of 4 devices"},
                 [&] { seeds_for(one.graph, options); });
}

TEST(ShardAnnotations, ConfigurationsAndMeshes) {
  const std::vector<DeviceConfiguration> all{
      {"a", 4, {}}, {"tensor=4", 4, {}}, {"b", 2, {}}, {"data=2,tensor=4", 2, {}}};
  auto names = [&](const char* mesh) {
    std::vector<std::string> out;
    for (const DeviceConfiguration* one : configurations_for(Mesh::parse(mesh), all)) out.push_back(one->name);
    return join(out, " ");
  };
  EXPECT_EQ(names("tensor=4"), "tensor=4 a");
  EXPECT_EQ(names("data=2,tensor=2"), "a tensor=4 b data=2,tensor=4");
  EXPECT_EQ(names("data=3,tensor=2"), "b data=2,tensor=4");
  EXPECT_EQ(names("tensor=8"), "");
  EXPECT_EQ(mesh_of(all[0]).text(), "tensor=4");
  EXPECT_EQ(mesh_of(all[3]).text(), "tensor=2") << "a name that is no mesh of 2 ranks";
  EXPECT_EQ(mesh_of({"data=2,tensor=2", 4, {}}).text(), "data=2,tensor=2");
}

}  // namespace
}  // namespace plait::test
