// What holds of every row of the schema.
#include <algorithm>

#include "core/base/linear_operands.h"
#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "tests/unit/ops/ops_test.h"

namespace plait {
namespace {

using test::all_ops;

TEST(Rows, EveryExampleRuleParses) {
  int with_rule = 0;
  for (const auto& [name, row] : all_ops().all()) {
    if (row.dims.empty()) {
      EXPECT_EQ(row.dims_of, nullptr) << name << " writes rules, but has no example";
      continue;
    }
    ++with_rule;
    DimsRule rule;
    ASSERT_NO_THROW(rule = parse_dims_rule(row.dims)) << name;
    EXPECT_GE(static_cast<int>(rule.results.size()), row.min_outputs) << name;
    auto within = [](size_t count, int most) { return most < 0 || static_cast<int>(count) <= most; };
    EXPECT_TRUE(within(rule.results.size(), row.max_outputs)) << name;
    EXPECT_TRUE(within(rule.operands.size(), row.max_inputs)) << name;
    EXPECT_GE(static_cast<int>(rule.operands.size()), row.min_inputs) << name;
  }
  EXPECT_GT(with_rule, 100);
}

TEST(Rows, FactorsOfResultsHaveASize) {
  for (const auto& [name, row] : all_ops().all()) {
    if (row.dims.empty()) continue;
    for (const FactorUse& use : factors(parse_dims_rule(row.dims))) {
      bool sized = use.in_operands || use.factor.fixed || row.infer;
      EXPECT_TRUE(sized) << name << ": nothing tells the size of factor " << use.factor.name;
    }
  }
}

TEST(Rows, EveryRowIsComplete) {
  const std::vector<std::string> kinds = {"int", "float", "string", "ints", "floats", "strings", "tensor", "graph"};
  for (const auto& [name, row] : all_ops().all()) {
    EXPECT_FALSE(row.doc.empty()) << name;
    EXPECT_EQ(row.doc.find('\n'), std::string::npos) << name;
    EXPECT_EQ(row.since == 0, name.starts_with("plait.")) << name;
    for (const AttributeRow& attribute : row.attributes)
      EXPECT_NE(std::find(kinds.begin(), kinds.end(), attribute.kind), kinds.end()) << name << " " << attribute.name;
    bool has_body = std::any_of(row.attributes.begin(), row.attributes.end(),
                                [](const AttributeRow& attribute) { return attribute.kind == "graph"; });
    bool held = row.written_as.empty();  // by graphs
    EXPECT_TRUE(!held || has_body || row.infer || !row.dims.empty()) << name << " has neither shape rule nor dims rule";
  }
}

TEST(Rows, OperandCounts) {
  const OpSchema& clip = *all_ops().find("Clip");
  EXPECT_EQ(clip.min_inputs, 1);
  EXPECT_EQ(clip.max_inputs, 3);
  const OpSchema& concat = *all_ops().find("Concat");
  EXPECT_EQ(concat.min_inputs, 1);
  EXPECT_EQ(concat.max_inputs, -1);
  const OpSchema& loop = *all_ops().find("Loop");
  EXPECT_EQ(loop.min_inputs, 0);
  EXPECT_EQ(loop.max_inputs, -1);
  const OpSchema& grouped = *all_ops().find("com.microsoft.GroupQueryAttention");
  EXPECT_EQ(grouped.min_inputs, 7);
  EXPECT_EQ(grouped.max_inputs, 14);
  OpSet twice;
  register_ops(twice);
  EXPECT_NE(test::error_of([&] { register_ops(twice); }), "");
}

Node node_of(std::string op, std::vector<ValueId> inputs, Attributes attributes = {}) {
  Node out;
  out.op = std::move(op);
  out.name = "the_node";
  out.inputs = std::move(inputs);
  out.outputs = {9};
  out.attributes = std::move(attributes);
  return out;
}

std::string refusal(const Node& node) {
  return test::error_of([&] { check_node(all_ops(), node); });
}

TEST(CheckNode, NamesWhatIsWrong) {
  EXPECT_EQ(refusal(node_of("Add", {0, 1})), "");
  std::string unknown = refusal(node_of("com.acme.Add", {0, 1}));
  EXPECT_NE(unknown.find("the_node"), std::string::npos);
  EXPECT_NE(unknown.find("op \"Add\" of domain \"com.acme\""), std::string::npos);
  EXPECT_NE(refusal(node_of("Add", {0})).find("takes 2 inputs, got 1"), std::string::npos);
  EXPECT_NE(refusal(node_of("Clip", {0, 1, 2, 3})).find("takes 1 to 3 inputs, got 4"), std::string::npos);
  EXPECT_NE(refusal(node_of("Concat", {}, test::attrs({{"axis", int64_t{0}}}))).find("at least 1"),
            std::string::npos);
  EXPECT_NE(refusal(node_of("Add", {0, no_value})).find("input 1 (b)"), std::string::npos);
  EXPECT_NE(refusal(node_of("Concat", {0, 1})).find("needs the attribute \"axis\" (int)"), std::string::npos);
  EXPECT_NE(refusal(node_of("Gather", {0, 1}, test::attrs({{"axes", int64_t{0}}}))).find("no attribute \"axes\""),
            std::string::npos);
  EXPECT_NE(
      refusal(node_of("Gather", {0, 1}, test::attrs({{"axis", std::string("x")}}))).find("kind int, got string"),
      std::string::npos);
  EXPECT_EQ(refusal(node_of("LeakyRelu", {0}, test::attrs({{"alpha", int64_t{1}}}))), "");  // an int is a float
}

/// The number of the operand "scales" of "x w bias? scales!? zeros!?".
size_t operand_of(std::string_view op, std::string_view name) {
  const std::vector<std::string> names = split(all_ops().find(op)->inputs, ' ');
  auto found = std::find_if(names.begin(), names.end(), [&](std::string_view one) {
    return one.substr(0, one.find_first_of("?!")) == name;
  });
  return static_cast<size_t>(found - names.begin());
}

TEST(Rows, OperandsOfProductsHaveTheirNumbers) {
  for (const char* op : {"plait.Linear", "plait.AdaptedLinear"}) {
    EXPECT_EQ(operand_of(op, "x"), linear_x) << op;
    EXPECT_EQ(operand_of(op, "w"), linear_w) << op;
    EXPECT_EQ(operand_of(op, "bias"), linear_bias) << op;
    EXPECT_EQ(operand_of(op, "scales"), linear_scales) << op;
    EXPECT_EQ(operand_of(op, "zeros"), linear_zeros) << op;
  }
  EXPECT_EQ(all_ops().find("plait.Linear")->max_inputs, static_cast<int>(linear_operands));
  EXPECT_EQ(operand_of("plait.AdaptedLinear", "a"), linear_operands);
  const std::pair<const char*, size_t> gated[] = {
      {"x", gated_x},
      {"gate", gated_gate},
      {"up", gated_up},
      {"gate_scales", gated_gate_scales},
      {"gate_zeros", gated_gate_zeros},
      {"up_scales", gated_up_scales},
      {"up_zeros", gated_up_zeros}};
  for (const auto& [name, number] : gated) EXPECT_EQ(operand_of("plait.GatedLinear", name), number) << name;
  EXPECT_EQ(all_ops().find("plait.GatedLinear")->max_inputs, static_cast<int>(gated_operands));
}

}  // namespace
}  // namespace plait
