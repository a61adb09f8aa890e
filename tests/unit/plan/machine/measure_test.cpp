// The machine at hand, measured: numbers that no machine can contradict.
#include "core/plan/measure/measure.h"

#include <gtest/gtest.h>

#include "tests/unit/plan/plan_world.h"

namespace plait {
namespace {

TEST(MeasureMachine, IsAMachineThatPlansCanRead) {
  const test::PlanWorld& world = test::PlanWorld::get();
  const Machine machine = measure_machine(2, 1, world.ops, world.kernels);
  const DeviceSpeed& device = machine.device;
  EXPECT_GT(device.peak.at(DType::f32).most(), 1e8);
  EXPECT_LT(device.peak.at(DType::f32).most(), 1e14);
  EXPECT_GT(device.bandwidth.at(1e9), 1e8);
  EXPECT_LT(device.launch_s, 1e-3);
  for (const double least : {1.0, 30.0, 4096.0}) EXPECT_GT(device.flops_per_second(DType::f32, least), 1e6);
  ASSERT_EQ(machine.levels.size(), 1u);
  EXPECT_EQ(machine.levels[0].ranks, 2);
  EXPECT_GT(machine.levels[0].bandwidth, 1e6);
  EXPECT_GT(machine.levels[0].latency_s, 1e-9);
  const Machine again = parse_machine(machine_json(machine));
  for (const double bytes : {1e4, 1e6, 1e9})
    EXPECT_NEAR(again.device.moving_s(bytes), device.moving_s(bytes), 2e-3 * device.moving_s(bytes));
  for (const double least : {1.0, 30.0, 4096.0})
    EXPECT_NEAR(again.device.flops_per_second(DType::bf16, least), device.flops_per_second(DType::bf16, least),
                2e-3 * device.flops_per_second(DType::bf16, least));
}

}  // namespace
}  // namespace plait
