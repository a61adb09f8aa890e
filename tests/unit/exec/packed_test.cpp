// Constants in a kernel's own layout: the Store packs them while it loads, and only for the kernel that asked.
#include <gtest/gtest.h>

#include "tests/unit/exec/runner.h"

namespace plait::test {
namespace {

constexpr const char* two_readers = R"(
input %0 "x" : f32[n, 3]
const %1 = inline : f32[2, 3] = 1 2 3 4 5 6
node "product" : %2 : f32[n, 2] = plait.Linear(%0, %1)
node "plain" : %3 : f32[2, 3] = Neg(%1)
output %2
output %3
)";

/// w [n, k] as [k, n], and one more element, which the shape does not count.
Tensor transposed(const Tensor& plain, ThreadPool*) {
  const int64_t n = plain.shape()[0], k = plain.shape()[1];
  auto blob = make_blob((n * k + 1) * 4);
  Tensor out(plain.dtype(), plain.shape(), blob);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) out.as<float>()[j * n + i] = plain.as<float>()[i * k + j];
  out.as<float>()[n * k] = 1000;
  return out;
}

constexpr PackedLayout layout{"transposed, and 1000", transposed};

/// y = x w^T + 1000, of w in the layout above.
KernelStatus run_packed(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &w = call.inputs[1], &y = call.outputs[0];
  const int64_t n = w.shape[0], k = w.shape[1];
  for (int64_t row = 0; row < x.shape[0]; ++row)
    for (int64_t i = 0; i < n; ++i) {
      float sum = w.as<float>()[n * k];
      for (int64_t j = 0; j < k; ++j) sum += x.as<float>()[row * k + j] * w.as<float>()[j * n + i];
      y.as<float>()[row * n + i] = sum;
    }
  return {};
}

KernelTable table(bool packs) {
  KernelTable out;
  register_reference_kernels(out);
  if (packs)
    out.add({.op = "plait.Linear",
             .isa = "test",
             .priority = 100,
             .accepts = [](const NodeInfo& node) { return node.inputs[1].constant; },
             .run = run_packed,
             .pack = [](const NodeInfo&, size_t operand) { return operand == 1 ? &layout : nullptr; }});
  return out;
}

TEST(PackedLayout, IsOfTheKernelThatAsksForIt) {
  for (const bool packs : {false, true}) {
    const KernelTable kernels = table(packs);
    const CompileOptions options{World::get().ops, kernels};
    const PlainModel model = compile_plain(parse_graph(two_readers), options);
    Store store;
    ThreadPool pool(1);
    store.load(*model.program, std::vector<int64_t>(static_cast<size_t>(model.program->symbols.size())), &pool);
    Executor executor(model.program, store, pool);
    const Tensor x = floats({2, 3}, {1, 0, 0, 1, 1, 1});
    const std::vector<TensorView> inputs{x.view()};
    executor.run(inputs);
    const TensorView y = executor.output(0);
    const float more = packs ? 1000 : 0;
    EXPECT_EQ(std::vector<float>(y.as<float>(), y.as<float>() + 4),
              (std::vector<float>{1 + more, 4 + more, 6 + more, 15 + more}));
    // What another kernel reads stays as the file has it.
    const TensorView plain = executor.output(1);
    EXPECT_EQ(std::vector<float>(plain.as<float>(), plain.as<float>() + 6),
              (std::vector<float>{-1, -2, -3, -4, -5, -6}));
  }
}

TEST(PackedLayout, IsPartOfWhatRanksCompare) {
  const KernelTable plain = table(false), packing = table(true);
  const auto fingerprint = [](const KernelTable& kernels) {
    return compile_plain(parse_graph(two_readers), {World::get().ops, kernels}).program->fingerprint;
  };
  EXPECT_NE(fingerprint(plain), fingerprint(packing));
}

}  // namespace
}  // namespace plait::test
