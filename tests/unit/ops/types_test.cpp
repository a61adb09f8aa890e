// Operands that must have one type: the rows against the ONNX standard, and a node of mixed types of every row.
#include <sstream>

#include "tests/unit/support/golden.h"
#include "tests/unit/ops/ops_test.h"

namespace plait::test {
namespace {

/// The types of operand i; an empty set where the row names none.
OperandTypes types_of(const OpSchema& row, size_t i) {
  const OperandTypes* types = TypeRule::of(row.type_rule.operands, i);
  return types ? *types : OperandTypes{};
}

/// As many operands as the row names, repeated ones twice.
size_t operand_count(const OpSchema& row) {
  return static_cast<size_t>(row.max_inputs < 0 ? std::max(row.min_inputs, 1) + 1 : row.max_inputs);
}

DType first_of(const OperandTypes& types, DType but = DType::none) {
  for (int number = 1; number <= static_cast<int>(DType::i2); ++number)
    if (auto dtype = static_cast<DType>(number); dtype != but && types.has(dtype)) return dtype;
  return DType::none;
}

std::optional<Error> refusal(const OpSchema& row, const std::vector<DType>& inputs) {
  Node node;
  node.op = row.name;
  try {
    check_types(row, node, inputs, {});
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(TypeVariables, EveryRowNamesTypes) {
  for (const auto& [name, row] : all_ops().all()) EXPECT_FALSE(row.types.empty()) << name;
}

TEST(TypeVariables, EveryNodeOfMixedTypesIsRefused) {
  int pairs = 0;
  for (const auto& [name, row] : all_ops().all()) {
    std::vector<DType> dtypes;
    for (size_t i = 0; i < operand_count(row); ++i) dtypes.push_back(first_of(types_of(row, i)));
    EXPECT_FALSE(refusal(row, dtypes)) << name << ": " << refusal(row, dtypes)->message();
    for (size_t i = 0; i < dtypes.size(); ++i)
      for (size_t j = i + 1; j < dtypes.size(); ++j) {
        const OperandTypes types = types_of(row, j);
        const DType other = first_of(types, dtypes[j]);
        if (types.variable.empty() || types.variable != types_of(row, i).variable || other == DType::none) continue;
        // The pair only: other operands are not known.
        std::vector<DType> mixed(dtypes.size(), DType::none);
        mixed[i] = dtypes[i];
        mixed[j] = other;
        const std::optional<Error> error = refusal(row, mixed);
        ASSERT_TRUE(error) << name << " takes " << dtype_name(mixed[i]) << " for operand " << i << " and "
                           << dtype_name(mixed[j]) << " for operand " << j;
        EXPECT_EQ(error->code(), Code::bad_model);
        EXPECT_NE(error->message().find(cat("input ", j, " (")), std::string::npos) << error->message();
        EXPECT_NE(error->message().find(cat("is ", dtype_name(mixed[j]), ", expected ", dtype_name(mixed[i]))),
                  std::string::npos)
            << error->message();
        EXPECT_FALSE(error->hint().empty());
        ++pairs;
      }
  }
  EXPECT_GT(pairs, 100);
}

/// "T T Tind" of the standard's table, the last one repeated where it is "T...".
std::vector<std::string> variables_of(std::istringstream& words, size_t count) {
  std::vector<std::string> out;
  for (std::string word; words >> word && word != "->";) {
    const bool repeated = word.ends_with("..."), differ = word.ends_with("*");
    if (repeated) word.resize(word.size() - 3);
    out.push_back(differ || word == "=" ? std::string() : word);
    while (repeated && out.size() < count) out.push_back(word);
  }
  out.resize(std::max(out.size(), count));
  return out;
}

TEST(TypeVariables, AreThoseOfTheStandard) {
  std::istringstream lines(golden("tests/unit/ops/goldens/standard_types.txt"));
  int compared = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string op;
    int opset = 0;
    words >> op >> opset;
    auto found = all_ops().all().find(op);
    if (found == all_ops().all().end() || found->second.oldest == 0) continue;
    const OpSchema& row = found->second;
    const std::vector<std::string> standard = variables_of(words, operand_count(row));
    for (size_t i = 0; i < operand_count(row); ++i)
      for (size_t j = i + 1; j < operand_count(row); ++j) {
        const bool expected = !standard[i].empty() && standard[i] == standard[j];
        const OperandTypes a = types_of(row, i), b = types_of(row, j);
        if (a.empty() || b.empty()) continue;  // one must be absent
        EXPECT_EQ(!a.variable.empty() && a.variable == b.variable, expected)
            << op << " of opset " << opset << ": operands " << i << " and " << j << " are " << standard[i] << " and "
            << standard[j] << " in the standard, the row is " << row.types;
      }
    ++compared;
  }
  EXPECT_GT(compared, 140);
}

std::string message_of(const std::function<void()>& add) {
  try {
    add();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_model);
    return error.message();
  }
  return {};
}

TEST(TypeVariables, AreHeldByInference) {
  Net net;
  const ValueId narrow = net.input("8", DType::i8), wide = net.input("8", DType::f64);
  Attributes axis;
  axis.set("axis", int64_t{0});
  EXPECT_NE(message_of([&] { net.node("Concat", {narrow, wide}, axis); })
                .find("input 1 (inputs) is f64, expected i8, the type of input 0 (inputs)"),
            std::string::npos);
  EXPECT_NE(message_of([&] { net.node("Add", {narrow, wide}); }).find("\"Add\""), std::string::npos);
  const ValueId index = net.ints({0});
  EXPECT_NE(message_of([&] { net.node("TensorScatter", {net.input("2 4 3"), net.input("2 1 3", DType::i64)}, {}); })
                .find("(update)"),
            std::string::npos);
  EXPECT_NE(message_of([&] { net.node("Where", {net.input("8", DType::boolean), narrow, wide}); }).find("(y)"),
            std::string::npos);
  EXPECT_NO_THROW(net.node("Gather", {wide, index}));
}

/// What only a run can show is held against the rule when it runs.
TEST(TypeVariables, AreHeldAtRunTime) {
  Graph graph;
  Attributes axis;
  axis.set("axis", int64_t{0});
  const ValueId a = graph.add_value({}), b = graph.add_value({});
  const Node& node = graph.add_node("Concat", {a, b}, 1, axis);
  const Tensor narrow(DType::i8, {4}), wide(DType::f64, {4});
  std::vector<std::pair<DType, Shape>> outputs;
  const std::vector<TensorView> mixed{narrow.view(), wide.view()};
  EXPECT_THROW(infer_concrete(*all_ops().find("Concat"), node, mixed, outputs), Error);
}

}  // namespace
}  // namespace plait::test
