// FlexAttention's bodies become nodes of the graph that has it.
#include "core/ops/ops.h"
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

Graph imported(const ModelBuilder& b) {
  OpSet ops;
  register_ops(ops);
  Graph out = import_bytes(blob_of(b.bytes()), {}, ops).graph;
  verify(out, "import");
  return out;
}

onnx::NodeProto& flex(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const std::string& output) {
  auto& node = add_node(nodes, "FlexAttention", {"q", "k", "v"}, {output});
  node.set_domain("ai.onnx.preview");
  node.set_name("flex");
  return node;
}

/// A body that adds the outer value "m"; its own names occur outside, too.
void add_m(onnx::GraphProto& body) {
  body.add_input()->set_name("q");
  add_node(*body.mutable_node(), "Add", {"q", "m"}, {"k"});
  add_node(*body.mutable_node(), "Neg", {"k"}, {"y"});
  body.add_output()->set_name("y");
}

ModelBuilder model() {
  ModelBuilder b(26);
  b.import_opset("ai.onnx.preview", 1);
  for (const char* name : {"q", "k", "v"}) b.input(name, {"b", "2", "s", "4"});
  b.input("m", {"s", "s"});
  return b;
}

const Node& only(const Graph& graph, std::string_view op) {
  const Node* found = nullptr;
  for (const Node& node : graph.nodes)
    if (node.op == op) {
      EXPECT_EQ(found, nullptr) << "two nodes " << op;
      found = &node;
    }
  if (!found) throw Error(Code::internal, cat("there is no ", op));
  return *found;
}

TEST(FlexAttention, WithoutBodiesIsAttention) {
  ModelBuilder b = model();
  flex(*b.graph().mutable_node(), "y");
  b.output("y");
  EXPECT_EQ(ops_of(imported(b)), Names{"Attention"});
}

TEST(FlexAttention, ABodyReadsOuterValuesAndKeepsItsOwnNames) {
  ModelBuilder b = model();
  auto& node = flex(*b.graph().mutable_node(), "y");
  add_m(set_graph(node, "score_mod"));
  add_m(set_graph(node, "prob_mod"));
  b.output("y");
  Graph graph = imported(b);
  std::vector<ValueId> added;
  for (const Node& one : graph.nodes) {
    EXPECT_TRUE(one.bodies.empty());
    if (one.op == "Add") added.push_back(one.inputs[1]);
  }
  EXPECT_EQ(added, std::vector<ValueId>(2, graph.find("m")));
  const ValueId softmaxed = only(graph, "Softmax").inputs[0];
  EXPECT_EQ(graph.nodes.back().op, "CastLike");
  EXPECT_EQ(graph.nodes.back().outputs, graph.outputs);
  int negated = 0;
  for (const Node& one : graph.nodes) negated += one.op == "Neg" && one.outputs[0] == softmaxed;
  EXPECT_EQ(negated, 1) << "Softmax reads what score_mod makes";
}

/// In a body of If: values of the main graph come as captures.
TEST(FlexAttention, ABodyWithinABodyCaptures) {
  ModelBuilder b = model();
  b.input("c", {}, 9);
  auto& choice = b.node("If", {"c"}, {"y"});
  auto& yes = set_graph(choice, "then_branch");
  add_m(set_graph(flex(*yes.mutable_node(), "z"), "score_mod"));
  yes.add_output()->set_name("z");
  auto& no = set_graph(choice, "else_branch");
  add_node(*no.mutable_node(), "Identity", {"v"}, {"w"});
  no.add_output()->set_name("w");
  b.output("y");
  Graph graph = imported(b);
  const Graph& body = *only(graph, "If").bodies[0].second;
  EXPECT_EQ(body.inputs.size(), 4U);
  EXPECT_EQ(only(body, "Add").inputs[1], body.find("m"));
}

TEST(FlexAttention, WrongBodiesAreRefused) {
  const auto refused = [](const Names& parts, const std::function<void(onnx::NodeProto&)>& change) {
    ModelBuilder b = model();
    change(flex(*b.graph().mutable_node(), "y"));
    b.output("y");
    expect_error(Code::bad_model, parts, [&] { imported(b); });
  };
  refused({"node \"flex\"", "value_mod"}, [](auto& node) { add_m(set_graph(node, "value_mod")); });
  refused({"body \"score_mod\"", "2 inputs"}, [](auto& node) {
    auto& body = set_graph(node, "score_mod");
    add_m(body);
    body.add_input()->set_name("more");
  });
  refused({"body \"prob_mod\"", "\"nothing\""}, [](auto& node) {
    auto& body = set_graph(node, "prob_mod");
    add_m(body);
    body.mutable_output(0)->set_name("nothing");
  });
  refused({"is_causal"}, [](auto& node) { set_int(node, "is_causal", 1); });
}

}  // namespace
}  // namespace plait
