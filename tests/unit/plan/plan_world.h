#pragma once
// Ops and kernels for compilations that nothing runs.
#include "core/ops/ops.h"
#include "core/passes/base/pass.h"
#include "kernels/cpu/cpu.h"
#include "kernels/reference/reference.h"

namespace plait::test {

struct PlanWorld {
  OpSet ops;
  KernelTable kernels;
  PlanWorld() {
    register_ops(ops);
    register_reference_kernels(kernels);
    register_cpu_kernels(kernels, "");
  }
  CompileOptions options() const { return CompileOptions{ops, kernels}; }
  static const PlanWorld& get() {
    static const PlanWorld world;
    return world;
  }
};

}  // namespace plait::test
