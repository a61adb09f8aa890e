// How much ops compute: what is not trained costs no gradient.
#include "core/plan/price/op_work.h"

#include <gtest/gtest.h>

#include "tests/unit/plan/plan_world.h"

namespace plait {
namespace {

Type f32(std::initializer_list<int64_t> sizes) {
  Type out;
  out.dtype = DType::f32;
  Dims dims;
  for (const int64_t size : sizes) dims.push_back(Dim(size));
  out.dims = std::move(dims);
  return out;
}

double flops_of(const std::string& op, std::vector<Type> inputs, std::vector<Type> outputs) {
  const Attributes attributes;
  return work_of({op, attributes, std::move(inputs), std::move(outputs)}, test::PlanWorld::get().ops).flops;
}

TEST(OpWork, AFrozenHeadHasNoGradient) {
  const Type x = f32({128, 64}), w = f32({1000, 64}), rows = f32({128});
  const double product = 2.0 * 128 * 64 * 1000;
  EXPECT_DOUBLE_EQ(flops_of("plait.HeadLoss", {x, w, rows, rows}, {rows, x, w}), 3 * product);
  EXPECT_DOUBLE_EQ(flops_of("plait.HeadLoss", {x, w, rows, rows}, {rows, x}), 2 * product);
  EXPECT_DOUBLE_EQ(flops_of("plait.HeadLoss", {x, w, rows, rows}, {rows, x, Type{}}), 2 * product);
  EXPECT_DOUBLE_EQ(flops_of("plait.HeadBack", {x, w, rows, rows, rows}, {x, w}), 3 * product);
  EXPECT_DOUBLE_EQ(flops_of("plait.HeadBack", {x, w, rows, rows, rows}, {x}), 2 * product);
  EXPECT_DOUBLE_EQ(flops_of("plait.HeadStatistics", {x, w, rows}, {rows, rows, rows}), product);
}

TEST(OpWork, FrozenExpertsHaveNoGradient) {
  const Type x = f32({128, 64}), chosen = f32({128, 2}), wide = f32({8, 32, 64}), down = f32({8, 64, 32});
  const double product = 2.0 * 128 * 2 * 64 * 32;
  const std::vector<Type> inputs{x, x, chosen, chosen, wide, wide, down};
  EXPECT_DOUBLE_EQ(flops_of("plait.Experts", {x, chosen, chosen, wide, wide, down}, {x}), 3 * product);
  EXPECT_DOUBLE_EQ(flops_of("plait.ExpertsBack", inputs, {x, chosen, wide, wide, down}), 8 * product);
  EXPECT_DOUBLE_EQ(flops_of("plait.ExpertsBack", inputs, {x, chosen}), 5 * product);
  // A rank that has 8 of 32 experts computes a quarter of its tokens' choices.
  Attributes shared;
  shared.set("whole", int64_t{32});
  const std::string op = "plait.Experts";
  const OpWork part = work_of({op, shared, {x, chosen, chosen, wide, wide, down}, {x}}, test::PlanWorld::get().ops);
  EXPECT_DOUBLE_EQ(part.flops, 3 * product / 4);
  EXPECT_DOUBLE_EQ(part.least_dim, 8);
}

}  // namespace
}  // namespace plait
