// Kernels whose work one thread does end once the run is cancelled.
#include <gtest/gtest.h>

#include <atomic>

#include "core/base/thread_pool.h"
#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

using Ints = std::vector<int64_t>;

struct Long {
  const char* op;
  Attributes attributes;
  std::vector<Tensor> inputs;
  std::vector<OutputType> outputs;
};

std::vector<Long> long_calls() {
  const int64_t n = 1 << 17;
  const Tensor line = random_tensor(DType::f32, {n}, 1), square = random_tensor(DType::f32, {300, 300}, 2);
  const Tensor plane = square.reshaped({1, 1, 300, 300}), zeros = ints(Ints(n, 0));
  const Attributes window = attributes({{"kernel_shape", Ints{31, 31}}});
  const OutputType pooled{DType::f32, {1, 1, 270, 270}};
  return {{"TopK", {}, {line, ints({n / 2})}, {{DType::f32, {n / 2}}, {DType::i64, {n / 2}}}},
          {"CumSum", {}, {line, i64({}, {0})}, {{DType::f32, {n}}}},
          {"Unique", {}, {line}, {{DType::f32, {n}}}},
          {"NonZero", {}, {line}, {{DType::i64, {1, n}}}},
          {"GatherElements", {}, {line, zeros}, {{DType::f32, {n}}}},
          {"ScatterElements", {}, {line, zeros, line}, {{DType::f32, {n}}}},
          {"ScatterND", {}, {line, zeros.reshaped({n, 1}), line}, {{DType::f32, {n}}}},
          {"RandomNormalLike", {}, {line}, {{DType::f32, {n}}}},
          {"RandomUniformLike", {}, {line}, {{DType::f32, {n}}}},
          {"Bernoulli", {}, {random_tensor(DType::f32, {n}, 1, 0, 1)}, {{DType::f32, {n}}}},
          {"Multinomial",
           attributes({{"sample_size", n}}),
           {random_tensor(DType::f32, {1, 4}, 1)},
           {{DType::i32, {1, n}}}},
          {"Det", {}, {square}, {{DType::f32, {}}}},
          {"Einsum", attributes({{"equation", std::string("ij,jk->")}}), {square, square}, {{DType::f32, {}}}},
          {"DFT", {}, {random_tensor(DType::f32, {1, 1009, 1}, 3)}, {{DType::f32, {1, 1009, 2}}}},
          {"RNN",
           attributes({{"hidden_size", int64_t{8}}}),
           {random_tensor(DType::f32, {2000, 1, 8}, 1), random_tensor(DType::f32, {1, 8, 8}, 2, -0.1, 0.1),
            random_tensor(DType::f32, {1, 8, 8}, 3, -0.1, 0.1)},
           {{DType::f32, {2000, 1, 1, 8}}}},
          {"MaxPool", window, {plane}, {pooled}},
          {"AveragePool", window, {plane}, {pooled}},
          {"LpPool", window, {plane}, {pooled}},
          {"NonMaxSuppression",
           {},
           {random_tensor(DType::f32, {1, n, 4}, 1), random_tensor(DType::f32, {1, 1, n}, 2), ints({n}).reshaped({}),
            f32({}, {0.5})},
           {{DType::i64, {1, 3}}}}};
}

TEST(Stop, EndsLongKernels) {
  const std::atomic<bool> stopped{true};
  ThreadPool pool(1);  // the run's, whose flag is this thread's too
  for (const Long& one : long_calls()) {
    SCOPED_TRACE(one.op);
    pool.stop_on(&stopped);
    try {
      run_reference(one.op, one.attributes, one.inputs, one.outputs);
      ADD_FAILURE() << "it ran to its end";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::cancelled) << error.what();
    }
    pool.stop_on(nullptr);
  }
}

}  // namespace
}  // namespace plait::test
