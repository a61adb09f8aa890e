// Norms on CUDA devices.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

class CudaNorms : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(CudaNorms, EqualTheReference) {
  const auto [dtype, n] = GetParam();
  const Attributes epsilon = attributes({{"epsilon", 1e-3}});
  for (int64_t rows : {1, 3}) {
    const Tensor x = random_tensor(dtype, {rows, n}, 1, -3, 4);
    for (DType weights : float_types) {
      const Tensor scale = random_tensor(weights, {n}, 2), bias = random_tensor(weights, {n}, 3);
      const double error = rounding(dtype);
      for (const char* op :
           {"RMSNormalization", "SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization"})
        expect_reference(op, epsilon, {x, scale}, {{dtype, {rows, n}}}, error, 1e-5);
      expect_reference("LayerNormalization", epsilon, {x, scale, bias},
                       {{dtype, {rows, n}}, {DType::f32, {rows, 1}}, {DType::f32, {rows, 1}}}, error, 1e-5);
    }
  }
}

TEST_P(CudaNorms, OfSumsEqualTheReference) {
  const auto [dtype, n] = GetParam();
  const Tensor x = random_tensor(DType::f32, {3, 2, n}, 1), skip = random_tensor(DType::f32, {1, 2, n}, 2);
  const Tensor scale = random_tensor(dtype, {n}, 3), bias = random_tensor(dtype, {n}, 4);
  const OutputType y{DType::f32, {3, 2, n}}, none;
  expect_reference("com.microsoft.SkipSimplifiedLayerNormalization", attributes({{"epsilon", 1e-5}}),
                   {x, skip, scale}, {y, none, none, y}, 1e-5, 1e-5);
  expect_reference("com.microsoft.SkipLayerNormalization", attributes({{"epsilon", 1e-5}}), {x, skip, scale, bias},
                   {y, none, none, y}, 1e-5, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, CudaNorms, testing::Combine(testing::ValuesIn(float_types), testing::ValuesIn(lengths)),
                         TypeAndLength());

TEST(CudaNorm, SoftmaxEqualsTheReference) {
  for (int64_t n : lengths) {
    const Tensor x = random_tensor(DType::f32, {3, n}, 4, -20, 20);
    if (n > 3) x.as<float>()[1] = -INFINITY;
    expect_reference("Softmax", {}, {x}, {{DType::f32, {3, n}}}, 5e-6, 1e-30);
  }
}

TEST(CudaNorm, OfASumHasTheBitsOfASumAndItsNorm) {
  const Tensor x = random_tensor(DType::f32, {3, 700}, 1), added = random_tensor(DType::f32, {3, 700}, 2),
               scale = random_tensor(DType::bf16, {700}, 3), bias = random_tensor(DType::f32, {700}, 4);
  const OutputType y{DType::f32, {3, 700}}, none;
  const Attributes epsilon = attributes({{"epsilon", 1e-6}});
  const Tensor sum = run_on_cuda("Add", {}, {x, added}, {y})[0];
  for (const bool centred : {false, true}) {
    SCOPED_TRACE(centred);
    std::vector<Tensor> rows{scale};
    if (centred) rows.push_back(bias);
    const auto norm = [&](const char* op, std::vector<Tensor> inputs, const std::vector<OutputType>& outputs) {
      inputs.insert(inputs.end(), rows.begin(), rows.end());
      return run_on_cuda(op, epsilon, inputs, outputs);
    };
    const std::vector<Tensor> whole =
        norm(centred ? "com.microsoft.SkipLayerNormalization" : "com.microsoft.SkipSimplifiedLayerNormalization",
             {x, added}, {y, none, none, y});
    expect_equal_bits(whole[3], sum);
    expect_equal_bits(whole[0], norm(centred ? "LayerNormalization" : "RMSNormalization", {sum}, {y})[0]);
  }
}

TEST(CudaNorm, ARowHasTheSameBitsInAnyBatch) {
  const Tensor x = random_tensor(DType::f32, {5, 2000}, 1), scale = random_tensor(DType::f32, {2000}, 2);
  const auto norm = [&](const Tensor& rows) {
    return run_on_cuda("RMSNormalization", {}, {rows, scale}, {{DType::f32, rows.shape()}})[0];
  };
  Tensor one(DType::f32, {1, 2000});
  std::memcpy(one.data(), x.data() + 3 * 2000 * 4, 2000 * 4);
  EXPECT_EQ(std::memcmp(norm(x).data() + 3 * 2000 * 4, norm(one).data(), 2000 * 4), 0);
}

}  // namespace
}  // namespace plait::test
