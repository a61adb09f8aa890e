// plait.Experts, by hand.
#include "tests/unit/reference/reference_test.h"

namespace plait::test {
namespace {

/// Two experts of two hidden numbers: the first takes x as it is, the second twice.
std::vector<Tensor> operands(const std::vector<double>& numbers, const std::vector<double>& shares, bool gated) {
  const auto tokens = static_cast<int64_t>(numbers.size() / 2);
  return {f32({2, 2}, {1, -2, 3, 4}),
          i64({tokens, 2}, numbers),
          f32({tokens, 2}, shares),
          f32({2, 2, 2}, {1, 0, 0, 1, 2, 0, 0, 2}),
          gated ? f32({2, 2, 2}, {0, 1, 1, 0, 1, 1, 1, 1}) : Tensor(),
          f32({2, 1, 2}, {1, 1, 1, 10})};
}

TEST(Experts, AddUpByShares) {
  Attributes relu = attributes({{"activation", std::string("relu")}});
  // Token 0: expert 0 gives 1 + 0, expert 1 gives 2 + 0. Token 1: 3 + 4 and 6 + 80.
  expect_op("plait.Experts", relu, operands({0, 1, 1, 0}, {1, 10, 0.5, 2}, false), f32({2, 1}, {21, 57}));
  // With `up`: token 0 relu(1, -2) * (-2, 1) and relu(2, -4) * (-1, -1); token 1 (3, 4) * (4, 3) and (6, 8) * (7, 7).
  expect_op("plait.Experts", relu, operands({0, 1, 1, 0}, {1, 10, 0.5, 2}, true), f32({2, 1}, {-22, 349}));
}

TEST(Experts, BiasesLimitsAndASharperGate) {
  Attributes bent = attributes({{"alpha", 2.0}, {"beta", 1.0}, {"limit", 2.5}, {"activation", std::string("silu")}});
  std::vector<Tensor> inputs = operands({0, 0, 1, 1}, {1, 0, 1, 0}, true);
  inputs.push_back(f32({2, 2}, {0.5, 0, 0, -1}));  // gate
  inputs.push_back(f32({2, 2}, {0, 0, 0, 3}));     // up
  inputs.push_back(f32({2, 1}, {100, 1000}));      // down
  auto gate = [](double g) { return std::min(g, 2.5) / (1 + std::exp(-2 * std::min(g, 2.5))); };
  auto up = [](double u) { return std::clamp(u, -2.5, 2.5) + 1; };
  expect_op(
      "plait.Experts", bent, inputs,
      f32({2, 1}, {gate(1.5) * up(-2) + gate(-2) * up(1) + 100, gate(6) * up(7) + 10 * gate(7) * up(10) + 1000}));
}

TEST(Experts, QuantisedWeights) {
  // The weights of `operands`, without `up`, as codes around 3 with a scale of 1/2, and around 1 with one of 1.
  std::vector<Tensor> inputs = operands({0, 1, 1, 0}, {1, 10, 0.5, 2}, false);
  inputs[3] = tensor(DType::u8, {2, 2, 1, 2}, {5, 3, 3, 5, 7, 3, 3, 7});
  inputs[5] = tensor(DType::u8, {2, 1, 1, 2}, {2, 2, 3, 12});
  inputs.resize(14);
  inputs[9] = f32({2, 2, 1}, {0.5, 0.5, 0.5, 0.5});
  inputs[13] = f32({2, 1, 1}, {1, 1});
  inputs.push_back(tensor(DType::u8, {2, 1, 1}, {1, 2}));
  Attributes relu =
      attributes({{"activation", std::string("relu")}, {"zero", int64_t{3}}, {"down_zero", int64_t{9}}});
  expect_op("plait.Experts", relu, inputs, f32({2, 1}, {21, 57}));
}

TEST(Experts, HalfPrecisionAndRowsOfAnyRank) {
  std::vector<Tensor> inputs = operands({0, 1, 1, 0}, {1, 10, 0.5, 2}, false);
  inputs[0] = tensor(DType::f16, {1, 2, 2}, {1, -2, 3, 4});
  inputs[1] = i32({1, 2, 2}, {0, 1, 1, 0});
  inputs[2] = inputs[2].reshaped({1, 2, 2});
  expect_op("plait.Experts", attributes({{"activation", std::string("relu")}}), inputs,
            tensor(DType::f16, {1, 2, 1}, {21, 57}));
}

TEST(Experts, RefuseExpertsThatAreNot) {
  KernelStatus status =
      refused("plait.Experts", {}, operands({0, 1, 2, 0}, {1, 1, 1, 1}, false), {{DType::f32, {2, 1}}});
  EXPECT_EQ(status.code, KernelCode::index_out_of_range);
  EXPECT_EQ(status.value, 2);
  EXPECT_THROW(run_reference("plait.Experts", attributes({{"activation", std::string("swish")}}),
                             operands({0, 1, 1, 0}, {1, 1, 1, 1}, false), {{DType::f32, {2, 1}}}),
               Error);
}

}  // namespace
}  // namespace plait::test
