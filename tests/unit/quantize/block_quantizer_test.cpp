// Weights in blocks: how far off a rounded weight may be, what the packed bytes stand for, and that GPTQ keeps products nearer.
#include "core/quantize/block_quantizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/base/constant.h"
#include "core/base/error.h"
#include "core/base/load_progress.h"
#include "core/base/thread_pool.h"

namespace plait::test {
namespace {

std::vector<float> random_floats(int64_t count, uint32_t seed, float mean = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(mean, 1);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& one : out) one = normal(random);
  return out;
}

/// What the bytes of a file stand for, by the definition of com.microsoft.MatMulNBits: f32 [n, k].
std::vector<float> read_back(const BlockWeight& weight) {
  const int64_t blocks = (weight.k + weight.block - 1) / weight.block, per_byte = 8 / weight.bits;
  const auto code_at = [&](const Tensor& tensor, int64_t row_bytes, int64_t row, int64_t i) {
    const unsigned byte = tensor.as<uint8_t>()[row * row_bytes + i / per_byte];
    return static_cast<float>(byte >> (i % per_byte * weight.bits) & ((1U << weight.bits) - 1));
  };
  const Tensor scales = materialize({{}, weight.scales, {{RecipeStep::Kind::cast, {}, DType::f32}}});
  std::vector<float> out;
  for (int64_t row = 0; row < weight.n; ++row)
    for (int64_t i = 0; i < weight.k; ++i) {
      const int64_t block = i / weight.block;
      const float zero = weight.zeros ? code_at(*weight.zeros, (blocks + per_byte - 1) / per_byte, row, block)
                                      : static_cast<float>(1 << (weight.bits - 1));
      out.push_back((code_at(weight.codes, blocks * weight.block / per_byte, row, i) - zero) *
                    scales.as<float>()[row * blocks + block]);
    }
  return out;
}

using Case = std::tuple<int, bool, DType, int>;  // bits, symmetric, dtype of scales, k
class BlockQuantizerCases : public testing::TestWithParam<Case> {};

TEST_P(BlockQuantizerCases, BytesStandForTheNearestValues) {
  const auto [bits, symmetric, scales, k] = GetParam();
  constexpr int64_t n = 5;
  ThreadPool pool(2);
  const std::vector<float> weight = random_floats(n * k, static_cast<uint32_t>(bits), symmetric ? 0 : 3);
  const BlockFormat format{bits, 16, symmetric, scales};
  const BlockQuantizer quantizer(format, weight, n, k, pool);
  const std::vector<uint8_t> codes = quantizer.round_to_nearest(pool);
  const std::vector<float> back = read_back(quantizer.packed(codes));
  for (int64_t row = 0; row < n; ++row)
    for (int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<size_t>(row * k + i);
      EXPECT_EQ(back[at], quantizer.value(row, i, codes[at]));
      // No other code of the block is nearer.
      for (int other = 0; other < 1 << bits; ++other) {
        const int shift = symmetric ? (1 << (format.stored_bits() - 1)) - (1 << (bits - 1)) : 0;
        const float value = quantizer.value(row, i, static_cast<uint8_t>(other + shift));
        EXPECT_LE(std::abs(back[at] - weight[at]), std::abs(value - weight[at]) + 1e-5F);
      }
    }
}
INSTANTIATE_TEST_SUITE_P(All, BlockQuantizerCases,
                         testing::Combine(testing::Values(2, 3, 4, 5, 8), testing::Bool(),
                                          testing::Values(DType::f32, DType::f16, DType::bf16),
                                          testing::Values(16, 32, 41)));

TEST(BlockQuantizer, ZerosAndOneSidedBlocksAreExact) {
  ThreadPool pool(1);
  std::vector<float> weight(32, 0.0F);
  weight[20] = 2.5F;
  for (const bool symmetric : {true, false}) {
    const BlockQuantizer quantizer({4, 16, symmetric}, weight, 1, 32, pool);
    EXPECT_EQ(read_back(quantizer.packed(quantizer.round_to_nearest(pool))), weight);
  }
}

TEST(BlockQuantizer, ValuesThatAreNotFiniteAreRefused) {
  ThreadPool pool(1);
  std::vector<float> weight(16, 1.0F);
  weight[3] = NAN;
  EXPECT_THROW(BlockQuantizer({}, weight, 1, 16, pool), Error);
}

/// The squared error of x weight^T over rows x.
double product_error(const std::vector<float>& x, const std::vector<float>& a, const std::vector<float>& b, int64_t n,
                     int64_t k) {
  double out = 0;
  for (int64_t t = 0; t < static_cast<int64_t>(x.size()) / k; ++t)
    for (int64_t row = 0; row < n; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += x[static_cast<size_t>(t * k + i)] *
               (a[static_cast<size_t>(row * k + i)] - b[static_cast<size_t>(row * k + i)]);
      out += sum * sum;
    }
  return out;
}

TEST(Gptq, ProductsStayNearerThanWithNearestWeights) {
  constexpr int64_t n = 24, k = 64, tokens = 256, hidden = 12;
  ThreadPool pool(2);
  const std::vector<float> weight = random_floats(n * k, 1);
  // Inputs that depend on each other, as activations do: a few factors and a little noise.
  const std::vector<float> factors = random_floats(tokens * hidden, 2), mix = random_floats(hidden * k, 3);
  std::vector<float> x = random_floats(tokens * k, 4), hessian(k * k);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < k; ++i) {
      float& one = x[static_cast<size_t>(t * k + i)];
      one *= 0.1F;
      for (int64_t j = 0; j < hidden; ++j)
        one += factors[static_cast<size_t>(t * hidden + j)] * mix[static_cast<size_t>(j * k + i)];
    }
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j)
        hessian[static_cast<size_t>(i * k + j)] +=
            x[static_cast<size_t>(t * k + i)] * x[static_cast<size_t>(t * k + j)];
  for (const int64_t bits : {2, 3, 4, 8}) {
    const BlockQuantizer quantizer({bits, 32, true}, weight, n, k, pool);
    const auto back = [&](const std::vector<uint8_t>& codes) { return read_back(quantizer.packed(codes)); };
    const double nearest = product_error(x, back(quantizer.round_to_nearest(pool)), weight, n, k);
    const double ours = product_error(x, back(gptq(quantizer, hessian, pool, nullptr)), weight, n, k);
    EXPECT_LT(ours, 0.35 * nearest) << bits << " bits";
  }
}

TEST(Gptq, InputsThatNeverCameLeaveTheNearestCodes) {
  constexpr int64_t n = 3, k = 32;
  ThreadPool pool(1);
  const std::vector<float> weight = random_floats(n * k, 5), hessian(k * k);
  const BlockQuantizer quantizer({4, 32, true}, weight, n, k, pool);
  EXPECT_EQ(gptq(quantizer, hessian, pool, nullptr), quantizer.round_to_nearest(pool));
  // With a diagonal, inputs do not depend on each other: there is nothing to make up for.
  std::vector<float> diagonal(k * k);
  for (int64_t i = 0; i < k; ++i) diagonal[static_cast<size_t>(i * k + i)] = static_cast<float>(i + 1);
  EXPECT_EQ(gptq(quantizer, diagonal, pool, nullptr), quantizer.round_to_nearest(pool));
}

TEST(Gptq, CanBeCancelled) {
  constexpr int64_t n = 3, k = 32;
  ThreadPool pool(1);
  const std::vector<float> weight = random_floats(n * k, 6);
  std::vector<float> hessian(k * k);
  for (int64_t i = 0; i < k; ++i) hessian[static_cast<size_t>(i * k + i)] = 1;
  const BlockQuantizer quantizer({4, 32, true}, weight, n, k, pool);
  LoadProgress progress;
  progress.cancel();
  try {
    gptq(quantizer, hessian, pool, &progress);
    FAIL() << "it was not cancelled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::cancelled);
  }
}

}  // namespace
}  // namespace plait::test
