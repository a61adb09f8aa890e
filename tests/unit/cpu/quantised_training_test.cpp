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

/// The numbers of a quantised weight, [rows, blocks * length].
Tensor floats_of(const Quantised& c, const std::vector<Tensor>& w) {
  const int64_t k = c.blocks * c.length;
  Tensor one(DType::f32, {k, k}), out(DType::f32, {c.rows, k});
  for (int64_t i = 0; i < k * k; ++i) one.as<float>()[i] = i % (k + 1) == 0 ? 1 : 0;
  const Tensor transposed =
      run_op(kernels(), "plait.Linear", attributes({{"zero", int64_t{1}}}), {one, w[0], Tensor(), w[1], w[2]},
             {{DType::f32, {k, c.rows}}}, 1, nullptr, "reference")[0];
  for (int64_t i = 0; i < c.rows; ++i)
    for (int64_t j = 0; j < k; ++j) out.as<float>()[i * k + j] = transposed.as<float>()[j * c.rows + i];
  return out;
}

Tensor rounded_to_bf16(const Tensor& x) {
  Tensor out(DType::f32, x.shape());
  for (int64_t i = 0; i < x.elements(); ++i) out.as<float>()[i] = to_float(to_bfloat16(x.as<float>()[i]));
  return out;
}

/// Where nodes ask for it and the processor has products of bf16, both sides are rounded, and nothing else: sums are of f32.
TEST(CpuQuantisedTraining, RoundsBothSides) {
  for (const Quantised& c : all_quantised()) {
    const std::vector<Tensor> w = weight_of(c);
    const Tensor floats = rounded_to_bf16(floats_of(c, w)), x = random_tensor(DType::f32, {1, 37, c.k}, 1),
                 dy = random_tensor(DType::f32, {1, 37, c.rows}, 2);
    Tensor narrow(DType::f32, {c.rows, c.k});
    for (int64_t i = 0; i < c.rows; ++i)
      std::memcpy(narrow.as<float>() + i * c.k, floats.as<float>() + i * floats.shape()[1],
                  static_cast<size_t>(c.k) * sizeof(float));
    const OutputType y{DType::f32, {1, 37, c.rows}}, dx{DType::f32, {1, 37, floats.shape()[1]}};
    const Tensor expected =
        run_op(kernels(), "plait.Linear", {}, {rounded_to_bf16(x), narrow}, {y}, 1, nullptr, "reference")[0];
    const Tensor expected_dx =
        run_op(kernels(), "plait.LinearBack", {}, {rounded_to_bf16(dy), floats}, {dx}, 1, nullptr, "reference")[0];
    const Attributes how = attributes({{"zero", int64_t{1}}, {"many_rows", int64_t{1}}, {"round_x", int64_t{1}}});
    const Attributes how_back = attributes({{"zero", int64_t{1}}, {"round_x", int64_t{1}}});
    for (const std::string& isa : isas()) {
      if (isa != "avx512_bf16" && isa != "amx") continue;
      SCOPED_TRACE(cat(isa, " ", dtype_name(c.dtype), " ", c.rows, " rows"));
      const std::vector<Tensor> operands{x, w[0], Tensor(), w[1], w[2]};
      const Tensor alone = run_op(kernels(), "plait.Linear", how, operands, {y}, 1, nullptr, isa)[0];
      expect_near(alone, expected, 1e-5, 2e-5);
      expect_equal_bits(run_op(kernels(), "plait.Linear", how, operands, {y}, 3, nullptr, isa)[0], alone);
      expect_near(run_op(kernels(), "plait.LinearBack", how_back, {dy, w[0], w[1], w[2]}, {dx}, 2, nullptr, isa)[0],
                  expected_dx, 1e-5, 5e-5);
    }
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
