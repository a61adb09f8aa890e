// The tables that only an op's name connects: schema rows, reference kernels, fast kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/base/text.h"
#include "core/exec/kernel.h"
#include "core/graph/schema.h"
#include "core/ops/ops.h"
#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"

namespace plait::test {
namespace {

using Names = std::set<std::string>;

OpSet all_ops() {
  OpSet out;
  register_ops(out);
  return out;
}

Names ops_of(void (*fill)(KernelTable&)) {
  KernelTable table;
  fill(table);
  Names out;
  for (const auto& kernel : table.all()) out.insert(kernel->op);
  return out;
}

Names reference_ops() { return ops_of(register_reference_kernels); }
Names cpu_ops() {
  return ops_of([](KernelTable& table) { register_cpu_kernels(table, ""); });
}

TEST(KernelsAndOps, EveryKernelComputesAnOpThatHasASchemaRow) {
  const OpSet ops = all_ops();
  for (const Names& names : {reference_ops(), cpu_ops()})
    for (const std::string& op : names) EXPECT_NE(ops.find(op), nullptr) << "a kernel computes " << op;
}

TEST(KernelsAndOps, EveryFastKernelHasAReferenceToBeHeldAgainst) {
  const Names reference = reference_ops();
  for (const std::string& op : cpu_ops()) EXPECT_TRUE(reference.count(op)) << op;
}

TEST(KernelsAndOps, EveryOpCanRunButThoseThatTheExecutorOrAPassTakes) {
  // Instructions and buffers of the program, no kernels; pass scan makes a Scan a Loop; pass shard puts collectives between
  // the nodes of several ranks, and pass stage crossings between stages.
  const Names taken = {"If",
                       "Loop",
                       "Scan",
                       "plait.Sizes",
                       "plait.State",
                       "plait.AllReduce",
                       "plait.AllGather",
                       "plait.ReduceScatter",
                       "plait.AllToAll",
                       "plait.Cross",
                       "plait.Shard"};
  const Names reference = reference_ops();
  const OpSet ops = all_ops();
  Names missing;
  for (const auto& [name, row] : ops.all())
    if (!reference.count(name) && row.written_as.empty()) missing.insert(name);
  EXPECT_EQ(missing, taken);
}

TEST(KernelsAndOps, WhatAnOpUpdatesIsHandedOnUnderItsName) {
  const OpSet ops = all_ops();
  Names updating;
  for (const auto& [name, row] : ops.all()) {
    if (row.updates == 0) continue;
    updating.insert(name);
    const std::vector<std::string> in = split(row.inputs, ' '), out = split(row.outputs, ' ');
    const auto count = static_cast<size_t>(row.updates);
    ASSERT_LE(count, std::min(in.size(), out.size())) << name;
    for (size_t k = 0; k < count; ++k) EXPECT_EQ(in[k], out[k]) << name;
  }
  EXPECT_EQ(updating,
            (Names{"plait.Accumulate", "plait.AdamW", "plait.AddAdapters", "plait.Assign", "plait.CausalConv",
                   "plait.FactoredStep", "plait.KvWrite", "plait.LinearAttention", "plait.SGD"}));
}

TEST(KernelsAndOps, ASqueezeWithoutAxesSettlesSizesThatOnlyARunCanTell) {
  const OpSet ops = all_ops();
  const OpSchema& row = *ops.find("Squeeze");
  ASSERT_NE(row.assumes, nullptr);
  SymbolTable symbols;
  const Dim open = Dim::symbol(symbols.intern("s"));
  Node bare, axes;
  bare.inputs = {0};
  axes.inputs = {0, 1};
  EXPECT_TRUE(row.assumes(bare, {{DType::f32, Dims{1, open}}}));
  EXPECT_TRUE(row.assumes(bare, {{DType::f32, std::nullopt}}));
  EXPECT_FALSE(row.assumes(bare, {{DType::f32, Dims{1, 2}}}));
  EXPECT_FALSE(row.assumes(axes, {{DType::f32, Dims{1, open}}, {DType::i64, Dims{1}}}));
}

TEST(KernelsAndOps, EveryRowIsDocumented) {
  const OpSet ops = all_ops();
  for (const auto& [name, row] : ops.all()) {
    EXPECT_FALSE(row.doc.empty()) << name;
    EXPECT_EQ(row.doc.find('\n'), std::string::npos) << name << ": one line";
  }
}

}  // namespace
}  // namespace plait::test
