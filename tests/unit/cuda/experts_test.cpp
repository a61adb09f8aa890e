// Mixtures of experts, and adapters of tokens, on CUDA devices.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

/// Operands of plait.Experts by position, with two choices of `tokens` each among 5 experts.
struct Mixture {
  int64_t tokens, h, f, o;
  std::vector<Tensor> inputs = std::vector<Tensor>(15);

  Mixture(int64_t tokens, int64_t h, int64_t f, int64_t o) : tokens(tokens), h(h), f(f), o(o) {
    inputs[0] = random_tensor(DType::f32, {tokens, h}, 1);
    inputs[1] = random_tensor(DType::i64, {tokens, 2}, 2, 0, 5);
    inputs[2] = random_tensor(DType::f32, {tokens, 2}, 3, 0, 1);
  }
  void plain(DType dtype) {
    inputs[3] = random_tensor(dtype, {5, f, h}, 4), inputs[4] = random_tensor(dtype, {5, f, h}, 5);
    inputs[5] = random_tensor(dtype, {5, o, f}, 6);
  }
  void biases(DType dtype) {
    inputs[6] = random_tensor(dtype, {5, f}, 7), inputs[7] = random_tensor(dtype, {5, f}, 8);
    inputs[8] = random_tensor(dtype, {5, o}, 9);
  }
  /// Blocks of `block`, with scales and, if they have a type, zero points.
  void blocks(DType dtype, int64_t block, DType scales, DType zeros) {
    const auto stack = [&](size_t at, size_t scale_at, int64_t n, int64_t k) {
      const int64_t c = (k + block - 1) / block;
      const Shape shape{5, n, c, block};
      inputs[at] = dtype_bits(dtype) == 8 ? random_tensor(dtype, shape, at, 0, 9) : codes(dtype, shape);
      inputs[scale_at] = random_tensor(scales, {5, n, c}, 20 + at, 0.05, 0.1);
      if (zeros != DType::none) inputs[scale_at + 1] = random_tensor(zeros, {5, n, c}, 30 + at, 0, 3);
    };
    stack(3, 9, f, h), stack(4, 11, f, h), stack(5, 13, o, f);
  }
  void expect_equal(const Attributes& attributes = {}) const {
    expect_reference("plait.Experts", attributes, inputs, {{DType::f32, {tokens, o}}}, 2e-5, 2e-4);
  }
};

class CudaExperts : public testing::TestWithParam<std::tuple<DType, int64_t>> {};

TEST_P(CudaExperts, EqualTheReference) {
  const auto [dtype, n] = GetParam();
  for (int64_t tokens : {1, 5}) {
    Mixture mixture(tokens, n, 24, 9);
    mixture.plain(dtype);
    mixture.expect_equal();
    mixture.biases(dtype);
    mixture.expect_equal(
        attributes({{"activation", std::string("silu")}, {"alpha", 1.702}, {"beta", 1.0}, {"limit", 0.5}}));
    mixture.inputs[4] = mixture.inputs[7] = {};
    mixture.expect_equal(attributes({{"activation", std::string("gelu")}}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaExperts,
                         testing::Combine(testing::ValuesIn(float_types), testing::Values(7, 64, 600)),
                         TypeAndLength());

TEST(CudaExpertBlocks, EqualTheReference) {
  for (DType dtype : {DType::u2, DType::u4, DType::i4, DType::u8, DType::i8})
    for (DType zeros : {DType::none, DType::u8, DType::f16})
      for (int64_t block : {16, 32}) {
        SCOPED_TRACE(cat(dtype_name(dtype), ", zeros ", dtype_name(zeros), ", blocks of ", block));
        Mixture mixture(3, 64, 40, 9);
        mixture.blocks(dtype, block, zeros == DType::u8 ? DType::f16 : DType::f32, zeros);
        mixture.expect_equal(attributes({{"zero", int64_t{3}}, {"down_zero", int64_t{1}}}));
      }
}

/// Choices are sorted by their experts where there are several tokens: of one expert more than a tile has, and of another none.
TEST(CudaExpertBlocks, ATokenHasTheSameBitsAloneAndInCompany) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::u4}) {
    SCOPED_TRACE(std::string(dtype_name(dtype)));
    constexpr int64_t tokens = 21, h = 64, o = 9;
    Mixture mixture(tokens, h, 40, o);
    if (dtype == DType::u4) mixture.blocks(dtype, 32, DType::f16, DType::u8);
    else mixture.plain(dtype);
    for (int64_t i = 0; i < tokens; ++i)
      mixture.inputs[1].as<int64_t>()[2 * i] = 3, mixture.inputs[1].as<int64_t>()[2 * i + 1] = i % 2;
    mixture.expect_equal();
    const Tensor all = run_on_cuda("plait.Experts", {}, mixture.inputs, {{DType::f32, {tokens, o}}})[0];
    for (int64_t i = 0; i < tokens; ++i) {
      std::vector<Tensor> alone = mixture.inputs;
      for (size_t k = 0; k < 3; ++k) {
        const Tensor& whole = mixture.inputs[k];
        alone[k] = Tensor(whole.dtype(), {1, whole.shape()[1]});
        std::memcpy(alone[k].data(), whole.data() + i * alone[k].bytes(), static_cast<size_t>(alone[k].bytes()));
      }
      const Tensor one = run_on_cuda("plait.Experts", {}, alone, {{DType::f32, {1, o}}})[0];
      EXPECT_EQ(std::memcmp(one.data(), all.data() + i * one.bytes(), static_cast<size_t>(one.bytes())), 0) << i;
    }
  }
}

/// More experts than threads sort them, most without a choice.
TEST(CudaExpertBlocks, ManyExpertsEqualTheReference) {
  Mixture mixture(7, 16, 8, 8);
  for (const auto& [at, n, k] : {std::tuple(3, 8, 16), {4, 8, 16}, {5, 8, 8}})
    mixture.inputs[static_cast<size_t>(at)] = random_tensor(DType::bf16, {1030, n, k}, static_cast<uint64_t>(at));
  mixture.inputs[1] = random_tensor(DType::i64, {7, 2}, 2, 0, 1030);
  mixture.inputs[1].as<int64_t>()[5] = 1029;
  mixture.expect_equal();
}

TEST(CudaExpertBlocks, ChoicesOfOtherRanksAreSkipped) {
  Mixture mixture(6, 16, 8, 8);
  mixture.plain(DType::f32);
  mixture.inputs[1] = random_tensor(DType::i64, {6, 2}, 2, 0, 10);
  mixture.expect_equal(attributes({{"offset", int64_t{3}}, {"whole", int64_t{10}}}));
}

TEST(CudaExpertBlocks, AnExpertOutOfRangeIsReported) {
  for (const int64_t tokens : {1, 2}) {
    Mixture mixture(tokens, 16, 8, 8);
    mixture.plain(DType::f32);
    mixture.inputs[1].as<int64_t>()[1] = 5;
    KernelStatus status;
    run_on_cuda("plait.Experts", {}, mixture.inputs, {{DType::f32, {tokens, 8}}}, {}, 0, &status);
    EXPECT_EQ(std::tuple(status.code, status.operand, status.value),
              std::tuple(KernelCode::index_out_of_range, 1, 5));
  }
}

TEST(CudaAdapters, EqualTheReference) {
  for (DType dtype : float_types)
    for (int64_t n : {1, 9, 300}) {
      SCOPED_TRACE(cat(dtype_name(dtype), " ", n));
      expect_reference("plait.AddAdapters", {},
                       {random_tensor(DType::f32, {2, 3, n}, 1), random_tensor(DType::f32, {2, 3, 70}, 2),
                        random_tensor(dtype, {4, 5, 70}, 3), random_tensor(dtype, {4, n, 5}, 4),
                        tensor(DType::i32, {2, 3}, {0, -1, 3, 3, 1, -1})},
                       {{DType::f32, {2, 3, n}}}, 1e-5, 1e-4);
    }
}

}  // namespace
}  // namespace plait::test
