// Integers, comparisons, choices, elements at indices, reductions and TopK on CUDA devices.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

Tensor ints(const std::vector<double>& values) {
  return tensor(DType::i64, {static_cast<int64_t>(values.size())}, values);
}

class CudaWords : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(CudaWords, OfWhereTileAndFillAreTheReferences) {
  const auto [dtype, n] = GetParam();
  const Tensor condition = random_tensor(DType::boolean, {2, 1, n}, 1, 0, 2),
               a = random_tensor(dtype, {3, n}, 2, 0, 90), b = random_tensor(dtype, {2, 3, 1}, 3, 0, 90);
  expect_reference("Where", {}, {condition, a, b}, {{dtype, {2, 3, n}}}, 0, 0);
  expect_reference("Tile", {}, {a, ints({2, 3})}, {{dtype, {6, 3 * n}}}, 0, 0);
  const Tensor one = tensor(dtype, {1}, {7});
  expect_reference("ConstantOfShape", attributes({{"value", one}}), {ints({2, static_cast<double>(n)})},
                   {{dtype, {2, n}}}, 0, 0);
}

TEST_P(CudaWords, AtIndicesAreTheReferences) {
  const auto [dtype, n] = GetParam();
  const Tensor x = random_tensor(dtype, {2, 3, n}, 1, 0, 90);
  const Attributes axis = attributes({{"axis", int64_t{1}}}), batch = attributes({{"batch_dims", int64_t{1}}});
  const Tensor places = tensor(DType::i64, {2, 2, 1}, {0, -1, 1, -3}),
               pairs = tensor(DType::i32, {2, 2}, {1, -1, 0, 2});
  expect_reference("GatherElements", axis, {x, places}, {{dtype, {2, 2, 1}}}, 0, 0);
  expect_reference("GatherND", {}, {x, pairs}, {{dtype, {2, n}}}, 0, 0);
  expect_reference("GatherND", batch, {x, tensor(DType::i64, {2, 1}, {2, -3})}, {{dtype, {2, n}}}, 0, 0);
  expect_reference("ScatterElements", axis, {x, places, random_tensor(dtype, {2, 2, 1}, 2, 0, 90)},
                   {{dtype, {2, 3, n}}}, 0, 0);
  expect_reference("ScatterND", {}, {x, pairs, random_tensor(dtype, {2, n}, 3, 0, 90)}, {{dtype, {2, 3, n}}}, 0, 0);
}

INSTANTIATE_TEST_SUITE_P(All, CudaWords,
                         testing::Combine(testing::Values(DType::u8, DType::bf16, DType::f32, DType::i64),
                                          testing::Values(1, 9, 300)),
                         TypeAndLength());

TEST(CudaIndexing, AnIndexOutOfRangeIsReported) {
  const Tensor x = random_tensor(DType::f32, {4, 2}, 1);
  for (const char* op : {"GatherElements", "GatherND"}) {
    KernelStatus status;
    run_on_cuda(op, {}, {x, tensor(DType::i64, {1, 1}, {4})}, {{DType::f32, {1, op[6] == 'N' ? 2 : 1}}}, {}, 0,
                &status);
    EXPECT_EQ(std::tuple(status.code, status.operand, status.value),
              std::tuple(KernelCode::index_out_of_range, 1, 4));
  }
}

TEST(CudaLogic, EqualsTheReference) {
  for (DType dtype : {DType::i32, DType::i64}) {
    const Tensor a = random_tensor(dtype, {3, 70}, 1, -9, 9), b = random_tensor(dtype, {70}, 2, -9, 9);
    for (const char* op : {"Add", "Sub", "Mul", "Min", "Max"})
      expect_reference(op, {}, {a, b}, {{dtype, {3, 70}}}, 0, 0);
    expect_reference("Neg", {}, {a}, {{dtype, {3, 70}}}, 0, 0);
  }
  for (DType dtype : {DType::i32, DType::i64, DType::f32}) {
    Tensor a = random_tensor(dtype, {3, 70}, 1, -3, 3), b = random_tensor(dtype, {70}, 2, -3, 3);
    if (dtype == DType::f32) a.as<float>()[0] = NAN, a.as<float>()[1] = b.as<float>()[1];
    for (const char* op : {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"})
      expect_reference(op, {}, {a, b}, {{DType::boolean, {3, 70}}}, 0, 0);
  }
  const Tensor a = random_tensor(DType::boolean, {3, 70}, 1, 0, 2), b = random_tensor(DType::boolean, {70}, 2, 0, 2);
  for (const char* op : {"And", "Or", "Xor", "Equal"})
    expect_reference(op, {}, {a, b}, {{DType::boolean, {3, 70}}}, 0, 0);
  expect_reference("Not", {}, {a}, {{DType::boolean, {3, 70}}}, 0, 0);
}

TEST(CudaLogic, ClipsAndPowersEqualTheReference) {
  const Tensor x = random_tensor(DType::f32, {300}, 1, -5, 5), positive = random_tensor(DType::f32, {300}, 2, 0, 5);
  const Tensor low = tensor(DType::f32, {}, {-1}), high = tensor(DType::f32, {}, {2.5});
  const OutputType y{DType::f32, {300}};
  expect_reference("Clip", {}, {x, low, high}, {y}, 0, 0);
  expect_reference("Clip", {}, {x, {}, high}, {y}, 0, 0);
  expect_reference("Clip", {}, {x, low}, {y}, 0, 0);
  expect_reference("Clip", {}, {x, high, low}, {y}, 0, 0);
  expect_reference("Pow", {}, {x, tensor(DType::f32, {}, {2})}, {y}, 1e-6, 0);
  expect_reference("Pow", {}, {x, tensor(DType::f32, {}, {3})}, {y}, 1e-6, 0);
  for (DType exponent : {DType::i32, DType::i64})
    expect_reference("Pow", {}, {x, tensor(exponent, {}, {2})}, {y}, 1e-6, 0);
  expect_reference("Pow", {}, {positive, x}, {y}, 2e-6, 0);
}

TEST(CudaReduce, EqualsTheReference) {
  for (int64_t n : lengths) {
    SCOPED_TRACE(n);
    const Tensor x = random_tensor(DType::f32, {2, 3, n, 2}, 1, -3, 3);
    for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"}) {
      expect_reference(op, {}, {x, ints({2})}, {{DType::f32, {2, 3, 1, 2}}}, 1e-6, 1e-5);
      expect_reference(op, {}, {x, ints({-4, 3})}, {{DType::f32, {1, 3, n, 1}}}, 1e-6, 1e-5);
      expect_reference(op, attributes({{"keepdims", int64_t{0}}}), {x}, {{DType::f32, {}}}, 1e-6, 1e-5);
      expect_reference(op, attributes({{"noop_with_empty_axes", int64_t{1}}}), {x}, {{DType::f32, x.shape()}}, 0, 0);
    }
  }
}

TEST(CudaReduce, TheFirstOfRowsAreTheReferences) {
  for (int64_t n : {4, 8, 33, 200}) {
    Tensor x = random_tensor(DType::f32, {3, n}, 1, -3, 3);
    for (int64_t i = 0; i < x.elements(); ++i) x.as<float>()[i] = std::round(x.as<float>()[i] * 4) / 4;  // ties
    x.as<float>()[1] = NAN, x.as<float>()[2] = -0.0F, x.as<float>()[3] = INFINITY;
    for (int64_t largest : {0, 1})
      for (int64_t k : {int64_t{1}, int64_t{4}}) {
        const Attributes order = attributes({{"largest", largest}});
        const std::vector<Tensor> inputs{x, ints({static_cast<double>(k)})};
        expect_reference("TopK", order, inputs, {{DType::f32, {3, k}}, {DType::i64, {3, k}}}, 0, 0);
        expect_reference("TopK", order, inputs, {{}, {DType::i64, {3, k}}}, 0, 0);
      }
  }
}

}  // namespace
}  // namespace plait::test
