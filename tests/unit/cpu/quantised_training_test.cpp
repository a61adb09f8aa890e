// Gradients through weights that are quantised in blocks, and losses behind such heads: the fast kernels against the reference.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

struct Quantised {
  DType dtype;
  int64_t rows, blocks, length, k;  ///< k: what x has; the last block may hold more
  bool zeros;
};

std::vector<Quantised> all_quantised() {
  return {{DType::u4, 600, 3, 32, 96, true},
          {DType::u4, 1040, 2, 32, 48, false},
          {DType::u8, 70, 4, 16, 60, true},
          {DType::u2, 520, 1, 64, 64, false},
          {DType::u4, 16, 1, 20, 20, false}};
}

/// w, scales, and zero points or nothing.
std::vector<Tensor> weight_of(const Quantised& c) {
  Tensor codes(c.dtype, {c.rows, c.blocks, c.length});
  std::mt19937 random(7);
  for (int64_t i = 0; i < codes.bytes(); ++i) codes.data()[i] = static_cast<std::byte>(random());
  const double most = dtype_bits(c.dtype) == 8 ? 255 : dtype_bits(c.dtype) == 4 ? 15 : 3;
  return {codes, random_tensor(DType::f32, {c.rows, c.blocks}, 3, 0, 2 / most),
          c.zeros ? random_tensor(DType::u8, {c.rows, c.blocks}, 4, 0, most) : Tensor()};
}

TEST(CpuQuantisedTraining, GradientsOfProductsEqualTheReference) {
  for (const Quantised& c : all_quantised())
    for (const int64_t tokens : {1, 37}) {
      SCOPED_TRACE(cat(dtype_name(c.dtype), " ", c.rows, " rows, ", tokens, " tokens"));
      const std::vector<Tensor> w = weight_of(c);
      // Sums over up to 1040 rows.
      expect_reference("plait.LinearBack", attributes({{"zero", int64_t{1}}}),
                       {random_tensor(DType::f32, {1, tokens, c.rows}, 1), w[0], w[1], w[2]},
                       {{DType::f32, {1, tokens, c.blocks * c.length}}}, 1e-5, 5e-5, 2);
    }
}

TEST(CpuQuantisedTraining, HeadsEqualTheReference) {
  for (const Quantised& c : all_quantised()) {
    SCOPED_TRACE(cat(dtype_name(c.dtype), " ", c.rows, " rows"));
    const std::vector<Tensor> w = weight_of(c);
    const int64_t tokens = 21;
    std::vector<int32_t> numbers;
    for (int64_t i = 0; i < tokens; ++i) numbers.push_back(i % 5 == 3 ? -1 : static_cast<int32_t>(i * 7919 % c.rows));
    const Shape row{1, tokens};
    const Tensor x = random_tensor(DType::f32, {1, tokens, c.k}, 1),
                 labels = Tensor::of<int32_t>(DType::i32, row, numbers),
                 sums = random_tensor(DType::f32, row, 5, 20, 22), dloss = random_tensor(DType::f32, row, 6),
                 some = random_tensor(DType::f32, {c.rows}, 8);
    const OutputType per_row{DType::f32, row}, dx{DType::f32, x.shape()}, chunks{DType::f32, {1, tokens, 2}};
    const Attributes whole = attributes({{"zero", int64_t{1}}, {"scale", 0.5}, {"softcap", 8.0}}),
                     in_chunks =
                         attributes({{"zero", int64_t{1}}, {"scale", 0.5}, {"softcap", 8.0}, {"chunks", int64_t{2}}});
    for (const Tensor& bias : {Tensor(), some}) {
      expect_reference("plait.HeadStatistics", in_chunks, {x, w[0], labels, bias, w[1], w[2]},
                       {chunks, chunks, per_row}, 5e-5, 5e-5, 2);
      std::vector<OutputType> gradients = {dx};
      if (bias.present()) gradients.insert(gradients.end(), {OutputType{}, {DType::f32, {c.rows}}});
      expect_reference("plait.HeadBack", in_chunks, {x, w[0], labels, sums, dloss, bias, w[1], w[2]}, gradients, 1e-4,
                       5e-5, 2);
      expect_reference("plait.HeadLoss", whole, {x, w[0], labels, dloss, bias, w[1], w[2]}, {per_row, dx}, 1e-4, 5e-5,
                       2);
    }
  }
}

}  // namespace
}  // namespace plait::test
