// The types rule, and what schema rows refuse by it.
#include "core/graph/type_rule.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/graph/schema.h"

namespace plait::test {
namespace {

TEST(TypeRule, Reads) {
  TypeRule rule = parse_type_rule("floats i8, index, - -> any");
  ASSERT_EQ(rule.operands.size(), 3u);
  EXPECT_TRUE(rule.operands[0].has(DType::bf16));
  EXPECT_TRUE(rule.operands[0].has(DType::i8));
  EXPECT_FALSE(rule.operands[0].has(DType::i32));
  EXPECT_TRUE(rule.operands[1].has(DType::i32));
  EXPECT_TRUE(rule.operands[2].empty());
  EXPECT_EQ(TypeRule::of(rule.operands, 7), &rule.operands[2]);  // the last holds for all that follow
  EXPECT_TRUE(rule.results[0].has(DType::i2));
  EXPECT_FALSE(rule.results[0].has(DType::string));
  EXPECT_FALSE(rule.results[0].has(DType::c64));
  EXPECT_EQ(TypeRule::of(parse_type_rule("").operands, 0), nullptr);
  EXPECT_TRUE(parse_type_rule("-> bool").operands.empty());
  EXPECT_THROW(parse_type_rule("floats, flots"), Error);
}

TEST(TypeRule, ReadsVariables) {
  TypeRule rule = parse_type_rule("T:floats i8, index, T, Q2:any -> Q2");
  EXPECT_EQ(rule.operands[0].variable, "T");
  EXPECT_EQ(rule.operands[1].variable, "");
  EXPECT_EQ(rule.operands[2].variable, "T");
  EXPECT_TRUE(rule.operands[2].has(DType::i8));
  EXPECT_FALSE(rule.operands[2].has(DType::i64));
  EXPECT_EQ(TypeRule::of(rule.operands, 9)->variable, "Q2");
  EXPECT_EQ(rule.results[0].variable, "Q2");
  for (const char* bad : {"T", "T:floats, T:index", "index:floats", "T:", "T:U"}) EXPECT_THROW(parse_type_rule(bad), Error) << bad;
}

std::string refusal(void (*check)()) {
  try {
    check();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unsupported);
    return error.message();
  }
  return {};
}

OpSet one_op() {
  OpSet ops;
  ops.add({.name = "Pick", .inputs = "data at", .outputs = "y", .dims = "..., -> ...", .doc = "one", .since = 13});
  ops.claim("Pick", 9, "floats, index");
  return ops;
}

TEST(Claims, RefuseWhatTheyDoNotName) {
  EXPECT_EQ(refusal([] { check_opset(one_op(), "Pick", 9); }), "");
  EXPECT_EQ(refusal([] { check_opset(one_op(), "Other", 1); }), "");
  EXPECT_EQ(refusal([] { check_opset(one_op(), "Pick", 8); }),
            "the form that op \"Pick\" of domain \"ai.onnx\" has in opset 8 is not read; those from opset 9 on are");
  auto types = [](DType data, DType at) {
    OpSet ops = one_op();
    Node node;
    node.op = "Pick";
    node.opset = 12;
    check_types(*ops.find("Pick"), node, std::vector<DType>{data, at}, {});
  };
  EXPECT_NO_THROW(types(DType::f16, DType::i64));
  EXPECT_NO_THROW(types(DType::none, DType::none));  // not known yet
  try {
    types(DType::f16, DType::f32);
    ADD_FAILURE() << "an index of floats passes";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "op \"Pick\" of domain \"ai.onnx\" opset 12 does not take f32 for input 1 (at)");
  }
}

}  // namespace
}  // namespace plait::test
