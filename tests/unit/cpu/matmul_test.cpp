// MatMul, Gemm and Transpose against the reference.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

TEST(CpuMatmul, EqualsReferenceForAnyShape) {
  for (int64_t m : {0, 1, 3, 8, 17, 100})
    for (int64_t k : {0, 1, 7, 33, 600})
      for (int64_t n : {0, 1, 15, 16, 33, 70}) {
        SCOPED_TRACE(cat("m ", m, " n ", n, " k ", k));
        expect_reference("MatMul", {}, {random_tensor(DType::f32, {m, k}, 1), random_tensor(DType::f32, {k, n}, 2)},
                         {{DType::f32, {m, n}}}, 1e-5, 1e-5, 2);
      }
}

TEST(CpuMatmul, BroadcastsBatches) {
  struct Shapes {
    Shape a, b, y;
  };
  const Shapes cases[] = {{{2, 3, 5, 7}, {2, 3, 7, 4}, {2, 3, 5, 4}}, {{2, 3, 5, 7}, {7, 4}, {2, 3, 5, 4}},
                          {{3, 5, 7}, {2, 1, 7, 4}, {2, 3, 5, 4}},    {{7}, {7, 4}, {4}},
                          {{5, 7}, {7}, {5}},                         {{7}, {7}, {}},
                          {{7}, {3, 7, 4}, {3, 4}},                   {{3, 5, 7}, {7}, {3, 5}},
                          {{1, 5, 7}, {3, 7, 4}, {3, 5, 4}}};
  for (const Shapes& s : cases) {
    SCOPED_TRACE(cat(s.a.text(), " x ", s.b.text()));
    expect_reference("MatMul", {}, {random_tensor(DType::f32, s.a, 3), random_tensor(DType::f32, s.b, 4)},
                     {{DType::f32, s.y}}, 1e-5, 1e-5, 2);
  }
}

TEST(CpuMatmul, ARowHasTheSameBitsInAnyBatch) {
  Tensor a = random_tensor(DType::f32, {50, 700}, 5), b = random_tensor(DType::f32, {700, 90}, 6);
  for (const std::string& isa : whole_isas()) {
    auto run = [&](const Tensor& part, int threads) {
      return run_op(kernels(), "MatMul", {}, {part, b}, {{DType::f32, {part.shape()[0], 90}}}, threads, nullptr,
                    isa)[0];
    };
    Tensor whole = run(a, 2);
    for (int64_t i = 0; i < 50; ++i) expect_equal_bits(rows(whole, i, i + 1), run(rows(a, i, i + 1), 1));
  }
}

TEST(CpuGemm, EqualsReference) {
  for (int64_t transpose_a : {0, 1})
    for (int64_t transpose_b : {0, 1})
      for (const Shape& c : {Shape{}, Shape{1}, Shape{9}, Shape{5, 1}, Shape{1, 9}, Shape{5, 9}}) {
        Tensor a = random_tensor(DType::f32, transpose_a ? Shape{13, 5} : Shape{5, 13}, 7);
        Tensor b = random_tensor(DType::f32, transpose_b ? Shape{9, 13} : Shape{13, 9}, 8);
        SCOPED_TRACE(cat("transA ", transpose_a, " transB ", transpose_b, " c ", c.text()));
        expect_reference(
            "Gemm", attributes({{"transA", transpose_a}, {"transB", transpose_b}, {"alpha", 0.5}, {"beta", 2.0}}),
            {a, b, random_tensor(DType::f32, c, 9)}, {{DType::f32, {5, 9}}}, 1e-5, 1e-5);
        expect_reference("Gemm", attributes({{"transA", transpose_a}, {"transB", transpose_b}}), {a, b},
                         {{DType::f32, {5, 9}}}, 1e-5, 1e-5);
      }
}

TEST(CpuTranspose, EqualsReference) {
  struct Case {
    Shape x;
    std::vector<int64_t> order;
  };
  const Case cases[] = {{{5, 37}, {1, 0}},          {{2, 3, 4, 16}, {0, 2, 1, 3}}, {{2, 3, 4, 5}, {0, 1, 3, 2}},
                        {{2, 3, 4, 5}, {3, 1, 0, 2}}, {{2, 3, 4, 5}, {}},            {{2, 1, 4}, {1, 2, 0}},
                        {{3, 4}, {0, 1}},           {{}, {}},                      {{0, 4}, {1, 0}},
                        {{200, 300}, {1, 0}},       {{4, 50, 60}, {2, 0, 1}}};
  for (const Case& c : cases)
    for (DType dtype : {DType::f32, DType::bf16, DType::u8, DType::i64}) {
      Shape y;
      for (int i = 0; i < c.x.rank(); ++i)
        y.push_back(c.x[c.order.empty() ? c.x.rank() - 1 - i : static_cast<int>(c.order[static_cast<size_t>(i)])]);
      Attributes attributes;
      if (!c.order.empty()) attributes.set("perm", c.order);
      SCOPED_TRACE(cat(c.x.text(), " -> ", y.text()));
      expect_reference("Transpose", attributes, {random_tensor(dtype, c.x, 10, 0, 100)}, {{dtype, y}}, 0, 0, 2);
    }
}

}  // namespace
}  // namespace plait::test
