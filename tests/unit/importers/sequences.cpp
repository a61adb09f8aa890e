// Sequences whose parts are known, written as ops on tensors; others stay lists.
#include "tests/unit/importers/model_builder.h"

namespace plait {
namespace {

/// x [s, 6] split along its last axis, by an initializer "split" of these numbers unless `split` is empty.
ModelBuilder split_model(const std::vector<int64_t>& split, bool scalar = false) {
  ModelBuilder b(18);
  b.input("x", {"s", "6"});
  Names inputs{"x"};
  if (!split.empty()) {
    std::vector<int64_t> dims;
    if (!scalar) dims.push_back(static_cast<int64_t>(split.size()));
    auto& tensor = b.initializer("split", 7, dims);
    tensor.set_raw_data(std::string(reinterpret_cast<const char*>(split.data()), split.size() * 8));
    inputs.push_back("split");
  }
  set_int(b.node("SplitToSequence", inputs, {"q"}), "axis", -1);
  return b;
}

void add_position(ModelBuilder& b, const std::string& name, int64_t position) {
  b.initializer(name, 7, {}).set_raw_data(std::string(reinterpret_cast<const char*>(&position), 8));
}

ModelBuilder part_model(const std::vector<int64_t>& split, int64_t position, bool scalar = false) {
  ModelBuilder b = split_model(split, scalar);
  add_position(b, "at", position);
  b.node("SequenceAt", {"q", "at"}, {"y"});
  b.output("y");
  return b;
}

TEST(Sequences, PartsOfGivenSizesAreThoseOfASplit) {
  Graph g = part_model({2, 4}, -1).import().graph;
  ASSERT_EQ(ops_of(g), (Names{"Split", "Identity"}));
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs.at(1)), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(g.nodes[0].attributes.integer("axis"), -1);
  EXPECT_EQ(g.nodes[1].inputs.at(0), g.nodes[0].outputs.at(1));
  expect_bad(part_model({2, 4}, 2), {"SequenceAt", "opset 18", "position) is 2, the sequence has 2 parts"});
}

/// The halves of a rotary embedding, as PyTorch's exporter writes chunk().
TEST(Sequences, PartsOfOneSizeAreSlices) {
  Graph g = part_model({3}, 1, true).import().graph;
  ASSERT_EQ(ops_of(g), Names{"Slice"});
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs.at(1)), std::vector<int64_t>{3});
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs.at(2)), std::vector<int64_t>{6});
  EXPECT_EQ(ints_of(g, g.nodes[0].inputs.at(3)), std::vector<int64_t>{-1});
  EXPECT_EQ(ops_of(part_model({3}, -1, true).import().graph), (Names{"SplitToSequence", "SequenceAt"}));
  expect_bad(part_model({0}, 0, true), {"SplitToSequence", "expected at least 1"});
}

TEST(Sequences, SingleElementsAreSlicesOrGathered) {
  Graph last = part_model({}, -1).import().graph;
  ASSERT_EQ(ops_of(last), Names{"Slice"});
  EXPECT_EQ(ints_of(last, last.nodes[0].inputs.at(1)), std::vector<int64_t>{-1});
  EXPECT_EQ(ints_of(last, last.nodes[0].inputs.at(2)), std::vector<int64_t>{INT64_MAX});
  ModelBuilder b = part_model({}, 2);
  set_int(*b.graph().mutable_node(0), "keepdims", 0);
  Graph g = b.import().graph;
  ASSERT_EQ(ops_of(g), Names{"Gather"});
  EXPECT_EQ(g.nodes[0].attributes.integer("axis"), -1);
}

TEST(Sequences, WhatIsJoinedAsItWasSplitIsTheWhole) {
  ModelBuilder b = split_model({2}, true);
  set_int(b.node("ConcatFromSequence", {"q"}, {"y"}), "axis", -1);
  b.output("y");
  EXPECT_EQ(ops_of(b.import().graph), Names{"Identity"});
  set_int(*b.graph().mutable_node(1), "new_axis", 1);
  EXPECT_EQ(ops_of(b.import().graph), (Names{"SplitToSequence", "ConcatFromSequence"}));
}

TEST(Sequences, ConstructedOnesAreConcatenatedOrStacked) {
  for (int64_t stacks : {0, 1}) {
    ModelBuilder b(18);
    b.input("x", {"s", "6"});
    b.node("Neg", {"x"}, {"z"});
    b.node("SequenceConstruct", {"x", "z"}, {"q"});
    auto& join = b.node("ConcatFromSequence", {"q"}, {"y"});
    set_int(join, "axis", 0);
    set_int(join, "new_axis", stacks);
    b.node("SequenceLength", {"q"}, {"n"});
    b.output("y");
    b.output("n");
    Graph g = b.import().graph;
    Names expected = stacks ? Names{"Neg", "Unsqueeze", "Unsqueeze", "Concat", "Identity"} : Names{"Neg", "Concat", "Identity"};
    EXPECT_EQ(ops_of(g), expected);
  }
}

TEST(Sequences, OthersAreLists) {
  ModelBuilder out = split_model({2, 4});
  out.output("q");
  const Graph made = out.import().graph;
  EXPECT_EQ(ops_of(made), Names{"SplitToSequence"});
  EXPECT_EQ(made.value(made.outputs[0]).kind, ValueKind::sequence);
  ModelBuilder read = split_model({2, 4});
  read.node("Neg", {"q"}, {"y"});
  read.output("y");
  expect_unsupported(read, {"Neg", "input 0 is a sequence"});
  ModelBuilder open(18);
  open.input("x", {"s", "6"});
  open.input("split", {"n"}, 7);
  add_position(open, "at", 0);
  open.node("SplitToSequence", {"x", "split"}, {"q"});
  open.node("SequenceAt", {"q", "at"}, {"y"});
  open.output("y");
  EXPECT_EQ(ops_of(open.import().graph), (Names{"SplitToSequence", "SequenceAt"}));
  ModelBuilder bare = split_model({2, 4});
  bare.node("SequenceAt", {"q"}, {"y"});
  bare.output("y");
  expect_bad(bare, {"SequenceAt", "there are 1 inputs, expected 2"});
}

}  // namespace
}  // namespace plait
