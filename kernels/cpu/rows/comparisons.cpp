// Comparisons of f32, i32 and i64, and And and Or, with broadcasting: loops that any compiler vectorises.
#include <functional>

#include "kernels/cpu/rows/broadcast.h"
#include "kernels/cpu/rows/register.h"

namespace plait::cpu {
namespace {

template <class T, class Compare>
void compare_runs(const KernelCall& call) {
  const TensorView &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  each_run(call.pool, a.shape, b.shape, y.shape, [&](const BroadcastRun& run) {
    const T *left = a.as<T>() + run.a, *right = b.as<T>() + run.b;
    uint8_t* const to = y.as<uint8_t>() + run.y;
    const Compare compare;
    if (run.a_step == 0)
      for (int64_t i = 0; i < run.count; ++i) to[i] = compare(*left, right[i * run.b_step]);
    else if (run.b_step == 0)
      for (int64_t i = 0; i < run.count; ++i) to[i] = compare(left[i], *right);
    else
      for (int64_t i = 0; i < run.count; ++i) to[i] = compare(left[i], right[i]);
  });
}

template <class Compare>
KernelStatus run_comparison(const KernelCall& call) {
  if (call.inputs[0].dtype == DType::f32) compare_runs<float, Compare>(call);
  else if (call.inputs[0].dtype == DType::i32) compare_runs<int32_t, Compare>(call);
  else compare_runs<int64_t, Compare>(call);
  return {};
}
template <class Combine>
KernelStatus run_bools(const KernelCall& call) {
  compare_runs<uint8_t, Combine>(call);
  return {};
}

bool accepts_comparison(const NodeInfo& node) {
  const DType dtype = node.inputs[0].dtype;
  return dtype == node.inputs[1].dtype && (dtype == DType::f32 || dtype == DType::i32 || dtype == DType::i64);
}

}  // namespace

void add_comparisons(KernelTable& table, Isa isa) {
  if (isa != Isa::avx2 && isa != Isa::avx512) return;
  auto add = [&](const char* op, KernelStatus (*run)(const KernelCall&)) {
    add_kernel(table, isa, {.op = op, .dtypes = "f32, i32, i64", .accepts = accepts_comparison, .run = run});
  };
  add("Equal", run_comparison<std::equal_to<>>);
  add("Greater", run_comparison<std::greater<>>);
  add("GreaterOrEqual", run_comparison<std::greater_equal<>>);
  add("Less", run_comparison<std::less<>>);
  add("LessOrEqual", run_comparison<std::less_equal<>>);
  add_kernel(table, isa, {.op = "And", .dtypes = "bool", .run = run_bools<std::logical_and<>>});
  add_kernel(table, isa, {.op = "Or", .dtypes = "bool", .run = run_bools<std::logical_or<>>});
}

}  // namespace plait::cpu
