// The graph itself: names, inputs, outputs, order, constants, types.
#include "core/base/strings.h"
#include "core/base/text.h"
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

TEST(ImportGraph, ReadsASmallModel) {
  ModelBuilder b;
  b.model.set_producer_name("tool");
  b.model.set_producer_version("2.1");
  auto& entry = *b.model.add_metadata_props();
  entry.set_key("who");
  entry.set_value("me");
  b.input("x", {"batch size + 1", "4"});
  b.initializer("w", 1, {4, 2}).set_raw_data(std::string(32, '\0'));
  b.node("MatMul", {"x", "w"}, {"h"}).set_name("/proj");
  b.node("Relu", {"h"}, {"y"});
  b.output("y");
  ImportedModel out = b.import();
  EXPECT_EQ(out.ir_version, 10);
  EXPECT_EQ(out.producer, "tool 2.1");
  EXPECT_EQ(out.metadata.at("who"), "me");
  EXPECT_EQ(out.opsets.at(""), 23);
  EXPECT_TRUE(out.warnings.empty());
  const Graph& g = out.graph;
  EXPECT_EQ(g.name, "g");
  EXPECT_EQ(ops_of(g), (Names{"MatMul", "Relu"}));
  EXPECT_EQ(g.nodes[0].name, "/proj");
  EXPECT_EQ(g.nodes[1].name, "");
  EXPECT_EQ(names_of(g, g.inputs), Names{"x"});
  EXPECT_EQ(names_of(g, g.outputs), Names{"y"});
  EXPECT_EQ(text(g.value(g.inputs[0]).type, g.symbols), "f32[\"batch size + 1\", 4]");
  const Value& w = g.value(g.nodes[0].inputs[1]);
  ASSERT_TRUE(w.constant);
  EXPECT_EQ(w.constant->initializer, "w");
  EXPECT_EQ(w.constant->shape(), (Shape{4, 2}));
}

/// What PyTorch's exporter records of the modules around a node becomes a path; a wrapper around a model of transformers is not
/// part of it. Other metadata are passed over.
TEST(ImportGraph, NodesKnowTheirModules) {
  const std::string in_layer =
                        ": transformers.Model/L: transformers.Layer/L.q: torch.nn.Linear/linear_3: aten.linear",
                    wrapped =
                        ": __main__.Cache/model: transformers.models.llama.LlamaForCausalLM/model.model: "
                        "transformers.models.llama.LlamaModel/model.model.layers.0.up: torch.nn.Linear/linear: "
                        "aten.linear.default";
  const std::pair<std::string, std::string> cases[] = {
      {in_layer, "L.q"},
      {wrapped, "model.layers.0.up"},
      {": my.Model/inner: my.Layer/inner.up: torch.nn.Linear/linear: aten.linear", "inner.up"},
      {": transformers.Model/add: aten.add", ""},
      {": my.Cache/model: transformers.Model/add: aten.add", ""},
      {": my.Cache/other: transformers.Model/side: torch.nn.Linear/linear: aten.linear", ""},
      {"", ""},
      {"something/else", ""},
  };
  ModelBuilder b;
  b.input("x0");
  for (size_t i = 0; i < std::size(cases); ++i) {
    onnx::NodeProto& node = b.node("Relu", {cat("x", i)}, {cat("x", i + 1)});
    node.set_name(cat("node ", i));
    for (const auto& [key, value] : {std::pair<std::string, std::string>{"pkg.torch.onnx.stack_trace", in_layer},
                                     {"namespace", cases[i].first}}) {
      auto& entry = *node.add_metadata_props();
      entry.set_key(key);
      entry.set_value(value);
    }
  }
  b.output(cat("x", std::size(cases)));
  const Graph graph = b.import().graph;
  std::map<std::string, std::string> expected;
  for (size_t i = 0; i < std::size(cases); ++i)
    if (!cases[i].second.empty()) expected[cat("node ", i)] = cases[i].second;
  EXPECT_EQ(graph.modules, expected);
  EXPECT_NE(text(graph).find("node \"node 0\" in \"L.q\" : "), std::string::npos);
  EXPECT_EQ(parse_graph(text(graph)).modules, expected);
}

TEST(ImportGraph, AnInitializerThatIsAlsoAnInputIsAConstant) {
  ModelBuilder b;
  b.input("x");
  b.input("w", {"1"});
  b.initializer("w", 1, {1}).add_float_data(2);
  b.node("Add", {"x", "w"}, {"y"});
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_EQ(names_of(g, g.inputs), Names{"x"});
  EXPECT_NE(g.constant(g.nodes[0].inputs[1]), nullptr);
}

TEST(ImportGraph, AnOutputMayBeAnInputOrAConstant) {
  ModelBuilder b;
  b.input("x");
  b.initializer("w", 7, {1}).add_int64_data(3);
  b.output("x");
  b.output("w");
  Graph g = b.import().graph;
  EXPECT_EQ(names_of(g, g.outputs), (Names{"x", "w"}));
  EXPECT_TRUE(g.nodes.empty());
}

TEST(ImportGraph, AbsentOperandsAreNoValue) {
  ModelBuilder b;
  b.input("x");
  b.input("top", {});
  b.node("Clip", {"x", "", "top"}, {"y"});
  b.node("Clip", {"y", "", ""}, {"z"});
  b.node("TopK", {"z", "top"}, {"", "i"});
  b.output("i");
  Graph g = b.import().graph;
  EXPECT_EQ(g.nodes[0].inputs[1], no_value);
  EXPECT_EQ(g.nodes[1].inputs.size(), 1u) << "absent operands at the end are dropped";
  EXPECT_EQ(g.nodes[2].outputs[0], no_value);
}

TEST(ImportGraph, UnsortedNodesAreSorted) {
  ModelBuilder b;
  b.input("x");
  b.node("Relu", {"h"}, {"y"});
  b.node("Neg", {"x"}, {"h"});
  b.output("y");
  EXPECT_EQ(ops_of(b.import().graph), (Names{"Neg", "Relu"}));
}

TEST(ImportGraph, InputSizes) {
  ModelBuilder b;
  b.input("x", {"s", "", "?", "3", "s", "-1"});
  b.input("y", {""});
  auto& shape = *b.graph().mutable_input(1)->mutable_type()->mutable_tensor_type()->mutable_shape();
  shape.mutable_dim(0)->set_dim_param("16");
  b.input("z").mutable_type()->mutable_tensor_type()->clear_shape();
  b.output("x");
  Graph g = b.import().graph;
  const Dims& x = *g.value(g.inputs[0]).type.dims;
  EXPECT_EQ(x[0], x[4]) << "one name, one size";
  EXPECT_FALSE(x[1].is_constant());
  EXPECT_NE(x[1], x[2]) << "sizes that are left open are not equal";
  EXPECT_EQ(x[3], Dim(3));
  EXPECT_FALSE(x[5].is_constant()) << "-1 leaves a size open";
  EXPECT_EQ((*g.value(g.inputs[1]).type.dims)[0], Dim(16)) << "a number as text is a number";
  EXPECT_FALSE(g.value(g.inputs[2]).type.dims.has_value());
}

TEST(ImportGraph, ConstantNodes) {
  using A = onnx::AttributeProto;
  ModelBuilder b;
  auto constant = [&](const std::string& attribute, A::AttributeType type) -> A& {
    return add_attribute(b.node("Constant", {}, {attribute}), attribute, type);
  };
  auto& value = *constant("value", A::TENSOR).mutable_t();
  value.set_data_type(9);
  value.add_dims(2);
  value.set_raw_data(std::string("\1\0", 2));
  constant("value_int", A::INT).set_i(-5);
  auto& ints = constant("value_ints", A::INTS);
  ints.add_ints(1);
  ints.add_ints(2);
  constant("value_float", A::FLOAT).set_f(0.5f);
  constant("value_floats", A::FLOATS);
  constant("value_string", A::STRING).set_s("one");
  auto& strings = constant("value_strings", A::STRINGS);
  strings.add_strings("two");
  strings.add_strings("");
  for (const char* name : {"value", "value_int", "value_ints", "value_float", "value_floats", "value_string", "value_strings"})
    b.output(name);
  Graph g = b.import().graph;
  EXPECT_TRUE(g.nodes.empty());
  auto at = [&](int i) { return g.constant(g.outputs[static_cast<size_t>(i)]); };
  EXPECT_EQ(to_ints(at(0)->view()), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(at(1)->shape().rank(), 0);
  EXPECT_EQ(at(1)->as<int64_t>()[0], -5);
  EXPECT_EQ(to_ints(at(2)->view()), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(at(3)->as<float>()[0], 0.5f);
  EXPECT_EQ(at(4)->shape(), Shape{0});
  EXPECT_EQ(text(g.value(g.outputs[1]).type, g.symbols), "i64[]");
  EXPECT_EQ(at(5)->shape().rank(), 0);
  EXPECT_EQ(packed_string(at(5)->view(), 0), "one");
  EXPECT_EQ(packed_texts(at(6)->view()), (std::vector<std::string_view>{"two", ""}));
}

TEST(ImportGraph, ConstantNodesThatAreRefused) {
  using A = onnx::AttributeProto;
  auto with = [](const std::string& attribute, A::AttributeType type) {
    ModelBuilder b;
    add_attribute(b.node("Constant", {}, {"c"}), attribute, type).mutable_sparse_tensor();
    if (type != A::SPARSE_TENSOR) b.graph().mutable_node(0)->mutable_attribute(0)->clear_sparse_tensor();
    b.output("c");
    return b;
  };
  expect_unsupported(with("sparse_value", A::SPARSE_TENSOR), {"sparse"});
  expect_bad(with("value_int", A::FLOAT), {"value_int", "field f"});
  expect_bad(with("other", A::INT), {"no attribute \"other\""});
  ModelBuilder none;
  none.node("Constant", {}, {"c"});
  none.output("c");
  expect_bad(none, {"one attribute"});
}

TEST(ImportGraph, DomainsInNames) {
  ModelBuilder b;
  b.import_opset("com.microsoft", 1);
  b.import_opset("never.used", 7);
  b.input("x");
  b.node("Known", {"x"}, {"a"}, "com.microsoft");
  b.node("Neg", {"a"}, {"c"}, "ai.onnx");
  b.node("SimplifiedLayerNormalization", {"c", "x"}, {"y"});
  b.output("y");
  EXPECT_EQ(ops_of(b.import().graph),
            (Names{"com.microsoft.Known", "Neg", "com.microsoft.SimplifiedLayerNormalization"}));
}

TEST(ImportGraph, UnknownOps) {
  ModelBuilder b(17);
  b.import_opset("acme", 3);
  b.input("x");
  b.node("Wonder", {"x"}, {"y"}, "acme").set_name("n7");
  b.output("y");
  expect_unsupported(b, {"n7", "Wonder", "acme", "opset 3", "its inputs are f32"});
  b.graph().mutable_node(0)->set_domain("");
  b.graph().mutable_node(0)->clear_name();
  expect_unsupported(b, {"Wonder that makes \"y\"", "ai.onnx", "opset 17"});
  // No way around the check: Plait's own ops, and names that read like another domain's.
  b.graph().mutable_node(0)->set_op_type("com.microsoft.Known");
  expect_bad(b, {"no identifier"});
  b.import_opset("plait", 1);
  b.graph().mutable_node(0)->set_domain("plait");
  b.graph().mutable_node(0)->set_op_type("KvWrite");
  expect_unsupported(b, {"plait"});
}

TEST(ImportGraph, UnknownOpsComeWithWhatWouldDo) {
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"ImageDecoder", "", "pixels"},
      {"BeamSearch", "com.microsoft", "generator"},
      {"SVMClassifier", "ai.onnx.ml", "operations on tensors"},
      {"Wonder", "", "standard ops"},
  };
  for (const auto& [op, domain, hint] : rows) {
    ModelBuilder b(18);
    b.import_opset("com.microsoft", 1);
    b.import_opset("ai.onnx.ml", 5);
    b.input("x");
    b.node(op, {"x"}, {"y"}, domain);
    b.output("y");
    try {
      b.import();
      ADD_FAILURE() << op;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported) << op;
      EXPECT_NE(error.hint().find(hint), std::string::npos) << op << ": " << error.hint();
    }
  }
}

TEST(ImportGraph, NewerFilesAreReadWithAWarning) {
  ModelBuilder b(999);
  b.model.set_ir_version(999);
  b.input("x");
  b.output("x");
  EXPECT_EQ(b.import().warnings.size(), 2u);
}

TEST(ImportGraph, AttributesOfEachKind) {
  ModelBuilder b;
  b.input("x");
  auto& node = b.node("Gemm", {"x", "x"}, {"y"});
  add_attribute(node, "alpha", onnx::AttributeProto::FLOAT).set_f(0.25f);
  set_int(node, "transB", 1);
  b.output("y");
  Graph g = b.import().graph;
  EXPECT_EQ(g.nodes[0].attributes.real("alpha", 0), 0.25);
  EXPECT_EQ(g.nodes[0].attributes.integer("transB"), 1);
}

TEST(ImportGraph, KindsOfInputsThatAreRefused) {
  ModelBuilder b;
  auto& info = b.input("x");
  info.mutable_type()->mutable_sequence_type();
  b.output("x");
  expect_unsupported(b, {"input \"x\"", "sequence"});
  info.clear_type();
  expect_bad(b, {"input \"x\"", "no type"});
  set_type(info, 77, {"1"});
  expect_bad(b, {"input \"x\"", "77"});
  set_type(info, 1, Names(9, "1"));
  expect_unsupported(b, {"rank"});
}

}  // namespace
}  // namespace plait
