#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

TEST(ReferenceMatMul, RanksAndBroadcasting) {
  Tensor a = f32({2, 3}, {1, 2, 3, 4, 5, 6}), b = f32({3, 2}, {1, 0, 0, 1, 1, 1});
  expect_op("MatMul", {}, {a, b}, f32({2, 2}, {4, 5, 10, 11}));
  expect_op("MatMul", {}, {f32({3}, {1, 1, 1}), b}, f32({2}, {2, 2}));
  expect_op("MatMul", {}, {a, f32({3}, {1, 0, 2})}, f32({2}, {7, 16}));
  expect_op("MatMul", {}, {f32({2, 1, 1}, {2, 3}), f32({1, 2}, {1, 10})}, f32({2, 1, 2}, {2, 20, 3, 30}));
  expect_op("MatMul", {}, {Tensor(DType::f32, {2, 0}), Tensor(DType::f32, {0, 2})}, f32({2, 2}, {0, 0, 0, 0}));
  expect_op("MatMul", {}, {i32({1, 2}, {-3, 4}), i32({2, 1}, {5, 6})}, i32({1, 1}, {9}));
}

TEST(ReferenceMatMul, DoesNotDependOnThreadsOrOtherRows) {
  Tensor a = random_tensor(DType::f32, {20, 70}, 1), b = random_tensor(DType::f32, {70, 600}, 2);
  auto one = run_reference("MatMul", {}, {a, b}, {{DType::f32, {20, 600}}}, 1);
  auto many = run_reference("MatMul", {}, {a, b}, {{DType::f32, {20, 600}}}, 3);
  expect_equal_bits(one[0], many[0]);
  Tensor row(DType::f32, {1, 70}, a.blob(), 13 * 70 * 4);
  auto alone = run_reference("MatMul", {}, {row, b}, {{DType::f32, {1, 600}}});
  expect_equal_bits(alone[0], Tensor(DType::f32, {1, 600}, one[0].blob(), 13 * 600 * 4));
}

TEST(ReferenceMatMul, Gemm) {
  Tensor a = f32({2, 3}, {1, 2, 3, 4, 5, 6}), b = f32({2, 3}, {1, 0, 1, 0, 1, 1}), c = f32({2}, {100, 200});
  Attributes options = attributes({{"transB", int64_t{1}}, {"alpha", 2.0}, {"beta", 0.5}});
  expect_op("Gemm", options, {a, b, c}, f32({2, 2}, {58, 110, 70, 122}));
  expect_op("Gemm", attributes({{"transA", int64_t{1}}}), {a, f32({2, 1}, {1, 1})}, f32({3, 1}, {5, 7, 9}));
}

TEST(ReferenceMatMul, FusedTransposesAndScales) {
  // The same product with each operand stored in MatMul's order, or turned.
  Tensor a = random_tensor(DType::f32, {2, 3, 4, 5}, 1), b = random_tensor(DType::f32, {3, 5, 6}, 2);
  auto permuted = [](const Tensor& x, const std::vector<int64_t>& order) {
    Shape shape = x.shape();
    for (size_t i = 0; i < order.size(); ++i) shape[static_cast<int>(i)] = x.shape()[static_cast<int>(order[i])];
    return run_reference("Transpose", attributes({{"perm", order}}), {x}, {{x.dtype(), shape}})[0];
  };
  Tensor expected = run_reference("MatMul", {}, {a, b}, {{DType::f32, {2, 3, 4, 6}}})[0];
  for (int64_t i = 0; i < expected.elements(); ++i) set_element(expected, i, -0.5 * element(expected, i));
  for (int64_t bits = 0; bits < 16; ++bits) {
    std::vector<int64_t> left{0, 1, 2, 3}, right{0, 1, 2};
    Attributes options = attributes({{"alpha", -0.5}});
    auto on = [&](int64_t bit, const char* name) {
      options.set(name, (bits >> bit) & 1);
      return ((bits >> bit) & 1) != 0;
    };
    if (on(0, "transA")) std::swap(left[2], left[3]);
    if (on(1, "transB")) std::swap(right[1], right[2]);
    if (on(2, "transBatchA")) std::rotate(left.begin(), left.begin() + 2, left.begin() + 3);
    if (on(3, "transBatchB")) std::rotate(right.begin(), right.begin() + 1, right.begin() + 2);
    expect_op("com.microsoft.FusedMatMul", options, {permuted(a, left), permuted(b, right)}, expected, 1e-5, 1e-6);
  }
  Attributes flags = attributes({{"transA", int64_t{1}}, {"transB", int64_t{1}}});
  expect_op("com.microsoft.FusedMatMul", flags, {f32({2}, {1, 2}), f32({3, 2}, {1, 0, 0, 1, 1, 1})},
            f32({3}, {1, 2, 3}));
}

TEST(ReferenceMatMul, IntegerWithZeroPoints) {
  Tensor a = tensor(DType::u8, {2, 2}, {11, 12, 13, 14}), b = tensor(DType::i8, {2, 2}, {1, 2, 3, 4});
  expect_op("MatMulInteger", {}, {a, b, tensor(DType::u8, {}, {10})}, i32({2, 2}, {7, 10, 15, 22}));
  expect_op("MatMulInteger", {}, {a, b, tensor(DType::u8, {2}, {10, 12}), tensor(DType::i8, {2}, {0, 1})},
            i32({2, 2}, {7, 7, 7, 7}));
}

TEST(ReferenceLinear, IsXTimesWTransposed) {
  Tensor x = f32({1, 2, 3}, {1, 2, 3, 4, 5, 6}), w = f32({2, 3}, {1, 0, 1, 0, 1, 1}), bias = f32({2}, {100, 200});
  Tensor y = f32({1, 2, 2}, {4, 5, 10, 11});
  expect_op("plait.Linear", {}, {x, w}, y);
  expect_op("plait.Linear", {}, {x, w, bias}, f32({1, 2, 2}, {104, 205, 110, 211}));
  auto both = run_reference("plait.Linears", {}, {x, w, f32({1, 3}, {1, 1, 1})},
                            {{DType::f32, {1, 2, 2}}, {DType::f32, {1, 2, 1}}});
  expect_near(both[0], y);
  expect_near(both[1], f32({1, 2, 1}, {6, 15}));
  expect_op("plait.GatedLinear", attributes({{"activation", std::string("relu")}}),
            {x, f32({1, 3}, {1, 1, -2}), f32({1, 3}, {0, 1, 0})}, f32({1, 2, 1}, {0, 0}));
  expect_op("plait.GatedLinear", attributes({{"activation", std::string("silu")}}),
            {x, f32({1, 3}, {1, 0, 0}), f32({1, 3}, {0, 1, 0})},
            f32({1, 2, 1}, {2 / (1 + std::exp(-1.0)), 20 / (1 + std::exp(-4.0))}));
}

TEST(ReferenceLinear, WeightsOfEveryFloat) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    Tensor x = random_tensor(DType::f32, {3, 37}, 1), w = random_tensor(dtype, {19, 37}, 2);
    auto y = run_reference("plait.Linear", {}, {x, w}, {{DType::f32, {3, 19}}}, 2);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 19; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < 37; ++k) sum += element(x, i * 37 + k) * element(w, j * 37 + k);
        EXPECT_NEAR(element(y[0], i * 19 + j), sum, 1e-5) << dtype_name(dtype);
      }
  }
}

TEST(ReferenceLinear, RowsDoNotSeeEachOther) {
  Tensor x = random_tensor(DType::f32, {9, 130}, 1), w = random_tensor(DType::bf16, {100, 130}, 2);
  auto all = run_reference("plait.Linear", {}, {x, w}, {{DType::f32, {9, 100}}}, 3);
  Tensor row(DType::f32, {1, 130}, x.blob(), 4 * 130 * 4);
  auto alone = run_reference("plait.Linear", {}, {row, w}, {{DType::f32, {1, 100}}});
  expect_equal_bits(alone[0], Tensor(DType::f32, {1, 100}, all[0].blob(), 4 * 100 * 4));
}

TEST(ReferenceLinear, MatMulNBits) {
  // N = 2 rows, K = 20 in blocks of 16: two blocks of 8 bytes each, the second with 4 codes that count.
  Tensor x = random_tensor(DType::f32, {2, 20}, 3), codes = random_tensor(DType::u8, {2, 2, 8}, 4, 0, 256);
  Tensor scales = random_tensor(DType::f32, {2, 2}, 5), zeros = tensor(DType::u8, {2, 1}, {0x35, 0xE1});
  Attributes sizes =
      attributes({{"K", int64_t{20}}, {"N", int64_t{2}}, {"bits", int64_t{4}}, {"block_size", int64_t{16}}});
  for (bool with_zeros : {false, true}) {
    auto y = run_reference("com.microsoft.MatMulNBits", sizes, {x, codes, scales, with_zeros ? zeros : Tensor()},
                           {{DType::f32, {2, 2}}});
    for (int64_t i = 0; i < 2; ++i)
      for (int64_t n = 0; n < 2; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < 20; ++k) {
          int byte = codes.as<uint8_t>()[(n * 2 + k / 16) * 8 + k % 16 / 2], code = k % 2 ? byte >> 4 : byte & 15;
          int pair = zeros.as<uint8_t>()[n], zero = !with_zeros ? 8 : k / 16 ? pair >> 4 : pair & 15;
          sum += element(x, i * 20 + k) * (code - zero) * element(scales, n * 2 + k / 16);
        }
        EXPECT_NEAR(element(y[0], i * 2 + n), sum, 1e-4);
      }
  }
  sizes.set("weight_prepacked", int64_t{1});
  EXPECT_THROW(run_reference("com.microsoft.MatMulNBits", sizes, {x, codes, scales}, {{DType::f32, {2, 2}}}), Error);
}

TEST(ReferenceEinsum, Equations) {
  auto equation = [](const char* text) { return attributes({{"equation", std::string(text)}}); };
  Tensor a = f32({2, 2}, {1, 2, 3, 4}), b = f32({2, 2}, {5, 6, 7, 8});
  expect_op("Einsum", equation("ij,jk->ik"), {a, b}, f32({2, 2}, {19, 22, 43, 50}));
  expect_op("Einsum", equation("ij , jk"), {a, b}, f32({2, 2}, {19, 22, 43, 50}));
  expect_op("Einsum", equation("ii->i"), {a}, f32({2}, {1, 4}));
  expect_op("Einsum", equation("ii"), {a}, f32({}, {5}));
  expect_op("Einsum", equation("...j->..."), {a}, f32({2}, {3, 7}));
  // Pair by pair: labels that later operands have are kept, sizes of 1 repeat, and what one operand only has is summed first.
  expect_op("Einsum", equation("ij,jk,kl->il"), {a, b, a}, f32({2, 2}, {85, 126, 193, 286}));
  expect_op("Einsum", equation("ij,jk,kl,li->"), {a, b, a, b}, f32({}, {4753}));
  expect_op("Einsum", equation("i,j,k->"), {f32({2}, {1, 2}), f32({3}, {1, 2, 3}), f32({2}, {4, 5})}, f32({}, {162}));
  expect_op("Einsum", equation("ij,ik,j->ik"), {a, b, f32({1}, {2})}, f32({2, 2}, {30, 36, 98, 112}));
  expect_op("Einsum", equation("ii,ij,j->ji"), {a, b, f32({2}, {1, 10})}, f32({2, 2}, {5, 28, 60, 320}));
  expect_op("Einsum", equation("...ij,...jk->...ik"), {f32({2, 1, 1}, {2, 3}), f32({1, 2}, {1, 10})},
            f32({2, 1, 2}, {2, 20, 3, 30}));
  EXPECT_THROW(run_reference("Einsum", equation("ij,jk->ik"), {a}, {{DType::f32, {2, 2}}}), Error);
}

TEST(ReferenceConv, StridesDilationsGroupsAndPadding) {
  Tensor x = f32({1, 1, 4}, {1, 2, 3, 4}), w = f32({1, 1, 2}, {1, 10});
  expect_op("Conv", {}, {x, w}, f32({1, 1, 3}, {21, 32, 43}));
  expect_op("Conv", attributes({{"pads", std::vector<int64_t>{1, 0}}, {"strides", std::vector<int64_t>{2}}}),
            {x, w, f32({1}, {100})}, f32({1, 1, 2}, {110, 132}));
  expect_op("Conv", attributes({{"dilations", std::vector<int64_t>{2}}}), {x, w}, f32({1, 1, 2}, {31, 42}));
  expect_op("Conv", attributes({{"group", int64_t{2}}}), {f32({1, 2, 1}, {3, 5}), f32({2, 1, 1}, {2, 7})},
            f32({1, 2, 1}, {6, 35}));
  expect_op("Conv", attributes({{"auto_pad", std::string("SAME_LOWER")}}), {x, w}, f32({1, 1, 4}, {10, 21, 32, 43}));
  expect_op("Conv", {}, {f32({1, 1, 2, 2}, {1, 2, 3, 4}), f32({1, 1, 2, 2}, {1, 1, 1, 1})}, f32({1, 1, 1, 1}, {10}));
}

}  // namespace
}  // namespace plait::test
