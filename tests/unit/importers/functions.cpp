// Local functions become the nodes that they stand for.
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

using A = onnx::AttributeProto;

ModelBuilder with_local() {
  ModelBuilder b;
  b.import_opset("local", 1);
  b.input("x");
  return b;
}

TEST(Functions, AreInlined) {
  ModelBuilder b = with_local();
  auto& f = b.function("Twice", {"a"}, {"r"});
  add_node(*f.mutable_node(), "Add", {"a", "a"}, {"t"}).set_name("add");
  add_node(*f.mutable_node(), "Neg", {"t"}, {"r"});
  b.node("Twice", {"x"}, {"t"}, "local").set_name("one");
  b.node("Twice", {"t"}, {"y"}, "local");
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_EQ(ops_of(g), (Names{"Add", "Neg", "Add", "Neg"}));
  EXPECT_EQ(g.nodes[0].name, "one/add");
  EXPECT_EQ(g.nodes[2].name, "Twice/add");
  EXPECT_EQ(names_of(g, g.nodes[1].outputs), Names{"t"}) << "the call's names, not the function's";
  EXPECT_EQ(names_of(g, g.nodes[0].outputs), Names{""});
}

TEST(Functions, CallEachOther) {
  ModelBuilder b = with_local();
  auto& outer = b.function("Outer", {"a"}, {"r"});
  add_node(*outer.mutable_node(), "Inner", {"a"}, {"r"}).set_domain("local");
  auto& inner = b.function("Inner", {"a"}, {"r"});
  add_node(*inner.mutable_node(), "Relu", {"a"}, {"r"}).set_name("relu");
  b.node("Outer", {"x"}, {"y"}, "local").set_name("n");
  b.output("y");
  Graph g = b.import().graph;
  ASSERT_EQ(ops_of(g), Names{"Relu"});
  EXPECT_EQ(g.nodes[0].name, "n/Inner/relu");
}

TEST(Functions, AttributesAreGivenDefaultedOrAbsent) {
  ModelBuilder b = with_local();
  auto& f = b.function("F", {"a"}, {"r"});
  f.add_attribute("alpha");
  auto& fallback = *f.add_attribute_proto();
  fallback.set_name("flip");
  fallback.set_type(A::INT);
  fallback.set_i(1);
  auto& gemm = add_node(*f.mutable_node(), "Gemm", {"a", "a"}, {"r"});
  set_reference(gemm, "alpha", "alpha", A::FLOAT);
  set_reference(gemm, "transB", "flip", A::INT);
  b.node("F", {"x"}, {"p"}, "local");
  auto& second = b.node("F", {"p"}, {"y"}, "local");
  add_attribute(second, "alpha", A::FLOAT).set_f(0.5f);
  set_int(second, "flip", 0);
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_FALSE(g.nodes[0].attributes.has("alpha")) << "absent means absent";
  EXPECT_EQ(g.nodes[0].attributes.integer("transB"), 1);
  EXPECT_EQ(g.nodes[1].attributes.real("alpha", 0), 0.5);
  EXPECT_EQ(g.nodes[1].attributes.integer("transB"), 0);
}

TEST(Functions, AConstantMayBeAnAttribute) {
  ModelBuilder b = with_local();
  auto& f = b.function("F", {}, {"r"});
  f.add_attribute("number");
  set_reference(add_node(*f.mutable_node(), "Constant", {}, {"r"}), "value_int", "number", A::INT);
  set_int(b.node("F", {}, {"y"}, "local"), "number", 42);
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_EQ(ints_of(g, g.outputs[0]), std::vector<int64_t>{42});
}

TEST(Functions, AbsentOperands) {
  ModelBuilder b = with_local();
  auto& f = b.function("F", {"a", "low", "high"}, {"r", "unused"});
  add_node(*f.mutable_node(), "Clip", {"a", "low", "high"}, {"r"});
  add_node(*f.mutable_node(), "Neg", {"a"}, {"unused"});
  b.node("F", {"x", "", "x"}, {"p"}, "local");
  b.node("F", {"p"}, {"y"}, "local");
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_EQ(g.nodes[0].inputs.size(), 3u);
  EXPECT_EQ(g.nodes[0].inputs[1], no_value);
  EXPECT_EQ(g.nodes[2].inputs.size(), 1u);
}

TEST(Functions, OperandsHandedThroughAreCopied) {
  ModelBuilder b = with_local();
  auto& f = b.function("F", {"a"}, {"a", "r", "r"});
  add_node(*f.mutable_node(), "Neg", {"a"}, {"r"});
  b.node("F", {"x"}, {"p", "q", "s"}, "local");
  for (const char* name : {"p", "q", "s"}) b.output(name);
  Graph g = b.import().graph;
  EXPECT_EQ(ops_of(g), (Names{"Neg", "Identity", "Identity"}));
  EXPECT_EQ(names_of(g, g.outputs), (Names{"p", "q", "s"}));
}

TEST(Functions, HaveOpsetsOfTheirOwn) {
  ModelBuilder b = with_local();
  auto& f = b.function("F", {"a"}, {"r"});
  f.mutable_opset_import(0)->set_version(11);
  set_ints(add_node(*f.mutable_node(), "Squeeze", {"a"}, {"r"}), "axes", {0});
  b.node("F", {"x"}, {"y"}, "local");
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs[1]), std::vector<int64_t>{0}) << "read as opset 11 inside the function";
}

TEST(Functions, AKnownOpIsPreferredButNotInOnnxsDomain) {
  ModelBuilder b = with_local();
  b.import_opset("com.microsoft", 1);
  add_node(*b.function("Known", {"a"}, {"r"}, "com.microsoft").mutable_node(), "Neg", {"a"}, {"r"});
  add_node(*b.function("Relu", {"a"}, {"r"}, "").mutable_node(), "Neg", {"a"}, {"r"});
  b.node("Known", {"x"}, {"h"}, "com.microsoft");
  b.node("Relu", {"h"}, {"y"});
  b.output("y");
  EXPECT_EQ(ops_of(b.import().graph), (Names{"com.microsoft.Known", "Neg"}));
}

TEST(Functions, OverloadsAreDifferentFunctions) {
  ModelBuilder b = with_local();
  add_node(*b.function("F", {"a"}, {"r"}).mutable_node(), "Neg", {"a"}, {"r"});
  auto& other = b.function("F", {"a"}, {"r"});
  other.set_overload("v2");
  add_node(*other.mutable_node(), "Relu", {"a"}, {"r"});
  b.node("F", {"x"}, {"h"}, "local").set_overload("v2");
  b.node("F", {"h"}, {"y"}, "local");
  b.output("y");
  EXPECT_EQ(ops_of(b.import().graph), (Names{"Relu", "Neg"}));
  other.clear_overload();
  expect_bad(b, {"local::F", "twice"});
}

TEST(Functions, CyclesAreRefused) {
  ModelBuilder b = with_local();
  add_node(*b.function("F", {"a"}, {"r"}).mutable_node(), "G", {"a"}, {"r"}).set_domain("local");
  auto& g = b.function("G", {"a"}, {"r"});
  add_node(*g.mutable_node(), "F", {"a"}, {"r"}).set_domain("local");
  b.node("F", {"x"}, {"y"}, "local");
  b.output("y");
  expect_bad(b, {"local::F", "calls itself"});
  // Through a body.
  g.clear_node();
  auto& choice = add_node(*g.mutable_node(), "If", {"a"}, {"r"});
  for (const char* name : {"then_branch", "else_branch"}) {
    auto& body = set_graph(choice, name);
    add_node(*body.mutable_node(), "F", {"a"}, {name}).set_domain("local");
    body.add_output()->set_name(name);
  }
  expect_bad(b, {"local::F", "calls itself"});
}

/// F0 calls F1 twice, F1 calls F2 twice, ...: 2^n nodes from n functions.
TEST(Functions, ExplosionsAreBounded) {
  ModelBuilder b = with_local();
  for (int i = 0; i < 60; ++i) {
    auto& f = b.function("F" + std::to_string(i), {"a"}, {"r"});
    std::string next = "F" + std::to_string(i + 1);
    add_node(*f.mutable_node(), next, {"a"}, {"t"}).set_domain("local");
    add_node(*f.mutable_node(), next, {"t"}, {"r"}).set_domain("local");
  }
  b.function("F60", {"a"}, {"a"});
  b.node("F0", {"x"}, {"y"}, "local");
  b.output("y");
  expect_bad(b, {"unfolds"});
}

TEST(Functions, DepthIsBounded) {
  ModelBuilder b = with_local();
  for (int i = 0; i < 200; ++i)
    add_node(*b.function("F" + std::to_string(i), {"a"}, {"r"}).mutable_node(), "F" + std::to_string(i + 1), {"a"},
             {"r"})
        .set_domain("local");
  add_node(*b.function("F200", {"a"}, {"r"}).mutable_node(), "Neg", {"a"}, {"r"});
  b.node("F0", {"x"}, {"y"}, "local");
  b.output("y");
  expect_bad(b, {"100 deep"});
}

TEST(Functions, BrokenOnes) {
  ModelBuilder b = with_local();
  auto& f = b.function("F", {"a"}, {"r"});
  add_node(*f.mutable_node(), "Neg", {"x"}, {"r"});
  b.node("F", {"x"}, {"y"}, "local");
  b.output("y");
  expect_bad(b, {"reads \"x\""});  // no capture of the caller's names
  f.mutable_node(0)->set_input(0, "a");
  f.set_output(0, "none");
  expect_bad(b, {"\"none\"", "nothing defines"});
  f.set_output(0, "r");
  f.add_input("a");
  expect_bad(b, {"local::F", "same name"});
  f.mutable_input()->RemoveLast();
  b.graph().mutable_node(0)->add_input("x");
  expect_bad(b, {"local::F", "1 inputs", "the call 2"});
  b.graph().mutable_node(0)->mutable_input()->RemoveLast();
  set_graph(*b.graph().mutable_node(0), "body");
  expect_unsupported(b, {"\"body\"", "graph"});
  b.graph().mutable_node(0)->clear_attribute();
  set_reference(*b.graph().mutable_node(0), "q", "q", A::INT);
  expect_bad(b, {"refers to"});
}

TEST(Functions, ThereIsALimitToTheirNumber) {
  ModelBuilder b = with_local();
  for (int i = 0; i < 10'001; ++i) b.model.add_functions()->set_name("f" + std::to_string(i));
  expect_bad(b, {"10001 functions"});
}

}  // namespace
}  // namespace plait
