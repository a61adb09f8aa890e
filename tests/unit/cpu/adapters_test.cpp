// plait.AddAdapters: against the reference, and bit for bit the same row in any company.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

constexpr int64_t adapter_slots = 4;

/// Row i is the same in any number of them: its adapter, too, which changes every few rows; slot 3 is unused.
struct AdapterRows {
  Tensor y, x, adapters;
  AdapterRows(int64_t begin, int64_t count, int64_t n, int64_t k)
      : y(rows(random_tensor(DType::f32, {300, n}, 1), begin, begin + count)),
        x(rows(random_tensor(DType::f32, {300, k}, 2), begin, begin + count)),
        adapters(DType::i32, {count}) {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = begin + i;
      adapters.as<int32_t>()[i] = static_cast<int32_t>((row < 150 ? row / 41 : row) % 4) - 1;
    }
  }
};

std::vector<Tensor> adapter_operands(const AdapterRows& rows, int64_t n, int64_t k, int64_t r, int64_t shift = 0) {
  return {rows.y, rows.x, shifted(random_tensor(DType::f32, {adapter_slots, r, k}, 3), shift),
          shifted(random_tensor(DType::f32, {adapter_slots, n, r}, 4), shift), rows.adapters};
}

TEST(CpuAdapters, EqualTheReference) {
  for (int64_t k : {1, 17, 64, 300})
    for (int64_t n : {1, 40, 300})
      for (int64_t r : {1, 8, 70, 300})
        for (int64_t t : {0, 1, 5, 130}) {
          SCOPED_TRACE(cat("t ", t, " k ", k, " n ", n, " r ", r));
          // Two sums, of k and of r products of numbers up to 1.
          const double tolerance = 1e-6 * std::sqrt(static_cast<double>(k * r)) + 1e-6;
          expect_reference("plait.AddAdapters", {}, adapter_operands(AdapterRows(0, t, n, k), n, k, r),
                           {{DType::f32, {t, n}}}, 1e-5, tolerance, 2);
        }
}

TEST(CpuAdapters, ARowHasTheSameBitsInAnyCompany) {
  const int64_t n = 300, k = 77, r = 20;
  for (const std::string& isa : whole_isas()) {
    auto run = [&](int64_t begin, int64_t count, int threads, int64_t shift = 0) {
      return run_op(kernels(), "plait.AddAdapters", {},
                    adapter_operands(AdapterRows(begin, count, n, k), n, k, r, shift), {{DType::f32, {count, n}}},
                    threads, nullptr, isa)[0];
    };
    const Tensor all = run(0, 300, 1);
    for (const auto& [begin, count] :
         {std::pair<int64_t, int64_t>{0, 1}, {3, 40}, {40, 3}, {30, 100}, {140, 20}, {299, 1}})
      for (int threads : {1, 2}) {
        SCOPED_TRACE(cat(isa, ": ", count, " rows from ", begin, ", threads ", threads));
        expect_equal_bits(run(begin, count, threads, 4 * threads), rows(all, begin, begin + count));
      }
    const AdapterRows given(0, 300, n, k);
    for (int64_t i = 0; i < 300; ++i)
      if (given.adapters.as<int32_t>()[i] < 0) expect_equal_bits(rows(all, i, i + 1), rows(given.y, i, i + 1));
  }
}

TEST(CpuAdapters, SlotsThatAreNotThereAreRefused) {
  for (int32_t slot : {-2, 4}) {
    AdapterRows given(0, 3, 8, 8);
    given.adapters.as<int32_t>()[1] = slot;
    for (const std::string& isa : with_reference(whole_isas())) {
      KernelStatus status;
      run_op(kernels(), "plait.AddAdapters", {}, adapter_operands(given, 8, 8, 2), {{DType::f32, {3, 8}}}, 1, &status,
             isa);
      EXPECT_EQ(status.code, KernelCode::index_out_of_range) << isa;
      EXPECT_EQ(status.value, slot);
    }
  }
}

}  // namespace
}  // namespace plait::test
