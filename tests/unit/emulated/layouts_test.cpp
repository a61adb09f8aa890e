// The instructions' layouts against CUTLASS's tables: matrices that are laid out by those are multiplied, or loaded.
#include <gtest/gtest.h>

#include <random>

#include "kernels/emulated/cuda_language.h"
#include "kernels/emulated/instructions.h"
#include "tests/unit/emulated/cute_tables.h"
#include "tests/unit/support/run_kernel.h"

namespace plait::test {
namespace {

struct Layouts : testing::Test {
  void SetUp() override {
    if (!has_cute_tables()) GTEST_SKIP() << "CUTLASS's headers were not there; kernels/cuda/get_nvcc.sh fetches them";
  }
};

/// Small integers, so that every order of sums is exact.
std::vector<float> integers(int count, int seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<float> out(static_cast<size_t>(count));
  for (float& value : out) value = static_cast<float>(static_cast<int>(random() % 17) - 8);
  return out;
}

void expect_product(const char* kernel, uint32_t (*pack)(float, float)) {
  const std::vector<float> a = integers(16 * 16, 1), b = integers(8 * 16, 2);
  uint32_t a_registers[32 * 4], b_registers[32 * 2];
  float sums[32 * 4];
  const auto value = [](const std::vector<float>& matrix, Place place) {
    return matrix[static_cast<size_t>(place.row * 16 + place.column)];
  };
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i)
      a_registers[lane * 4 + i] = pack(value(a, cute_a(lane, 2 * i)), value(a, cute_a(lane, 2 * i + 1)));
    for (int i = 0; i < 2; ++i)
      b_registers[lane * 2 + i] = pack(value(b, cute_b(lane, 2 * i)), value(b, cute_b(lane, 2 * i + 1)));
  }
  run_kernel(kernel, {1, 1, 1, 32}, 5, static_cast<const uint32_t*>(a_registers),
             static_cast<const uint32_t*>(b_registers), static_cast<float*>(sums));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place place = cute_sums(lane, i);
      float expected = 0;
      for (int k = 0; k < 16; ++k) expected += value(a, {place.row, k}) * value(b, {place.column, k});
      EXPECT_EQ(sums[lane * 4 + i], expected) << "lane " << lane << ", value " << i;
    }
}

TEST_F(Layouts, MmaOfBf16) { expect_product("one_mma_bf16", pack_bf16); }
TEST_F(Layouts, MmaOfF16) { expect_product("one_mma_f16", pack_f16); }

TEST_F(Layouts, LoadMatrices) {
  uint16_t rows[32 * 8];
  for (int i = 0; i < 32 * 8; ++i) rows[i] = static_cast<uint16_t>(i);
  for (const int32_t transposed : {0, 1}) {
    uint32_t registers[32 * 4];
    run_kernel("one_load_matrices", {1, 1, 1, 32}, 3, static_cast<const uint16_t*>(rows),
               static_cast<uint32_t*>(registers), transposed);
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 8; ++i) {
        const Place place = cute_matrices(lane, i, transposed != 0);
        EXPECT_EQ(registers[lane * 4 + i / 2] >> (i % 2 * 16) & 0xffff,
                  static_cast<uint32_t>(place.row * 8 + place.column))
            << "lane " << lane << ", value " << i << ", transposed " << transposed;
      }
  }
}

}  // namespace
}  // namespace plait::test
