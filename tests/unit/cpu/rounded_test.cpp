// The kernels that round x to bf16 (AVX512_BF16 and AMX): their loops over stand-ins of the instructions wherever
// there is AVX-512, and the instructions themselves where the processor has them.
#include "kernels/cpu/linear/packed_tile.h"
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

struct Variant {
  std::string name;
  const cpu::PackedTiles& tiles;
};

std::vector<Variant> variants() {
  std::vector<Variant> out;
  if (has_isa("avx2")) out.push_back({"emulated amx", cpu::emulated_amx_tiles()});
  if (has_isa("avx512")) out.push_back({"emulated avx512_bf16", cpu::emulated_bf16_tiles()});
  if (has_isa("avx512_bf16")) out.push_back({"avx512_bf16", cpu::bf16_tiles()});
  if (has_isa("amx")) out.push_back({"amx", cpu::amx_tiles()});
  return out;
}

/// Rows [begin, begin + m) of x, all of which are packed.
Tensor run_packed(const cpu::PackedTiles& tiles, const Tensor& x, const Tensor& w, int64_t begin, int64_t m) {
  const int64_t rows = x.shape()[0], k = x.shape()[1], n = w.shape()[0];
  auto packed = make_blob(tiles.bytes(rows, k));
  if (packed->size()) std::memset(packed->mutable_data(), 0xFF, static_cast<size_t>(packed->size()));
  const int64_t group = tiles.group(rows);
  for (int64_t index = 0; index * group < rows; ++index)
    tiles.pack(x.as<float>(), rows, k, index, packed->mutable_data());
  auto scratch = make_blob(4 * tiles.scratch(rows, n, k));
  if (scratch->size()) std::memset(scratch->mutable_data(), 0xFF, static_cast<size_t>(scratch->size()));
  Tensor y(DType::f32, {m, n});
  std::memset(y.data(), 0xAB, static_cast<size_t>(y.bytes()));
  tiles.block({packed->data(), group, begin, m, w.as<uint8_t>(), w.dtype(), n, k, y.as<float>(), n,
               reinterpret_cast<float*>(scratch->mutable_data()), nullptr});
  return y;
}

Tensor rounded(const Tensor& x) {
  Tensor out(DType::f32, x.shape());
  for (int64_t i = 0; i < x.elements(); ++i) out.as<float>()[i] = to_float(to_bfloat16(x.as<float>()[i]));
  return out;
}

TEST(CpuRounded, EqualsReferenceOfRoundedRows) {
  for (const Variant& variant : variants())
    for (int64_t k : {1, 2, 31, 32, 33, 64, 95})
      for (int64_t n : {1, 4, 15, 16, 17, 33})
        for (int64_t m : {1, 5, 16, 17, 27, 28, 29, 33, 47}) {
          SCOPED_TRACE(cat(variant.name, " m ", m, " n ", n, " k ", k));
          Tensor x = random_tensor(DType::f32, {m, k}, 1), w = shifted(random_tensor(DType::bf16, {n, k}, 2), 2);
          Tensor expected = run_op(kernels(), "plait.Linear", {}, {rounded(x), w}, {{DType::f32, {m, n}}}, 1, nullptr,
                                   "reference")[0];
          expect_near(run_packed(variant.tiles, x, w, 0, m), expected, 1e-5, 2e-6);
          if (HasFailure()) return;
        }
}

TEST(CpuRounded, ARowHasTheSameBitsInAnyBatch) {
  for (const Variant& variant : variants()) {
    SCOPED_TRACE(variant.name);
    const int64_t k = 75, n = 39, most = 56;
    Tensor x = random_tensor(DType::f32, {most, k}, 3), w = random_tensor(DType::bf16, {n, k}, 4);
    std::vector<Tensor> alone;
    for (int64_t i = 0; i < most; ++i) alone.push_back(run_packed(variant.tiles, rows(x, i, i + 1), w, 0, 1));
    for (int64_t all = 1; all <= most; ++all)
      for (int64_t begin : {int64_t{0}, variant.tiles.group(all)}) {
        const int64_t m = all - begin;
        if (m <= 0) continue;
        Tensor together = run_packed(variant.tiles, rows(x, 0, all), w, begin, m);
        for (int64_t i = 0; i < m; ++i)
          expect_equal_bits(rows(together, i, i + 1), alone[static_cast<size_t>(begin + i)]);
        if (HasFailure()) return;
      }
  }
}

TEST(CpuRounded, TheTableGivesThemOnlyNodesThatAskForIt) {
  const OperandInfo inputs[] = {{DType::f32, 2}, {DType::bf16, 2, true}}, outputs[] = {{DType::f32, 2}};
  Attributes round = attributes({{"round_x", int64_t{1}}}), plain;
  for (std::string name : {"avx512_bf16", "amx"}) {
    if (!has_isa(name)) continue;
    KernelTable table;
    register_cpu_kernels(table, name);
    EXPECT_EQ(table.find({"plait.Linear", round, inputs, outputs})->isa, name);
    EXPECT_EQ(table.find({"plait.Linear", plain, inputs, outputs})->isa, "avx512");
  }
  if (has_isa("avx2")) {  // without such an instruction set the node keeps x in f32
    KernelTable table;
    register_cpu_kernels(table, "avx2");
    EXPECT_EQ(table.find({"plait.Linear", round, inputs, outputs})->isa, "avx2");
  }
}

TEST(CpuRounded, WholeOpsOnThisProcessor) {
  Attributes round = attributes({{"round_x", int64_t{1}}, {"activation", std::string("silu")}});
  const int64_t k = 100, f = 77;
  Tensor gate = random_tensor(DType::bf16, {f, k}, 5), up = random_tensor(DType::bf16, {f, k}, 6);
  for (std::string isa : {"avx512_bf16", "amx"}) {
    if (!has_isa(isa)) continue;
    for (int64_t m : {1, 7, 40}) {
      Tensor x = random_tensor(DType::f32, {m, k}, 7);
      auto call = [&](std::string_view op, const Tensor& left, int threads, std::string_view on) {
        std::vector<OutputType> outputs(op == "plait.Linears" ? 2 : 1, OutputType{DType::f32, {m, f}});
        return run_op(kernels(), op, round, {left, gate, up}, outputs, threads, nullptr, on);
      };
      for (std::string_view op : {"plait.GatedLinear", "plait.Linears"}) {
        std::vector<Tensor> expected = call(op, rounded(x), 1, "reference"), actual = call(op, x, 2, isa);
        for (size_t i = 0; i < expected.size(); ++i) {
          expect_near(actual[i], expected[i], 1e-4, 1e-5);
          expect_equal_bits(call(op, x, 1, isa)[i], actual[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace plait::test
