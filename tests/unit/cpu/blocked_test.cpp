// Weights quantised in blocks: against the reference, at any address, and bit for bit the same row in any company.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

double tolerance(int64_t k) { return 1e-7 * std::sqrt(static_cast<double>(k) + 1) * 40 + 1e-5; }

struct BlockedCase {
  DType dtype;
  int64_t blocks, length;
  DType scales, zeros;  ///< zeros none: the attribute
  int64_t zero;
};

/// Random codes in every bit.
Tensor random_codes(DType dtype, const Shape& shape, uint64_t seed) {
  Tensor out(dtype, shape);
  std::mt19937_64 engine(seed);
  for (int64_t i = 0; i < out.bytes(); ++i) out.as<uint8_t>()[i] = static_cast<uint8_t>(engine());
  return out;
}

struct BlockedWeights {
  Tensor codes, scales, zeros;
  BlockedWeights(const BlockedCase& c, int64_t n, uint64_t seed)
      : codes(random_codes(c.dtype, {n, c.blocks, c.length}, seed)) {
    const float range = static_cast<float>(1 << dtype_bits(c.dtype));
    scales = random_tensor(c.scales, {n, c.blocks}, seed + 1, -2 / range, 2 / range);  // of either sign
    if (c.zeros == DType::u8 || c.zeros == DType::i8) zeros = random_codes(c.zeros, {n, c.blocks}, seed + 2);
    else if (c.zeros != DType::none) zeros = random_tensor(c.zeros, {n, c.blocks}, seed + 2, 0, range);
    if (c.zeros == DType::u8)  // as small as codes are
      for (int64_t i = 0; i < zeros.elements(); ++i) zeros.as<uint8_t>()[i] &= (1 << dtype_bits(c.dtype)) - 1;
  }
};

std::string name_of(const BlockedCase& c) {
  return cat(dtype_name(c.dtype), " ", c.blocks, " x ", c.length, " scales ", dtype_name(c.scales), " zeros ",
             dtype_name(c.zeros), " zero ", c.zero);
}

std::vector<BlockedCase> blocked_cases() {
  std::vector<BlockedCase> out;
  for (DType dtype : {DType::u2, DType::i2, DType::u4, DType::i4, DType::u8, DType::i8}) {
    const int64_t half = 1 << (dtype_bits(dtype) - 1);
    out.push_back({dtype, 3, 32, DType::f32, DType::none, half});
    out.push_back({dtype, 5, 16, DType::f16, DType::u8, 0});
    out.push_back({dtype, 2, 128, DType::bf16, DType::f32, 0});
    out.push_back({dtype, 1, 48, DType::f32, DType::i8, 0});
    out.push_back({dtype, 1, 52, DType::f32, DType::none, 0});  // a group that is not full
    out.push_back({dtype, 3, 12, DType::f32, DType::none, 1});  // groups that span blocks
    out.push_back({dtype, 7, 256, DType::f32, DType::f16, 0});
  }
  out.push_back({DType::u4, 3, 5, DType::f32, DType::none, 3});  // rows that begin inside a byte
  return out;
}

TEST(CpuBlocked, LinearEqualsReference) {
  for (const BlockedCase& c : blocked_cases())
    for (int64_t n : {1, 8, 37})
      for (int64_t m : {1, 2, 3, 4, 5, 9, 20, 70})
        for (int64_t unused : {0, 3}) {
          SCOPED_TRACE(cat(name_of(c), " m ", m, " n ", n, " unused ", unused));
          const int64_t k = c.blocks * c.length - unused;
          BlockedWeights w(c, n, 1);
          Tensor x = random_tensor(DType::f32, {m, k}, 4), bias = random_tensor(DType::f32, {n}, 5);
          std::vector<Tensor> inputs{x, w.codes, unused ? bias : Tensor(), w.scales};
          if (w.zeros.present()) inputs.push_back(w.zeros);
          expect_reference("plait.Linear", attributes({{"zero", c.zero}}), inputs, {{DType::f32, {m, n}}}, 1e-5,
                           tolerance(k), 2);
          if (testing::Test::HasFailure()) return;
        }
}

TEST(CpuBlocked, EmbeddingEqualsReferenceBitForBit) {
  for (const BlockedCase& c : blocked_cases()) {
    SCOPED_TRACE(name_of(c));
    BlockedWeights table(c, 9, 6);
    Tensor ids = Tensor::of<int64_t>(DType::i64, {1, 5}, std::vector<int64_t>{8, 0, 3, 3, 7});
    std::vector<Tensor> inputs{table.codes, ids, table.scales};
    if (table.zeros.present()) inputs.push_back(table.zeros);
    expect_reference("plait.Embedding", attributes({{"to", int64_t{1}}, {"zero", c.zero}}), inputs,
                     {{DType::f32, {1, 5, c.blocks * c.length}}}, 0, 0, 2);
  }
}

TEST(CpuBlocked, EmbeddingRefusesIdsOutOfRange) {
  BlockedWeights table({DType::u4, 2, 16, DType::f32, DType::none, 8}, 4, 7);
  for (const std::string& isa : whole_isas()) {
    KernelStatus status;
    run_op(kernels(), "plait.Embedding", attributes({{"zero", int64_t{8}}}),
           {table.codes, Tensor::of<int64_t>(DType::i64, {1, 1}, std::vector<int64_t>{4}), table.scales},
           {{DType::f32, {1, 1, 32}}}, 1, &status, isa);
    EXPECT_EQ(status.code, KernelCode::index_out_of_range);
  }
}

/// Row i of m rows equals row i computed by itself, for any number of threads, and wherever weights lie in memory.
void expect_invariant(const std::string& op, const Attributes& attributes, int64_t k,
                      const std::vector<Tensor>& weights, const std::vector<int64_t>& widths) {
  for (const std::string& isa : whole_isas()) {
    auto run = [&](const Tensor& x, int threads, int64_t shift) {
      std::vector<Tensor> inputs{x};
      for (const Tensor& w : weights) inputs.push_back(shifted(w, shift));
      std::vector<OutputType> outputs;
      for (int64_t n : widths) outputs.push_back({DType::f32, {x.shape()[0], n}});
      return run_op(kernels(), op, attributes, inputs, outputs, threads, nullptr, isa);
    };
    const int64_t most = 60;
    Tensor x = random_tensor(DType::f32, {most, k}, 8);
    std::vector<std::vector<Tensor>> alone;
    for (int64_t i = 0; i < most; ++i) alone.push_back(run(rows(x, i, i + 1), 1, 0));
    std::mt19937 engine(9);
    for (int64_t m : {1, 2, 3, 4, 5, 6, 7, 12, 13, 29, 60})
      for (int threads : {1, 2}) {
        const auto begin = static_cast<int64_t>(engine() % static_cast<uint64_t>(most - m + 1));
        std::vector<Tensor> together = run(rows(x, begin, begin + m), threads, m % 7);
        SCOPED_TRACE(cat(op, " on ", isa, ", m ", m, ", rows from ", begin, ", threads ", threads));
        for (size_t out = 0; out < widths.size(); ++out)
          for (int64_t i = 0; i < m; ++i)
            expect_equal_bits(rows(together[out], i, i + 1), alone[static_cast<size_t>(begin + i)][out]);
        if (testing::Test::HasFailure()) return;
      }
  }
}

TEST(CpuBlocked, ARowHasTheSameBitsInAnyBatch) {
  for (const BlockedCase& c : blocked_cases()) {
    SCOPED_TRACE(name_of(c));
    BlockedWeights w(c, 90, 10);
    std::vector<Tensor> weights{w.codes, random_tensor(DType::f32, {90}, 11), w.scales};
    if (w.zeros.present()) weights.push_back(w.zeros);
    expect_invariant("plait.Linear", attributes({{"zero", c.zero}}), c.blocks * c.length - 1, weights, {90});
    if (testing::Test::HasFailure()) return;
  }
}

TEST(CpuBlocked, SeveralLinearsAndGates) {
  for (const BlockedCase& c : {BlockedCase{DType::u4, 4, 32, DType::f32, DType::none, 8},
                               BlockedCase{DType::u4, 4, 32, DType::f32, DType::u8, 0},
                               BlockedCase{DType::i8, 2, 64, DType::f16, DType::none, 0}}) {
    SCOPED_TRACE(name_of(c));
    const int64_t k = c.blocks * c.length;
    const bool zeros = c.zeros != DType::none;
    std::vector<Tensor> weights;
    for (int64_t n : {70, 5, 33}) {
      BlockedWeights w(c, n, static_cast<uint64_t>(n));
      weights.push_back(w.codes);
      weights.push_back(w.scales);
      if (zeros) weights.push_back(w.zeros);
    }
    Attributes several = attributes({{"zero", c.zero}, {"parts", int64_t{zeros ? 3 : 2}}});
    expect_invariant("plait.Linears", several, k, weights, {70, 5, 33});
    for (int64_t m : {1, 6, 40}) {
      std::vector<Tensor> inputs = weights;
      inputs.insert(inputs.begin(), random_tensor(DType::f32, {m, k}, 12));
      expect_reference("plait.Linears", several, inputs,
                       {{DType::f32, {m, 70}}, {DType::f32, {m, 5}}, {DType::f32, {m, 33}}}, 1e-5, tolerance(k), 2);
    }
    BlockedWeights gate(c, 45, 13), up(c, 45, 14);
    Attributes gated = attributes({{"zero", c.zero}, {"activation", std::string("silu")}});
    std::vector<Tensor> sides{gate.codes, up.codes, gate.scales, gate.zeros, up.scales, up.zeros};
    expect_invariant("plait.GatedLinear", gated, k, sides, {45});
    for (int64_t m : {1, 6, 40}) {
      std::vector<Tensor> inputs = sides;
      inputs.insert(inputs.begin(), random_tensor(DType::f32, {m, k}, 15));
      expect_reference("plait.GatedLinear", gated, inputs, {{DType::f32, {m, 45}}}, 1e-5, 20 * tolerance(k), 2);
    }
  }
}

TEST(CpuBlocked, RefusesScalesOfOtherSizes) {
  for (const std::string& isa : whole_isas()) {
    KernelStatus status;
    run_op(kernels(), "plait.Linear", {},
           {Tensor(DType::f32, {1, 32}), Tensor(DType::u4, {4, 2, 16}), Tensor(), Tensor(DType::f32, {4, 1})},
           {{DType::f32, {1, 4}}}, 1, &status, isa);
    EXPECT_EQ(status.code, KernelCode::bad_value);
  }
}

}  // namespace
}  // namespace plait::test
