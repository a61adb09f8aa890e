// Packed products: either side turned, narrow or rounded, of any size, misaligned, by any number of threads.
#include "kernels/cpu/gemm/gemm.h"
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

struct GemmVariant {
  std::string name;
  const cpu::GemmTiles& tiles;
  bool rounds;
};

std::vector<GemmVariant> gemm_variants() {
  std::vector<GemmVariant> out;
  if (has_isa("avx2")) out.push_back({"avx2", cpu::f32_gemm_tiles(cpu::Isa::avx2), false});
  if (has_isa("avx512")) out.push_back({"avx512", cpu::f32_gemm_tiles(cpu::Isa::avx512), false});
  if (has_isa("avx512")) out.push_back({"emulated avx512_bf16", cpu::emulated_bf16_gemm_tiles(), true});
  if (has_isa("avx512")) out.push_back({"emulated amx", cpu::emulated_amx_gemm_tiles(), true});
  if (has_isa("amx")) out.push_back({"amx", cpu::amx_gemm_tiles(), true});
  if (has_isa("avx512_bf16")) out.push_back({"avx512_bf16", cpu::bf16_gemm_tiles(), true});
  return out;
}

struct GemmCase {
  int64_t m, n, k;
  bool transposed = false;
  DType right = DType::f32;
  bool right_transposed = false;
};

/// y + a b, or a b. Numbers are those of bf16, so that rounding changes nothing.
Tensor run_gemm(const cpu::GemmTiles& tiles, const GemmCase& c, const Tensor& a, const Tensor& b, const Tensor* y,
                int threads) {
  ThreadPool pool(threads);
  Tensor out(DType::f32, {c.m, c.n});
  if (y) std::memcpy(out.data(), y->data(), static_cast<size_t>(y->bytes()));
  else std::memset(out.data(), 0xAB, static_cast<size_t>(out.bytes()));
  auto scratch = make_blob(cpu::GemmWorkspace(tiles, c.m, c.k).bytes(threads));
  if (scratch->size()) std::memset(scratch->mutable_data(), 0xFF, static_cast<size_t>(scratch->size()));
  cpu::run_gemm(pool, tiles,
                {{a.as<float>(), c.transposed ? c.m : c.k, c.transposed},
                 {b.as<uint8_t>(), c.right, c.right_transposed ? c.k : c.n, c.right_transposed},
                 c.m,
                 c.n,
                 c.k,
                 out.as<float>(),
                 c.n,
                 y != nullptr},
                scratch->mutable_data());
  return out;
}

Tensor narrow_numbers(const Shape& shape, int seed) {
  Tensor out = random_tensor(DType::f32, shape, seed);
  for (int64_t i = 0; i < out.elements(); ++i) out.as<float>()[i] = to_float(to_bfloat16(out.as<float>()[i]));
  return out;
}

Tensor as(DType dtype, const Tensor& numbers) {
  if (dtype == DType::f32) return numbers;
  Tensor out(dtype, numbers.shape());
  for (int64_t i = 0; i < numbers.elements(); ++i) {
    const float number = numbers.as<float>()[i];
    if (dtype == DType::bf16) out.as<BFloat16>()[i] = to_bfloat16(number);
    else out.as<Float16>()[i] = to_float16(number);
  }
  return out;
}

Tensor transposed(const Tensor& a) {
  const int64_t m = a.shape()[0], k = a.shape()[1];
  Tensor out(DType::f32, {k, m});
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j) out.as<float>()[j * m + i] = a.as<float>()[i * k + j];
  return out;
}

TEST(CpuPackedProducts, EqualTheReference) {
  std::vector<GemmCase> cases;
  for (int64_t m : {1, 13, 14, 15, 36})
    for (int64_t n : {1, 16, 17, 32, 33, 70})
      for (int64_t k : {0, 1, 2, 15, 16, 33})
        for (bool transposed : {false, true})
          for (DType right : {DType::f32, DType::bf16}) cases.push_back({m, n, k, transposed, right, m % 2 == 0});
  cases.push_back({200, 200, 70, true});                            // rows are cut as well
  cases.push_back({30, 33, cpu::gemm_depth + 5});                   // in two parts of k
  cases.push_back({cpu::gemm_rows + 20, 40, 3, true, DType::f32});  // in two parts of m
  for (bool right_transposed : {false, true}) cases.push_back({15, 33, 7, false, DType::f16, right_transposed});
  for (const GemmVariant& variant : gemm_variants())
    for (const GemmCase& c : cases) {
      if (variant.rounds && c.right == DType::f16) continue;
      SCOPED_TRACE(cat(variant.name, " m ", c.m, " n ", c.n, " k ", c.k, c.transposed ? " turned " : " ",
                       dtype_name(c.right), c.right_transposed ? " turned" : ""));
      const Tensor a = narrow_numbers({c.m, c.k}, 1), y = random_tensor(DType::f32, {c.m, c.n}, 3);
      const Tensor left = c.transposed ? transposed(a) : a, b = narrow_numbers({c.k, c.n}, 2);
      const Tensor right = shifted(as(c.right, c.right_transposed ? transposed(b) : b), dtype_bits(c.right) / 8);
      const Tensor expected =
          run_op(kernels(), "MatMul", {}, {a, b}, {{DType::f32, {c.m, c.n}}}, 1, nullptr, "reference")[0];
      const Tensor made = run_gemm(variant.tiles, c, shifted(left, 4), right, nullptr, 2);
      expect_near(made, expected, 1e-4, c.right == DType::f16 ? 1e-3 : 3e-5);
      expect_equal_bits(made, run_gemm(variant.tiles, c, left, right, nullptr, 1));
      Tensor more = expected;
      for (int64_t i = 0; i < more.elements(); ++i) more.as<float>()[i] += y.as<float>()[i];
      expect_near(run_gemm(variant.tiles, c, left, right, &y, 2), more, 1e-4, c.right == DType::f16 ? 1e-3 : 4e-5);
      if (HasFailure()) return;
    }
}

}  // namespace
}  // namespace plait::test
