#pragma once
// Ops and kernels for compilations that nothing runs.
#include "core/ops/ops.h"
#include "core/passes/base/pass.h"
#include "tests/unit/support/isas.h"

namespace plait::test {

struct PlanWorld {
  OpSet ops;
  KernelTable kernels;
  PlanWorld() {
    register_ops(ops);
    register_kernels_under_test(kernels);
  }
  CompileOptions options() const { return CompileOptions{ops, kernels}; }
  static const PlanWorld& get() {
    static const PlanWorld world;
    return world;
  }
};

}  // namespace plait::test
