// Products with weights on CUDA devices.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

/// f32 sums in another order; x as two numbers of bf16, 2^-17 of it away, up to 700 times.
constexpr double exact = 5e-5;

class CudaLinear : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(CudaLinear, EqualsTheReference) {
  const auto [dtype, k] = GetParam();
  for (int64_t n : {1, 17})
    for (int64_t tokens : {1, 3, 9}) {
      SCOPED_TRACE(cat("n ", n, ", ", tokens, " tokens"));
      const Tensor x = random_tensor(DType::f32, {tokens, k}, 1), w = random_tensor(dtype, {n, k}, 2),
                   bias = random_tensor(dtype, {n}, 3);
      expect_reference("plait.Linear", {}, {x, w, bias}, {{DType::f32, {tokens, n}}}, exact, exact, {1});
      expect_reference("plait.Linear", {}, {x, w}, {{DType::f32, {tokens, n}}}, exact, exact);
    }
}

TEST_P(CudaLinear, WithAGateEqualsTheReference) {
  const auto [dtype, k] = GetParam();
  for (const char* activation : {"silu", "gelu", "gelu_tanh", "relu", "identity"}) {
    SCOPED_TRACE(activation);
    const Tensor x = random_tensor(DType::f32, {3, k}, 1), gate = random_tensor(dtype, {18, k}, 2),
                 up = random_tensor(dtype, {18, k}, 3);
    expect_reference("plait.GatedLinear", attributes({{"activation", std::string(activation)}}), {x, gate, up},
                     {{DType::f32, {3, 18}}}, 2 * exact, 2 * exact, {1, 2});  // products of two sums
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaLinear,
                         testing::Combine(testing::ValuesIn(float_types),
                                          testing::Values<int64_t>(1, 7, 8, 9, 64, 65, 700)),
                         TypeAndLength());

/// Weights in blocks of `length`.
class CudaBlocks : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(CudaBlocks, EqualTheReference) {
  const auto [dtype, length] = GetParam();
  const bool has_sign = dtype == DType::i8 || dtype == DType::i4;
  const double most = 1 << dtype_bits(dtype), low = has_sign ? -most / 2 : 0;
  const int64_t blocks = 5, n = 19, k = blocks * length - 3;
  const Tensor w = dtype_bits(dtype) == 8 ? random_tensor(dtype, {n, blocks, length}, 1, low, low + most)
                                          : codes(dtype, {n, blocks, length});
  const Tensor scales = random_tensor(DType::f16, {n, blocks}, 2, 0.01, 0.1);
  for (int64_t tokens : {1, 10}) {
    SCOPED_TRACE(cat(tokens, " tokens"));
    // x that is exact in f16, to which it is rounded.
    Tensor x(DType::f32, {tokens, k});
    const Tensor narrow = random_tensor(DType::bf16, x.shape(), 3);
    for (int64_t i = 0; i < x.elements(); ++i) set_element(x, i, element(narrow, i));
    const OutputType y{DType::f32, {tokens, n}};
    // Codes are 1024 more than they are, until the end of a unit.
    const double error = 1024 * 0.1 * 1e-5;
    expect_reference("plait.Linear", attributes({{"zero", int64_t{3}}}), {x, w, {}, scales}, {y}, exact, error,
                     {1, 3});
    for (DType of_zeros : {DType::u8, DType::f32}) {
      const Tensor zeros = random_tensor(of_zeros, {n, blocks}, 4, 0, 9);
      expect_reference("plait.Linear", {}, {x, w, {}, scales, zeros}, {y}, exact, error, {1, 3, 4});
    }
    const Attributes two = attributes({{"parts", int64_t{2}}});
    expect_reference("plait.Linears", two, {x, w, scales, w, scales}, {y, y}, exact, error, {1, 2, 3, 4});
  }
}

int code_at(const Tensor& w, int64_t i) {
  const int64_t bits = dtype_bits(w.dtype());
  const int code = std::to_integer<int>(w.data()[i * bits / 8]) >> (i * bits % 8) & ((1 << bits) - 1);
  const bool has_sign = w.dtype() == DType::i8 || w.dtype() == DType::i4 || w.dtype() == DType::i2;
  return has_sign && code >> (bits - 1) ? code - (1 << bits) : code;
}

/// What is lost of an x that f16 does not have: at most 2^-12 of each product.
TEST_P(CudaBlocks, RoundXToElevenBits) {
  const auto [dtype, length] = GetParam();
  const int64_t blocks = 5, n = 19, k = blocks * length, tokens = 3;
  const Tensor w = codes(dtype, {n, blocks, length}), scales = random_tensor(DType::f16, {n, blocks}, 2, 0.01, 0.1),
               x = random_tensor(DType::f32, {tokens, k}, 3);
  const Tensor y = run_on_cuda("plait.Linear", attributes({{"zero", int64_t{3}}}), {x, w, {}, scales},
                               {{DType::f32, {tokens, n}}}, {1, 3})[0];
  for (int64_t token = 0; token < tokens; ++token)
    for (int64_t row = 0; row < n; ++row) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double weight = (code_at(w, row * k + i) - 3) * element(scales, row * blocks + i / length);
        sum += weight * element(x, token * k + i);
        size += std::abs(weight * element(x, token * k + i));
      }
      EXPECT_LE(std::abs(element(y, token * n + row) - sum), 0x1p-12 * size + 1024 * 0.1 * 1e-5)
          << "token " << token << ", row " << row;
    }
}

INSTANTIATE_TEST_SUITE_P(All, CudaBlocks,
                         testing::Combine(testing::ValuesIn({DType::u8, DType::i8, DType::u4, DType::i4, DType::u2,
                                                             DType::i2}),
                                          testing::Values<int64_t>(16, 32, 64, 128)),
                         TypeAndLength());

TEST(CudaLinearBits, ATokenHasTheSameBitsAloneAndInCompany) {
  const int64_t k = 640, n = 40, tokens = 70;
  const Tensor x = random_tensor(DType::f32, {tokens, k}, 1);
  for (DType dtype : float_types) {
    const Tensor w = random_tensor(dtype, {n, k}, 2);
    const auto linear = [&](int64_t first, int64_t count) {
      Tensor part(DType::f32, {count, k});
      std::memcpy(part.data(), x.data() + first * k * 4, static_cast<size_t>(count * k * 4));
      return run_on_cuda("plait.Linear", attributes({{"round_x", int64_t{1}}}), {part, w}, {{DType::f32, {count, n}}},
                         {1})[0];
    };
    const Tensor whole = linear(0, tokens);
    for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {69, 1}, {5, 8}, {30, 33}})
      EXPECT_EQ(
          std::memcmp(whole.data() + first * n * 4, linear(first, count).data(), static_cast<size_t>(count * n * 4)),
          0)
          << dtype_name(dtype) << ", " << count << " tokens from " << first;
  }
}

TEST(CudaLinearBits, RoundedXIsOneOfBf16) {
  const Tensor x = random_tensor(DType::f32, {2, 64}, 1), w = random_tensor(DType::bf16, {16, 64}, 2);
  Tensor narrow(DType::f32, x.shape());
  for (int64_t i = 0; i < x.elements(); ++i)
    set_element(narrow, i, to_float(to_bfloat16(static_cast<float>(element(x, i)))));
  const OutputType y{DType::f32, {2, 16}};
  const auto linear = [&](const Tensor& of, int64_t round) {
    return run_on_cuda("plait.Linear", attributes({{"round_x", round}}), {of, w}, {y}, {1})[0];
  };
  expect_near(linear(x, 1), linear(narrow, 0), 1e-6, 1e-6);
}

}  // namespace
}  // namespace plait::test
