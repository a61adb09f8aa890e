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
  EXPECT_GT(device.peak.at(DType::f32), 1e8);
  EXPECT_LT(device.peak.at(DType::f32), 1e14);
  EXPECT_GT(device.bandwidth, 1e8);
  EXPECT_LT(device.launch_s, 1e-3);
  EXPECT_LT(device.flops_per_second(DType::f32, 1), device.flops_per_second(DType::f32, 512));
  ASSERT_EQ(machine.levels.size(), 1u);
  EXPECT_EQ(machine.levels[0].ranks, 2);
  EXPECT_GT(machine.levels[0].bandwidth, 1e6);
  EXPECT_GT(machine.levels[0].latency_s, 1e-9);
  const Machine again = parse_machine(machine_json(machine));
  EXPECT_NEAR(again.device.bandwidth, device.bandwidth, 1e-3 * device.bandwidth);
  EXPECT_NEAR(again.device.peak.at(DType::bf16), device.peak.at(DType::bf16), 1e-3 * device.peak.at(DType::bf16));
}

}  // namespace
}  // namespace plait
