#include <set>

#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

Kernel named(std::string op, std::string isa, int priority) {
  Kernel kernel;
  kernel.op = std::move(op);
  kernel.isa = std::move(isa);
  kernel.priority = priority;
  return kernel;
}

TEST(KernelTable, FallsInPriorityAndKeepsTheOrderOfEquals) {
  KernelTable table;
  table.add(named("Add", "reference", 0));
  table.add(named("Add", "first", 20));
  table.add(named("Add", "second", 20));
  table.add(named("Add", "best", 30));
  std::vector<std::string> order;
  for (const auto& kernel : table.all()) order.push_back(kernel->isa);
  EXPECT_EQ(order, (std::vector<std::string>{"best", "first", "second", "reference"}));
}

TEST(KernelTable, AsksWhetherAKernelAccepts) {
  KernelTable table;
  table.add(named("Add", "reference", 0));
  Kernel picky = named("Add", "avx2", 20);
  picky.accepts = [](const NodeInfo& node) { return node.inputs[0].dtype == DType::f32; };
  table.add(picky);
  Attributes attributes;
  OperandInfo f32_operand{DType::f32, 1, false}, f16_operand{DType::f16, 1, false};
  EXPECT_EQ(table.find({"Add", attributes, {&f32_operand, 1}, {}})->isa, "avx2");
  EXPECT_EQ(table.find({"Add", attributes, {&f16_operand, 1}, {}})->isa, "reference");
  EXPECT_EQ(table.reference({"Add", attributes, {&f32_operand, 1}, {}})->isa, "reference");
  EXPECT_EQ(table.find({"Sub", attributes, {&f32_operand, 1}, {}}), nullptr);
}

TEST(ReferenceKernels, AreOneAnOp) {
  std::set<std::string> ops;
  for (const auto& kernel : reference_table().all()) {
    EXPECT_TRUE(ops.insert(kernel->op).second) << kernel->op;
    EXPECT_EQ(kernel->isa, "reference");
    EXPECT_EQ(kernel->priority, 0);
    EXPECT_NE(kernel->run, nullptr);
  }
  EXPECT_GE(ops.size(), 150u);
}

TEST(ReferenceKernels, RefuseDtypesThatAnOpDoesNotHave) {
  Attributes attributes;
  OperandInfo text{DType::string, 1, false}, whole{DType::i32, 1, false};
  EXPECT_EQ(reference_table().find({"Exp", attributes, {&text, 1}, {}}), nullptr);
  EXPECT_EQ(reference_table().find({"Exp", attributes, {&whole, 1}, {}}), nullptr);
  EXPECT_EQ(reference_table().find({"plait.Linear", attributes, {&whole, 1}, {}}), nullptr);
}

}  // namespace
}  // namespace plait::test
