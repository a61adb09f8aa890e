// Older forms of ops: each row of the table.
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

using A = onnx::AttributeProto;

struct OpCase {
  ModelBuilder b;
  onnx::NodeProto& node;

  OpCase(int64_t opset, const std::string& op, const Names& inputs = {"x"}, const Names& outputs = {"y"})
      : b(opset), node(b.node(op, inputs, outputs)) {
    b.input("x", {"s", "2", "3"});
    b.output(outputs.back());
  }
  Graph import() { return b.import().graph; }
};

float scalar(const Graph& g, ValueId id) { return g.constant(id)->as<float>()[0]; }

TEST(OpsetMap, AxesBecomeAnInput) {
  struct Row {
    const char* op;
    int64_t until;
  };
  for (Row row : {Row{"Squeeze", 13}, {"Unsqueeze", 13}, {"ReduceSum", 13}, {"ReduceMean", 18}, {"ReduceMax", 18}}) {
    OpCase old(row.until - 1, row.op);
    set_ints(old.node, "axes", {1});
    Graph g = old.import();
    ASSERT_EQ(ops_of(g), Names{row.op});
    EXPECT_EQ(ints_of(g, g.nodes[0].inputs.at(1)), std::vector<int64_t>{1});
    EXPECT_TRUE(g.nodes[0].attributes.empty());
    // The same attribute is an error where the form is the new one.
    OpCase newer(row.until, row.op, {"x"});
    set_ints(newer.node, "axes", {1});
    EXPECT_THROW(newer.import(), Error) << row.op;
  }
  OpCase all(11, "ReduceMean");
  set_int(all.node, "keepdims", 0);
  Graph g = all.import();
  EXPECT_EQ(g.nodes[0].inputs.size(), 1u);
  EXPECT_EQ(g.nodes[0].attributes.integer("keepdims"), 0);
  OpCase bare(11, "Unsqueeze");
  expect_bad(bare.b, {"Unsqueeze", "opset 11", "\"axes\" is missing"});
  OpCase wrong(11, "Squeeze");
  set_int(wrong.node, "axes", 1);
  expect_bad(wrong.b, {"\"axes\"", "expected ints"});
}

TEST(OpsetMap, Split) {
  OpCase sizes(11, "Split", {"x"}, {"a", "b"});
  set_ints(sizes.node, "split", {1, 2});
  Graph g = sizes.import();
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs.at(1)), (std::vector<int64_t>{1, 2}));
  EXPECT_FALSE(g.nodes[0].attributes.has("num_outputs"));
  OpCase even(13, "Split", {"x"}, {"a", "b", "c"});
  EXPECT_EQ(even.import().nodes[0].attributes.integer("num_outputs"), 3);
}

TEST(OpsetMap, Slice) {
  OpCase c(9, "Slice");
  set_ints(c.node, "starts", {0});
  set_ints(c.node, "ends", {-1});
  set_ints(c.node, "axes", {2});
  Graph g = c.import();
  EXPECT_EQ(g.nodes[0].inputs.size(), 4u);
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs[2]), std::vector<int64_t>{-1});
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs[3]), std::vector<int64_t>{2});
}

TEST(OpsetMap, ClipAndPadTakeTheirNumbersInTheDtypeOfTheData) {
  OpCase known(6, "Clip");
  add_attribute(known.node, "max", A::FLOAT).set_f(6);
  Graph g = known.import();
  ASSERT_EQ(ops_of(g), Names{"Clip"});
  EXPECT_EQ(g.nodes[0].inputs[1], no_value);
  EXPECT_EQ(scalar(g, g.nodes[0].inputs[2]), 6);
  OpCase open(10, "Pad");
  open.node.set_input(0, "h");
  open.b.node("Neg", {"x"}, {"h"});
  set_ints(open.node, "pads", {0, 0, 0, 1, 1, 1});
  add_attribute(open.node, "value", A::FLOAT).set_f(-1);
  g = open.import();
  EXPECT_EQ(ops_of(g), (Names{"Neg", "CastLike", "Pad"}));
  EXPECT_EQ(g.nodes[2].inputs[2], g.nodes[1].outputs[0]);
}

TEST(OpsetMap, TopK) {
  OpCase c(9, "TopK", {"x"}, {"v", "i"});
  set_int(c.node, "k", 5);
  Graph g = c.import();
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs[1]), std::vector<int64_t>{5});
  OpCase bare(9, "TopK", {"x"}, {"v", "i"});
  expect_bad(bare.b, {"\"k\""});
}

TEST(OpsetMap, DropoutIsIdentityInEveryOpset) {
  OpCase old(7, "Dropout");
  add_attribute(old.node, "ratio", A::FLOAT).set_f(0.1f);
  EXPECT_EQ(ops_of(old.import()), Names{"Identity"});
  OpCase training(22, "Dropout", {"x", "x", "x"});  // an operand may be true
  EXPECT_EQ(ops_of(training.import()).back(), "Where");
  OpCase recent(22, "Dropout", {"x", "x"}, {"y", "mask"});
  Graph g = recent.import();
  EXPECT_EQ(ops_of(g), (Names{"Shape", "ConstantOfShape", "Identity"}));
  EXPECT_EQ(names_of(g, g.nodes[1].outputs), Names{"mask"});
  EXPECT_EQ(std::get<Tensor>(*g.nodes[1].attributes.find("value")).dtype(), DType::boolean);
}

TEST(OpsetMap, SoftmaxOfAMatrix) {
  OpCase last(12, "Softmax");
  set_int(last.node, "axis", 2);  // the last of three
  Graph g = last.import();
  ASSERT_EQ(ops_of(g), Names{"Softmax"});
  EXPECT_EQ(g.nodes[0].attributes.integer("axis"), -1);
  OpCase negative(11, "LogSoftmax", {"h"});
  negative.b.node("Neg", {"x"}, {"h"});
  set_int(negative.node, "axis", -1);
  EXPECT_EQ(ops_of(negative.import()), (Names{"Neg", "LogSoftmax"}));
  OpCase middle(12, "Softmax");  // the default was 1
  g = middle.import();
  ASSERT_EQ(ops_of(g), (Names{"Shape", "Flatten", "Softmax", "Reshape"}));
  EXPECT_EQ(g.nodes[1].attributes.integer("axis"), 1);
  EXPECT_EQ(g.nodes[2].attributes.integer("axis"), -1);
  EXPECT_EQ(g.nodes[3].attributes.integer("allowzero"), 1);
  EXPECT_EQ(names_of(g, g.nodes[3].outputs), Names{"y"});
  OpCase recent(13, "Softmax");
  EXPECT_FALSE(recent.import().nodes[0].attributes.has("axis"));
}

TEST(OpsetMap, OldestForms) {
  OpCase cast(5, "Cast");
  add_attribute(cast.node, "to", A::STRING).set_s("INT64");
  EXPECT_EQ(cast.import().nodes[0].attributes.integer("to"), 7);
  OpCase odd(5, "Cast");
  add_attribute(odd.node, "to", A::STRING).set_s("QUAD");
  expect_bad(odd.b, {"QUAD"});
  OpCase reshape(4, "Reshape");
  set_ints(reshape.node, "shape", {-1});
  set_ints(reshape.node, "consumed_inputs", {0});
  Graph g = reshape.import();
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs[1]), std::vector<int64_t>{-1});
  OpCase concat(3, "Concat");
  EXPECT_EQ(concat.import().nodes[0].attributes.integer("axis"), 1);
  OpCase add(6, "Add", {"x", "x"});
  set_int(add.node, "broadcast", 1);
  EXPECT_TRUE(add.import().nodes[0].attributes.empty());
  OpCase scatter(9, "Scatter", {"x", "x", "x"});
  EXPECT_EQ(ops_of(scatter.import()), Names{"ScatterElements"});
  OpCase upsample(9, "Upsample", {"x", "x"});
  Graph resized = upsample.import();
  EXPECT_EQ(ops_of(resized), Names{"Resize"});
  EXPECT_EQ(resized.nodes[0].attributes.string("nearest_mode", ""), "floor");
}

TEST(OpsetMap, OldNodesWithoutTheirOperands) {
  for (const char* op : {"Softmax", "Dropout"}) {
    OpCase c(11, op, {});
    expect_bad(c.b, {op, "input 0 is missing"});
  }
  OpCase clip(6, "Clip", {});
  add_attribute(clip.node, "min", A::FLOAT).set_f(0);
  expect_bad(clip.b, {"input 0 is missing"});
  OpCase none(9, "Dropout", {"x"}, {"y"});
  none.node.clear_output();
  none.b.graph().clear_output();
  EXPECT_NO_THROW(none.import());
}

}  // namespace
}  // namespace plait
