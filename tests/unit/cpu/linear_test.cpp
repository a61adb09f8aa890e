// plait.Linear, Linears and GatedLinear: against the reference, and bit for bit the same row in any company.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

/// Sums of k products of numbers up to 1: each step rounds by half an ulp of a sum that grows like sqrt(k).
double linear_tolerance(int64_t k) { return 1e-7 * std::sqrt(static_cast<double>(k) + 1) * 4 + 1e-6; }

const int64_t inner_lengths[] = {0, 1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 640};

TEST(CpuLinear, EqualsReferenceForAnyLength) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t k : inner_lengths)
      for (int64_t n : {0, 1, 3, 4, 8, 13, 70})
        for (int64_t m : {1, 2, 5}) {
          SCOPED_TRACE(cat(dtype_name(dtype), " m ", m, " n ", n, " k ", k));
          Tensor x = random_tensor(DType::f32, {m, k}, 1), w = random_tensor(dtype, {n, k}, 2);
          expect_reference("plait.Linear", {}, {x, w}, {{DType::f32, {m, n}}}, 1e-5, linear_tolerance(k));
        }
}

TEST(CpuLinear, LongSumsManyRowsAndBias) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t k : {640, 1024, 1500, 2100})
      for (int64_t m : {1, 6, 20, 70}) {
        SCOPED_TRACE(cat(dtype_name(dtype), " m ", m, " k ", k));
        Tensor x = random_tensor(DType::f32, {m, k}, 3), w = random_tensor(dtype, {37, k}, 4);
        Tensor bias = random_tensor(dtype, {37}, 5);
        expect_reference("plait.Linear", {}, {x, w, bias}, {{DType::f32, {m, 37}}}, 1e-5, linear_tolerance(k), 2);
      }
}

TEST(CpuLinear, ReadsWeightsAtAnyAddress) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t shift : {1, 2, 4, 6, 30, 62})
      for (int64_t m : {1, 3, 40}) {
        Tensor x = random_tensor(DType::f32, {m, 77}, 6), w = random_tensor(dtype, {19, 77}, 7);
        for (const std::string& isa : whole_isas()) {
          auto run = [&](const Tensor& a, const Tensor& b) {
            return run_op(kernels(), "plait.Linear", {}, {a, b}, {{DType::f32, {m, 19}}}, 1, nullptr, isa)[0];
          };
          SCOPED_TRACE(cat(isa, " ", dtype_name(dtype), " shift ", shift));
          expect_equal_bits(run(x, shifted(w, shift)), run(x, w));
          expect_equal_bits(run(shifted(x, shift), w), run(x, w));
        }
      }
}

/// Row i of m rows equals row i computed by itself, for any number of threads.
void expect_linear_invariant(const std::string& op, const Attributes& attributes, int64_t k,
                             std::vector<Tensor> weights, std::vector<int64_t> widths) {
  for (const std::string& isa : whole_isas()) {
    auto run = [&](const Tensor& x, int threads) {
      std::vector<Tensor> inputs = weights;
      inputs.insert(inputs.begin(), x);
      std::vector<OutputType> outputs;
      for (int64_t n : widths) outputs.push_back({DType::f32, {x.shape()[0], n}});
      return run_op(kernels(), op, attributes, inputs, outputs, threads, nullptr, isa);
    };
    const int64_t most = 130;
    Tensor x = random_tensor(DType::f32, {most, k}, 8);
    std::vector<std::vector<Tensor>> alone;
    for (int64_t i = 0; i < most; ++i) alone.push_back(run(rows(x, i, i + 1), 1));
    std::mt19937 engine(9);
    std::vector<int64_t> counts;
    for (int64_t m = 1; m <= 40; ++m) counts.push_back(m);
    counts.push_back(most);
    for (int64_t m : counts)
      for (int threads : {1, 2}) {
        int64_t begin = static_cast<int64_t>(engine() % static_cast<uint64_t>(most - m + 1));
        std::vector<Tensor> together = run(rows(x, begin, begin + m), threads);
        SCOPED_TRACE(cat(op, " on ", isa, ", m ", m, ", rows from ", begin, ", threads ", threads));
        for (size_t out = 0; out < widths.size(); ++out)
          for (int64_t i = 0; i < m; ++i)
            expect_equal_bits(rows(together[out], i, i + 1), alone[static_cast<size_t>(begin + i)][out]);
        if (testing::Test::HasFailure()) return;
      }
  }
}

TEST(CpuLinear, ARowHasTheSameBitsInAnyBatch) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (int64_t k : {65, 200, 1100}) {
      SCOPED_TRACE(cat(dtype_name(dtype), " k ", k));
      expect_linear_invariant("plait.Linear", {}, k,
                              {random_tensor(dtype, {150, k}, 10), random_tensor(dtype, {150}, 11)}, {150});
    }
}

TEST(CpuLinears, ARowHasTheSameBitsInAnyBatch) {
  const int64_t k = 130;
  std::vector<Tensor> weights;
  for (int64_t n : {70, 5, 33}) weights.push_back(random_tensor(DType::bf16, {n, k}, static_cast<uint64_t>(n)));
  expect_linear_invariant("plait.Linears", {}, k, weights, {70, 5, 33});
}

TEST(CpuGatedLinear, ARowHasTheSameBitsInAnyBatch) {
  const int64_t k = 130, f = 85;
  for (const char* name : {"silu", "gelu_tanh"})
    expect_linear_invariant("plait.GatedLinear", attributes({{"activation", std::string(name)}}), k,
                            {random_tensor(DType::bf16, {f, k}, 12), random_tensor(DType::bf16, {f, k}, 13)}, {f});
}

TEST(CpuLinears, EqualReference) {
  for (int64_t m : {1, 4, 50}) {
    const int64_t k = 96;
    Tensor x = random_tensor(DType::f32, {1, m, k}, 14);
    Tensor q = random_tensor(DType::bf16, {64, k}, 15), kv = random_tensor(DType::f32, {17, k}, 16);
    expect_reference("plait.Linears", {}, {x, q, kv}, {{DType::f32, {1, m, 64}}, {DType::f32, {1, m, 17}}}, 1e-5,
                     linear_tolerance(k), 2);
  }
}

TEST(CpuGatedLinear, EqualsReferenceForEachActivation) {
  for (const char* name : {"silu", "gelu_tanh", "gelu", "relu", "identity"})
    for (int64_t m : {1, 3, 33})
      for (DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE(cat(name, " m ", m));
        const int64_t k = 64, f = 43;
        Tensor x = random_tensor(DType::f32, {m, k}, 17, -2, 2);
        Tensor gate = random_tensor(dtype, {f, k}, 18), up = random_tensor(dtype, {f, k}, 19);
        expect_reference("plait.GatedLinear", attributes({{"activation", std::string(name)}}), {x, gate, up},
                         {{DType::f32, {m, f}}}, 2e-5, 20 * linear_tolerance(k), 2);
      }
}

TEST(CpuGatedLinear, RefusesAnUnknownActivation) {
  Tensor x(DType::f32, {1, 8}), w(DType::f32, {2, 8});
  EXPECT_THROW(run_op(kernels(), "plait.GatedLinear", attributes({{"activation", std::string("cube")}}), {x, w, w},
                      {{DType::f32, {1, 2}}}, 1, nullptr, "avx2"),
               Error);
}

TEST(CpuTable, LimitsTheInstructionSet) {
  if (isas().empty()) GTEST_SKIP() << "this processor has no AVX2";
  KernelTable none, avx2;
  register_cpu_kernels(none, "reference");
  EXPECT_TRUE(none.all().empty());
  register_cpu_kernels(avx2, "avx2");
  EXPECT_FALSE(avx2.all().empty());
  for (const auto& kernel : avx2.all()) EXPECT_EQ(kernel->isa, "avx2");
  EXPECT_THROW(register_cpu_kernels(avx2, "sse9"), Error);
}

}  // namespace
}  // namespace plait::test
