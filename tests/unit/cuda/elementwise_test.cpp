// Functions of elements, casts, copies and small products on CUDA devices.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

class CudaFunctions : public testing::TestWithParam<std::tuple<const char*, int64_t>> {};

TEST_P(CudaFunctions, EqualTheReference) {
  const auto [op, n] = GetParam();
  const bool positive = std::string_view("Log Sqrt").find(op) != std::string_view::npos;
  const Tensor x = random_tensor(DType::f32, {3, n}, 1, positive ? 0.01 : -5, 5);
  expect_reference(op, {}, {x}, {{DType::f32, x.shape()}}, 2e-6, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(All, CudaFunctions,
                         testing::Combine(testing::Values("Neg", "Abs", "Exp", "Log", "Sqrt", "Reciprocal", "Sin",
                                                          "Cos", "Tanh", "Sigmoid", "Erf", "Gelu", "Swish", "Relu",
                                                          "Identity"),
                                          testing::ValuesIn(lengths)),
                         [](const auto& info) { return cat(std::get<0>(info.param), "_", std::get<1>(info.param)); });

class CudaPairs : public testing::TestWithParam<std::tuple<const char*, int64_t>> {};

TEST_P(CudaPairs, BroadcastLikeTheReference) {
  const auto [op, n] = GetParam();
  const auto compare = [op = op](const Shape& a, const Shape& b, const Shape& y) {
    SCOPED_TRACE(cat(a.text(), " ", b.text()));
    expect_reference(op, {}, {random_tensor(DType::f32, a, 1, 1, 3), random_tensor(DType::f32, b, 2, 1, 3)},
                     {{DType::f32, y}}, 1e-6, 1e-6);
  };
  compare({3, n}, {3, n}, {3, n});
  compare({3, n}, {n}, {3, n});
  compare({3, n}, {}, {3, n});
  compare({n, 1}, {2, 1, 5}, {2, n, 5});
  compare({2, 1, 3, 1, n}, {4, 1, 2, 1}, {2, 4, 3, 2, n});
}

INSTANTIATE_TEST_SUITE_P(All, CudaPairs,
                         testing::Combine(testing::Values("Add", "Sub", "Mul", "Div", "Min", "Max"),
                                          testing::ValuesIn(lengths)),
                         [](const auto& info) { return cat(std::get<0>(info.param), "_", std::get<1>(info.param)); });

TEST(CudaElements, GeluByTanhEqualsTheReference) {
  const Tensor x = random_tensor(DType::f32, {70}, 1, -5, 5);
  expect_reference("Gelu", attributes({{"approximate", std::string("tanh")}}), {x}, {{DType::f32, {70}}}, 2e-6, 2e-6);
}

TEST(CudaElements, AnglesOfLongContextsEqualTheReference) {
  const Tensor x = random_tensor(DType::f32, {300}, 1, -2e6, 2e6);
  for (const char* op : {"Sin", "Cos"}) expect_reference(op, {}, {x}, {{DType::f32, {300}}}, 0, 1e-6);
}

TEST(CudaElements, CastsEqualTheReference) {
  for (DType from : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::boolean})
    for (DType to : {DType::f32, DType::bf16, DType::f16, DType::i32, DType::i64, DType::boolean}) {
      if (from == to) continue;
      SCOPED_TRACE(cat(dtype_name(from), " to ", dtype_name(to)));
      const Tensor x = random_tensor(from, {65}, 1, from == DType::boolean ? 0 : -9, from == DType::boolean ? 2 : 9);
      expect_reference("Cast", attributes({{"to", static_cast<int64_t>(to)}}), {x}, {{to, {65}}}, 0, 0);
    }
}

class CudaCopies : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(CudaCopies, EqualTheReference) {
  const auto [dtype, n] = GetParam();
  const Tensor x = random_tensor(dtype, {2, 3, n}, 1, 0, 100);
  expect_reference("Transpose", {}, {x}, {{dtype, {n, 3, 2}}}, 0, 0);
  expect_reference("Transpose", attributes({{"perm", std::vector<int64_t>{1, 0, 2}}}), {x}, {{dtype, {3, 2, n}}}, 0,
                   0);
  expect_reference("Transpose", attributes({{"perm", std::vector<int64_t>{0, 2, 1}}}), {x}, {{dtype, {2, n, 3}}}, 0,
                   0);
  expect_reference("Expand", {},
                   {x.reshaped({2, 1, 3, n}), tensor(DType::i64, {4}, {2, 5, 3, static_cast<double>(n)})},
                   {{dtype, {2, 5, 3, n}}}, 0, 0);
  expect_reference("Reshape", {}, {x, tensor(DType::i64, {1}, {-1})}, {{dtype, {6 * n}}}, 0, 0);
  expect_reference("Flatten", attributes({{"axis", int64_t{1}}}), {x}, {{dtype, {2, 3 * n}}}, 0, 0);
  const Tensor axis = tensor(DType::i64, {1}, {1});
  expect_reference("Unsqueeze", {}, {x, axis}, {{dtype, {2, 1, 3, n}}}, 0, 0);
  expect_reference("Squeeze", {}, {x.reshaped({2, 1, 3, n}), axis}, {{dtype, {2, 3, n}}}, 0, 0);
  const Tensor more = random_tensor(dtype, {2, 4, n}, 2, 0, 100);
  expect_reference("Concat", attributes({{"axis", int64_t{1}}}), {x, more}, {{dtype, {2, 7, n}}}, 0, 0);
  expect_reference("Concat", attributes({{"axis", int64_t{-1}}}), {x, x}, {{dtype, {2, 3, 2 * n}}}, 0, 0);
  expect_reference("Split", attributes({{"axis", int64_t{1}}}), {x, tensor(DType::i64, {2}, {1, 2})},
                   {{dtype, {2, 1, n}}, {dtype, {2, 2, n}}}, 0, 0);
}

TEST_P(CudaCopies, SlicesEqualTheReference) {
  const auto [dtype, n] = GetParam();
  const Tensor x = random_tensor(dtype, {4, 5, n}, 1, 0, 100);
  const auto ints = [](const std::vector<double>& values) {
    return tensor(DType::i64, {static_cast<int64_t>(values.size())}, values);
  };
  expect_reference("Slice", {}, {x, ints({1, 0}), ints({3, 9})}, {{dtype, {2, 5, n}}}, 0, 0);
  expect_reference("Slice", {}, {x, ints({-1, -100}), ints({-100, 9}), ints({1, -1}), ints({-2, 1})},
                   {{dtype, {4, 3, n}}}, 0, 0);
  expect_reference("Slice", {},
                   {x, tensor(DType::i32, {1}, {3}), tensor(DType::i32, {1}, {-100}), tensor(DType::i32, {1}, {0}),
                    tensor(DType::i32, {1}, {-3})},
                   {{dtype, {2, 5, n}}}, 0, 0);
}

TEST_P(CudaCopies, GatheredElementsEqualTheReference) {
  const auto [dtype, n] = GetParam();
  const Tensor x = random_tensor(dtype, {2, 3, n}, 1, 0, 100), indices = tensor(DType::i64, {2, 2}, {0, -1, 1, -2});
  expect_reference("Gather", attributes({{"axis", int64_t{1}}}), {x, indices}, {{dtype, {2, 2, 2, n}}}, 0, 0);
  expect_reference("Gather", attributes({{"axis", int64_t{-1}}}), {x, tensor(DType::i32, {}, {-1})},
                   {{dtype, {2, 3}}}, 0, 0);
}

INSTANTIATE_TEST_SUITE_P(All, CudaCopies,
                         testing::Combine(testing::Values(DType::u8, DType::bf16, DType::f32, DType::i64),
                                          testing::ValuesIn(lengths)),
                         TypeAndLength());

TEST(CudaElements, ASliceBeyondItsOperandIsReported) {
  const Tensor x = random_tensor(DType::f32, {4}, 1);
  KernelStatus status;
  run_on_cuda("Slice", {}, {x, tensor(DType::i64, {1}, {3}), tensor(DType::i64, {1}, {9})}, {{DType::f32, {2}}}, {},
              0, &status);
  EXPECT_EQ(std::tuple(status.code, status.operand, status.value), std::tuple(KernelCode::index_out_of_range, 1, 4));
}

TEST(CudaElements, ProductsEqualTheReference) {
  const auto compare = [](const Shape& a, const Shape& b, const Shape& y) {
    SCOPED_TRACE(cat(a.text(), " ", b.text()));
    expect_reference("MatMul", {}, {random_tensor(DType::f32, a, 1), random_tensor(DType::f32, b, 2)},
                     {{DType::f32, y}}, 1e-5, 1e-5);
  };
  compare({3, 65}, {65, 7}, {3, 7});
  compare({1, 8, 1}, {1, 1, 5}, {1, 8, 5});
  compare({2, 3, 9}, {9, 4}, {2, 3, 4});
  compare({2, 1, 3, 9}, {1, 5, 9, 4}, {2, 5, 3, 4});
}

}  // namespace
}  // namespace plait::test
