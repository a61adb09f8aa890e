// Bodies of If and Loop: what they read from outside becomes visible.
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

/// if c then x + w, or -z
ModelBuilder choice() {
  ModelBuilder b;
  b.input("c", {}, 9);
  b.input("x", {"s", "4"});
  b.input("z");
  b.initializer("w", 1, {1}).add_float_data(1);
  auto& node = b.node("If", {"c"}, {"y"});
  auto& yes = set_graph(node, "then_branch");
  add_node(*yes.mutable_node(), "Add", {"x", "w"}, {"y"});  // an inner name that the outer graph has too
  yes.add_output()->set_name("y");
  auto& no = set_graph(node, "else_branch");
  add_node(*no.mutable_node(), "Neg", {"z"}, {"n"});
  no.add_output()->set_name("n");
  b.output("y");
  return b;
}

TEST(Bodies, CapturesBecomeOperandsOfNodeAndBodies) {
  Graph g = choice().import().graph;
  ASSERT_EQ(ops_of(g), Names{"If"});
  const Node& node = g.nodes[0];
  EXPECT_EQ(names_of(g, node.inputs), (Names{"c", "x", "z"}));
  ASSERT_EQ(node.bodies.size(), 2u);
  const Graph& yes = *node.bodies[0].second;
  const Graph& no = *node.bodies[1].second;
  EXPECT_EQ(node.bodies[0].first, "then_branch");
  EXPECT_EQ(names_of(yes, yes.inputs), (Names{"x", "z"})) << "all captures, in one order, in both";
  EXPECT_EQ(names_of(no, no.inputs), (Names{"x", "z"}));
  EXPECT_EQ(text(yes.value(yes.inputs[0]).type, yes.symbols), "f32[s, 4]");
  EXPECT_EQ(yes.nodes[0].inputs[0], yes.inputs[0]);
}

TEST(Bodies, ConstantsAreSharedInstead) {
  Graph g = choice().import().graph;
  const Graph& yes = *g.nodes[0].bodies[0].second;
  ValueId w = yes.nodes[0].inputs[1];
  ASSERT_NE(yes.constant(w), nullptr);
  EXPECT_EQ(yes.value(w).constant, g.value(g.find("w")).constant);
}

/// Initializers or Constant nodes, in one body or in both: their names are the store's.
TEST(Bodies, ConstantsOfOneNameStayTwo) {
  for (bool first_is_node : {false, true})
    for (bool second_is_node : {false, true}) {
      ModelBuilder b;
      b.input("c", {}, 9);
      auto& node = b.node("If", {"c"}, {"y"});
      float value = 1;
      for (bool is_node : {first_is_node, second_is_node}) {
        auto& body = set_graph(node, value == 1 ? "then_branch" : "else_branch");
        auto& w = is_node ? *add_attribute(add_node(*body.mutable_node(), "Constant", {}, {"w"}), "value",
                                           onnx::AttributeProto::TENSOR)
                                 .mutable_t()
                          : *body.add_initializer();
        if (!is_node) w.set_name("w");
        w.set_data_type(1);
        w.add_dims(1);
        w.add_float_data(value++);
        add_node(*body.mutable_node(), "Neg", {"w"}, {"r"});
        body.add_output()->set_name("r");
      }
      b.output("y");
      Graph g = b.import().graph;
      auto constant = [&](size_t body) {
        const Graph& graph = *g.nodes[0].bodies[body].second;
        return *graph.value(graph.nodes[0].inputs[0]).constant;
      };
      EXPECT_NE(constant(0).initializer, constant(1).initializer) << "the store would take one for the other";
      EXPECT_EQ(constant(0).source.as<float>()[0], 1);
      EXPECT_EQ(constant(1).source.as<float>()[0], 2);
    }
}

TEST(Bodies, CapturesThroughTwoLevels) {
  ModelBuilder b;
  b.input("c", {}, 9);
  b.input("x");
  auto& outer = b.node("If", {"c"}, {"y"});
  for (const char* name : {"then_branch", "else_branch"}) {
    auto& body = set_graph(outer, name);
    auto& inner = add_node(*body.mutable_node(), "If", {"c"}, {"r"});
    for (const char* branch : {"then_branch", "else_branch"}) {
      auto& leaf = set_graph(inner, branch);
      add_node(*leaf.mutable_node(), "Neg", {"x"}, {"q"});
      leaf.add_output()->set_name("q");
    }
    body.add_output()->set_name("r");
  }
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_EQ(names_of(g, g.nodes[0].inputs), (Names{"c", "c", "x"}));
  const Graph& middle = *g.nodes[0].bodies[0].second;
  EXPECT_EQ(names_of(middle, middle.nodes[0].inputs), (Names{"c", "x"}));
}

TEST(Bodies, ABranchMayReturnWhatItCaptures) {
  ModelBuilder b = choice();
  auto& no = *b.graph().mutable_node(0)->mutable_attribute(1)->mutable_g();
  no.clear_node();
  no.mutable_output(0)->set_name("x");
  Graph g = b.import().graph;
  const Graph& body = *g.nodes[0].bodies[1].second;
  EXPECT_EQ(body.outputs[0], body.inputs[0]);
}

ModelBuilder loop() {
  ModelBuilder b;
  b.input("trips", {}, 7);
  b.input("x");
  b.input("step");
  auto& node = b.node("Loop", {"trips", "", "x"}, {"y", "all"});
  auto& body = set_graph(node, "body");
  for (const char* name : {"i", "go", "v"}) body.add_input()->set_name(name);
  add_node(*body.mutable_node(), "Add", {"v", "step"}, {"w"});
  add_node(*body.mutable_node(), "Identity", {"go"}, {"on"});
  for (const char* name : {"on", "w", "v"}) body.add_output()->set_name(name);
  b.output("y");
  return b;
}

TEST(Bodies, Loop) {
  Graph g = loop().import().graph;
  const Node& node = g.nodes[0];
  EXPECT_EQ(names_of(g, node.inputs), (Names{"trips", "", "x", "step"}));
  EXPECT_EQ(node.attributes.integer("carried"), 1) << "captures come behind";
  const Graph& body = *node.bodies[0].second;
  EXPECT_EQ(names_of(body, body.inputs), (Names{"i", "go", "v", "step"}));
}

TEST(Bodies, SizesThatAFileDeclaresForStackedValuesAreKept) {
  ModelBuilder b = loop();
  auto& body = *b.graph().mutable_node(0)->mutable_attribute(0)->mutable_g();
  auto& shape = *body.mutable_output(2)->mutable_type()->mutable_tensor_type()->mutable_shape();
  body.mutable_output(2)->mutable_type()->mutable_tensor_type()->set_elem_type(1);
  shape.add_dim()->set_dim_value(7);
  shape.add_dim()->set_dim_param("q");
  EXPECT_EQ(b.import().graph.nodes[0].attributes.integers("empty_sizes"), (std::vector<int64_t>{2, 7, 0}));
  EXPECT_FALSE(loop().import().graph.nodes[0].attributes.has("empty_sizes"));
}

TEST(Bodies, OperandCountsAreChecked) {
  ModelBuilder b = loop();
  auto& body = *b.graph().mutable_node(0)->mutable_attribute(0)->mutable_g();
  body.mutable_input()->RemoveLast();
  body.mutable_node(0)->set_input(0, "i");
  body.mutable_output()->RemoveLast();
  expect_bad(b, {"\"body\"", "2 inputs, expected 3"});
  b = loop();
  b.graph().mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_output()->RemoveLast();
  expect_bad(b, {"2 outputs, expected 3"});
  b = choice();
  b.graph().mutable_node(0)->mutable_attribute(0)->mutable_g()->add_input()->set_name("p");
  expect_bad(b, {"then_branch", "1 inputs, expected 0"});
}

TEST(Bodies, TheWordsOfTheImporterAreNotForFiles) {
  for (const char* word : {"carried", "empty_sizes"}) {
    ModelBuilder b = loop();
    set_int(*b.graph().mutable_node(0), word, 9);
    expect_bad(b, {word});
  }
}

TEST(Bodies, OnlyWhereTheOpHasThem) {
  ModelBuilder b;
  b.input("x");
  set_graph(b.node("Neg", {"x"}, {"y"}), "body");
  b.output("y");
  expect_bad(b, {"Neg", "\"body\""});
  b = choice();
  b.graph().mutable_node(0)->mutable_attribute()->RemoveLast();
  expect_bad(b, {"else_branch"});
}

TEST(Bodies, UndefinedNamesInside) {
  ModelBuilder b = choice();
  b.graph().mutable_node(0)->mutable_attribute(0)->mutable_g()->mutable_node(0)->set_input(0, "nowhere");
  expect_bad(b, {"then_branch", "\"nowhere\""});
}

TEST(Bodies, ABodyThatReadsItsOwnResultIsACycle) {
  ModelBuilder b = choice();
  auto& no = *b.graph().mutable_node(0)->mutable_attribute(1)->mutable_g();
  no.mutable_node(0)->set_input(0, "y");
  expect_bad(b, {"cycle"});
}

TEST(Bodies, InAFunctionTheySeeItsNamesAndAttributes) {
  ModelBuilder b;
  b.import_opset("local", 1);
  b.input("c", {}, 9);
  b.input("x");
  auto& f = b.function("F", {"p", "a"}, {"r"});
  f.add_attribute("alpha");
  auto& node = add_node(*f.mutable_node(), "If", {"p"}, {"r"});
  for (const char* name : {"then_branch", "else_branch"}) {
    auto& body = set_graph(node, name);
    auto& gemm = add_node(*body.mutable_node(), "Gemm", {"a", "a"}, {"q"});
    set_reference(gemm, "alpha", "alpha", onnx::AttributeProto::FLOAT);
    body.add_output()->set_name("q");
  }
  add_attribute(b.node("F", {"c", "x"}, {"y"}, "local"), "alpha", onnx::AttributeProto::FLOAT).set_f(2);
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_EQ(names_of(g, g.nodes[0].inputs), (Names{"c", "x"}));
  EXPECT_EQ(g.nodes[0].bodies[0].second->nodes[0].attributes.real("alpha", 0), 2);
}

}  // namespace
}  // namespace plait
