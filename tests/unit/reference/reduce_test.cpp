#include <limits>

#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

const Tensor reduce_grid = f32({2, 3}, {1, 2, 3, 4, 5, 6});

TEST(ReferenceReduce, Axes) {
  expect_op("ReduceSum", {}, {reduce_grid, ints({1})}, f32({2, 1}, {6, 15}));
  expect_op("ReduceSum", attributes({{"keepdims", int64_t{0}}}), {reduce_grid, ints({-2})}, f32({3}, {5, 7, 9}));
  expect_op("ReduceSum", {}, {reduce_grid}, f32({1, 1}, {21}));
  expect_op("ReduceSum", attributes({{"noop_with_empty_axes", int64_t{1}}}), {reduce_grid}, reduce_grid);
  EXPECT_EQ(refused("ReduceSum", {}, {reduce_grid, ints({2})}, {{DType::f32, {2, 1}}}).code,
            KernelCode::index_out_of_range);
}

TEST(ReferenceReduce, Kinds) {
  Tensor last = ints({1});
  expect_op("ReduceMean", {}, {reduce_grid, last}, f32({2, 1}, {2, 5}));
  expect_op("ReduceMax", {}, {reduce_grid, last}, f32({2, 1}, {3, 6}));
  expect_op("ReduceMin", {}, {reduce_grid, last}, f32({2, 1}, {1, 4}));
  expect_op("ReduceProd", {}, {reduce_grid, last}, f32({2, 1}, {6, 120}));
  expect_op("ReduceL1", {}, {f32({2}, {-3, 4})}, f32({1}, {7}));
  expect_op("ReduceL2", {}, {f32({2}, {-3, 4})}, f32({1}, {5}));
  expect_op("ReduceSumSquare", {}, {f32({2}, {-3, 4})}, f32({1}, {25}));
  expect_op("ReduceLogSumExp", {}, {f32({2}, {1000, 1000})}, f32({1}, {1000 + std::log(2.0)}));
  expect_op("ReduceMean", {}, {i32({2}, {1, 4})}, i32({1}, {2}));
}

TEST(ReferenceReduce, NothingHasANeutralElement) {
  Tensor none(DType::f32, {2, 0}), last = ints({1});
  expect_op("ReduceSum", {}, {none, last}, f32({2, 1}, {0, 0}));
  expect_op("ReduceProd", {}, {none, last}, f32({2, 1}, {1, 1}));
  expect_op("ReduceMax", {}, {none, last}, f32({2, 1}, {-INFINITY, -INFINITY}));
  expect_op("ReduceMax", {}, {Tensor(DType::i8, {0})}, tensor(DType::i8, {1}, {-128}));
  expect_op("ReduceMin", {}, {Tensor(DType::u8, {0})}, tensor(DType::u8, {1}, {255}));
}

TEST(ReferenceReduce, ArgMax) {
  Tensor x = f32({2, 3}, {1, 3, 3, 5, 4, 5});
  Attributes last = attributes({{"axis", int64_t{1}}});
  expect_op("ArgMax", last, {x}, i64({2, 1}, {1, 0}));
  expect_op("ArgMax", attributes({{"axis", int64_t{1}}, {"select_last_index", int64_t{1}}}), {x},
            i64({2, 1}, {2, 2}));
  expect_op("ArgMin", last, {x}, i64({2, 1}, {0, 1}));
}

TEST(ReferenceOrder, TopKTakesTheLowerIndexOfEquals) {
  auto out = run_reference("TopK", {}, {f32({4}, {2, 7, 7, 1}), ints({3})}, {{DType::f32, {3}}, {DType::i64, {3}}});
  expect_near(out[0], f32({3}, {7, 7, 2}));
  expect_near(out[1], ints({1, 2, 0}));
  out = run_reference("TopK", attributes({{"largest", int64_t{0}}, {"axis", int64_t{0}}}),
                      {f32({2, 2}, {2, 7, 1, 9}), ints({1})}, {{DType::f32, {1, 2}}, {DType::i64, {1, 2}}});
  expect_near(out[0], f32({1, 2}, {1, 7}));
  expect_near(out[1], i64({1, 2}, {1, 0}));
}

TEST(ReferenceOrder, RunningSums) {
  Tensor x = i64({4}, {1, 2, 3, 4}), axis = i32({}, {0});
  auto flags = [](int64_t exclusive, int64_t reverse) {
    return attributes({{"exclusive", exclusive}, {"reverse", reverse}});
  };
  expect_op("CumSum", {}, {x, axis}, ints({1, 3, 6, 10}));
  expect_op("CumSum", flags(1, 0), {x, axis}, ints({0, 1, 3, 6}));
  expect_op("CumSum", flags(0, 1), {x, axis}, ints({10, 9, 7, 4}));
  expect_op("CumSum", flags(1, 1), {x, axis}, ints({9, 7, 4, 0}));
  expect_op("CumProd", {}, {x, axis}, ints({1, 2, 6, 24}));
}

TEST(ReferenceNormalize, Softmaxes) {
  double e = std::exp(1.0);
  expect_op("Softmax", {}, {f32({2, 2}, {1000, 1001, 0, 0})}, f32({2, 2}, {1 / (1 + e), e / (1 + e), 0.5, 0.5}));
  expect_op("Softmax", attributes({{"axis", int64_t{0}}}), {f32({2, 2}, {0, 1, 1, 1})},
            f32({2, 2}, {1 / (1 + e), 0.5, e / (1 + e), 0.5}));
  expect_op("LogSoftmax", {}, {f32({2}, {0, 0})}, f32({2}, {-std::log(2.0), -std::log(2.0)}));
  expect_op("Hardmax", {}, {f32({3}, {1, 2, 2})}, f32({3}, {0, 1, 0}));
  expect_op("LpNormalization", {}, {f32({2, 2}, {3, 4, 0, 0})}, f32({2, 2}, {0.6, 0.8, 0, 0}));
  expect_op("Softmax", {}, {Tensor(DType::f32, {2, 0})}, Tensor(DType::f32, {2, 0}));
}

TEST(ReferenceNormalize, Rows) {
  Tensor x = f32({1, 2}, {3, 5}), scale = f32({2}, {2, 10}), bias = f32({2}, {1, 1});
  Attributes exact = attributes({{"epsilon", 0.0}});
  auto out = run_reference("LayerNormalization", exact, {x, scale, bias},
                           {{DType::f32, {1, 2}}, {DType::f32, {1, 1}}, {DType::f32, {1, 1}}});
  expect_near(out[0], f32({1, 2}, {-1, 11}));
  expect_near(out[1], f32({1, 1}, {4}));
  expect_near(out[2], f32({1, 1}, {1}));
  double root = std::sqrt(17.0);
  for (const char* op :
       {"RMSNormalization", "SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization"})
    expect_op(op, exact, {x, scale}, f32({1, 2}, {6 / root, 50 / root}));
}

TEST(ReferenceNormalize, SkipForms) {
  Tensor x = f32({1, 2}, {1, 2}), skip = f32({1, 2}, {1, 2}), gamma = f32({2}, {2, 10}), bias = f32({2}, {1, 1});
  Attributes exact = attributes({{"epsilon", 0.0}});
  double root = std::sqrt(17.0);
  auto out = run_reference("com.microsoft.SkipSimplifiedLayerNormalization", exact, {x, skip, gamma, bias},
                           {{DType::f32, {1, 2}}, {}, {}, {DType::f32, {1, 2}}});
  expect_near(out[0], f32({1, 2}, {6 / root, 50 / root}), 1e-6);
  expect_near(out[3], f32({1, 2}, {3, 5}));
  out = run_reference("com.microsoft.SkipLayerNormalization", exact, {x, skip, gamma, bias, bias},
                      {{DType::f32, {1, 2}}});
  expect_near(out[0], f32({1, 2}, {-1, 11}), 1e-6);
}

TEST(ReferenceNormalize, Channels) {
  Tensor x = f32({1, 2, 2}, {1, 3, 10, 30}), one = f32({2}, {1, 1}), zero = f32({2}, {0, 0});
  Attributes exact = attributes({{"epsilon", 0.0}});
  expect_op("InstanceNormalization", exact, {x, one, zero}, f32({1, 2, 2}, {-1, 1, -1, 1}));
  expect_op("GroupNormalization", attributes({{"epsilon", 0.0}, {"num_groups", int64_t{2}}}),
            {x, f32({2}, {1, 5}), zero}, f32({1, 2, 2}, {-1, 1, -5, 5}));
  expect_op("BatchNormalization", exact, {x, one, zero, f32({2}, {2, 20}), f32({2}, {1, 4})},
            f32({1, 2, 2}, {-1, 1, -5, 5}));
}

}  // namespace
}  // namespace plait::test
