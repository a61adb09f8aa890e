// Inference at run time, where sizes and contents are numbers, and of bodies.
#include "tests/unit/ops/ops_test.h"

namespace plait {
namespace {

using test::all_ops;
using test::attrs;
using test::error_of;
using test::Ints;
using test::Net;

Tensor ints(const Ints& values) { return Tensor::of_ints(values); }
Tensor scalar(int64_t value) { return ints({value}).reshaped(Shape()); }

/// "i64[3] f32[]": the outputs of a node on tensors, absent ones Tensor().
std::string concrete(std::string op, const std::vector<Tensor>& inputs, Attributes attributes = {}, int outputs = 1) {
  Node node;
  node.op = std::move(op);
  node.name = "the_node";
  std::vector<TensorView> views;
  for (size_t i = 0; i < inputs.size(); ++i) {
    node.inputs.push_back(inputs[i].present() ? static_cast<ValueId>(i) : no_value);
    views.push_back(inputs[i].present() ? inputs[i].view() : TensorView{});
  }
  for (int k = 0; k < outputs; ++k) node.outputs.push_back(100 + k);
  node.attributes = std::move(attributes);
  std::vector<std::pair<DType, Shape>> types;
  infer_concrete(*all_ops().find(node.op), node, views, types);
  std::string out;
  for (const auto& [dtype, shape] : types) out += cat(out.empty() ? "" : " ", dtype_name(dtype), shape.text());
  return out;
}

TEST(Concrete, SizesAndContents) {
  Tensor x(DType::f32, {2, 5, 8});
  EXPECT_EQ(concrete("Add", {x, Tensor(DType::f32, {1, 8})}), "f32[2, 5, 8]");
  EXPECT_EQ(concrete("Shape", {x}), "i64[3]");
  EXPECT_EQ(concrete("Reshape", {x, ints({0, -1})}), "f32[2, 40]");
  EXPECT_EQ(concrete("Slice", {x, ints({-3}), ints({INT64_MAX}), ints({1})}), "f32[2, 3, 8]");
  EXPECT_EQ(concrete("Slice", {x, ints({-30}), ints({INT64_MAX}), ints({1})}), "f32[2, 5, 8]");
  EXPECT_EQ(concrete("Slice", {x, ints({4}), ints({0}), ints({1}), ints({-2})}), "f32[2, 2, 8]");
  // Backwards, a start before the first element is the first one, and an end may be before it (the standard's clamping).
  EXPECT_EQ(concrete("Slice", {x, ints({-9}), ints({-9}), ints({1}), ints({-1})}), "f32[2, 1, 8]");
  EXPECT_EQ(concrete("Slice", {x, ints({-9}), ints({INT64_MIN}), ints({1}), ints({-1})}), "f32[2, 1, 8]");
  EXPECT_EQ(concrete("Slice", {x, ints({-6}), ints({-8}), ints({1}), ints({-2})}), "f32[2, 1, 8]");
  EXPECT_EQ(concrete("Slice", {x, ints({-9}), ints({0}), ints({1}), ints({-1})}), "f32[2, 0, 8]");
  EXPECT_EQ(concrete("Range", {scalar(3), scalar(12), scalar(4)}), "i64[3]");
  EXPECT_EQ(concrete("Range", {scalar(3), scalar(1), scalar(1)}), "i64[0]");
  EXPECT_EQ(concrete("Expand", {Tensor(DType::f32, {5, 1}), ints({2, 1, 8})}), "f32[2, 5, 8]");
  EXPECT_EQ(concrete("Clip", {x, Tensor(), Tensor(DType::f32, {})}), "f32[2, 5, 8]");
  EXPECT_EQ(concrete("Split", {x}, attrs({{"axis", int64_t{1}}, {"num_outputs", int64_t{2}}}), 2),
            "f32[2, 3, 8] f32[2, 2, 8]");
  EXPECT_EQ(concrete("MatMul", {x, Tensor(DType::f32, {8, 3})}), "f32[2, 5, 3]");
  EXPECT_EQ(concrete("Tile", {Tensor(DType::f32, {0, 3}), ints({4, 2})}), "f32[0, 6]");
}

TEST(Concrete, FloatRange) {
  auto number = [](float value) { return Tensor::of<float>(DType::f32, {}, std::vector<float>{value}); };
  EXPECT_EQ(concrete("Range", {number(0), number(1), number(0.3f)}), "f32[4]");
  EXPECT_EQ(concrete("Range", {number(1), number(0), number(0.3f)}), "f32[0]");
}

TEST(Concrete, SizesFromData) {
  Tensor condition = Tensor::of<uint8_t>(DType::boolean, {4}, std::vector<uint8_t>{1, 0, 1, 1});
  EXPECT_EQ(concrete("NonZero", {condition}), "i64[1, 3]");
  EXPECT_EQ(concrete("Compress", {Tensor(DType::f32, {4, 2}), condition}, attrs({{"axis", int64_t{0}}})),
            "f32[3, 2]");
  EXPECT_EQ(concrete("Compress", {Tensor(DType::f32, {2, 2}), condition}), "f32[3]");
  Tensor floats = Tensor::of<float>(DType::f32, {4}, std::vector<float>{0.f, -0.f, 1e-40f, 3.f});
  EXPECT_EQ(concrete("NonZero", {floats}), "i64[1, 2]");
}

TEST(Concrete, ErrorsNameTheNode) {
  std::string error =
      error_of([] { concrete("Add", {Tensor(DType::f32, {2, 3}), Tensor(DType::f32, {2, 4})}); });
  EXPECT_NE(error.find("the_node"), std::string::npos);
  EXPECT_NE(error.find("input 1 (b)"), std::string::npos);
  EXPECT_NE(error_of([] { concrete("Reshape", {Tensor(DType::f32, {2, 3}), ints({4})}); }).find("the_node"),
            std::string::npos);
  EXPECT_NE(error_of([] { concrete("ConstantOfShape", {ints({int64_t{1} << 40, int64_t{1} << 40})}); }), "");
  Tensor scale(DType::f32, {1, 2, 3});
  EXPECT_NE(error_of([&] { concrete("RMSNormalization", {Tensor(DType::f32, {2, 3}), scale}); }).find("rank 3"),
            std::string::npos);
  EXPECT_NE(error_of([] { concrete("ConstantOfShape", {ints({2, -3})}); }).find("size of -3"), std::string::npos);
  EXPECT_NE(error_of([] { concrete("ConstantOfShape", {ints({1, 1, 1, 1, 1, 1, 1, 1, 1})}); }).find("rank 9"),
            std::string::npos);
}

// ---- Bodies ----

/// A body of one node whose inputs are all the body's.
std::shared_ptr<Graph> body_of(std::string op, int inputs, Attributes attributes = {}) {
  auto out = std::make_shared<Graph>();
  for (int i = 0; i < inputs; ++i) out->inputs.push_back(out->add_value({}));
  out->outputs = out->add_node(std::move(op), out->inputs, 1, std::move(attributes)).outputs;
  return out;
}

TEST(Bodies, IfUnifiesBranches) {
  Net net;
  ValueId condition = net.input("", DType::boolean), x = net.input("b s"), y = net.input("b s");
  Node node;
  node.op = "If";
  node.inputs = {condition, x, y};
  node.outputs = {net.graph.add_value({})};
  node.bodies = {{"then_branch", body_of("Add", 2)},
                 {"else_branch", body_of("Concat", 2, attrs({{"axis", int64_t{1}}}))}};
  infer_node(all_ops(), net.graph, node, net.known);
  std::string type = net.type(node.outputs[0]);
  EXPECT_EQ(type.substr(0, 10), "f32[b, if.") << type;
  node.bodies[1].second = body_of("Mul", 2);
  net.graph.value(node.outputs[0]).type = {};
  infer_node(all_ops(), net.graph, node, net.known);
  EXPECT_EQ(net.type(node.outputs[0]), "f32[b, s]");
  node.bodies[1].second = body_of("Less", 2);
  EXPECT_NE(error_of([&] { infer_node(all_ops(), net.graph, node, net.known); }).find("f32 in one branch, bool"),
            std::string::npos);
}

TEST(Bodies, LoopLeavesGrowingSizesOpen) {
  Net net;
  auto body = std::make_shared<Graph>();
  for (int i = 0; i < 4; ++i) body->inputs.push_back(body->add_value({}));
  // Carried: a list that grows, and a value that stays. Scanned: the value.
  ValueId grown =
      body->add_node("Concat", {body->inputs[2], body->inputs[3]}, 1, attrs({{"axis", int64_t{0}}})).outputs[0];
  ValueId same = body->add_node("Identity", {body->inputs[3]}).outputs[0];
  ValueId go = body->add_node("Identity", {body->inputs[1]}).outputs[0];
  body->outputs = {go, grown, same, same};
  Node node;
  node.op = "Loop";
  node.inputs = {net.scalar(5), no_value, net.input("n 8"), net.input("3 8")};
  for (int i = 0; i < 3; ++i) node.outputs.push_back(net.graph.add_value({}));
  node.bodies = {{"body", body}};
  infer_node(all_ops(), net.graph, node, net.known);
  EXPECT_EQ(net.type(node.outputs[0]).substr(0, 10), "f32[final.");
  EXPECT_NE(net.type(node.outputs[0]).find(", 8]"), std::string::npos);
  EXPECT_EQ(net.type(node.outputs[1]), "f32[3, 8]");
  EXPECT_EQ(net.type(node.outputs[2]).substr(0, 9), "f32[loop.");
  EXPECT_NE(net.type(node.outputs[2]).find(", 3, 8]"), std::string::npos);
}

TEST(Bodies, ScanTakesSlices) {
  Net net;
  auto body = std::make_shared<Graph>();
  for (int i = 0; i < 2; ++i) body->inputs.push_back(body->add_value({}));
  ValueId sum = body->add_node("Add", body->inputs).outputs[0];
  body->outputs = {sum, sum};
  Node node;
  node.op = "Scan";
  node.inputs = {net.input("b 8"), net.input("s b 8")};
  for (int i = 0; i < 2; ++i) node.outputs.push_back(net.graph.add_value({}));
  node.attributes.set("num_scan_inputs", int64_t{1});
  node.bodies = {{"body", body}};
  infer_node(all_ops(), net.graph, node, net.known);
  EXPECT_EQ(net.type(node.outputs[0]), "f32[b, 8]");
  EXPECT_EQ(net.type(node.outputs[1]), "f32[s, b, 8]");
}

}  // namespace
}  // namespace plait
