// Layers with a state along the tokens, on CUDA devices.
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

/// Tokens of four segments and of none; slot 0 to 4, another to itself, zeros to 2, and one that is not kept.
const std::vector<double> segments{2, 0, 0, 0, 0, 0, -1, -1, 3, 3, 3, 1}, slots{0, 4, 1, 1, -1, 2, 3, -1};
constexpr int64_t tokens = 12;

Tensor segments_of_tokens() { return tensor(DType::i32, {1, tokens}, segments); }
Tensor slots_of_segments() { return tensor(DType::i32, {4, 2}, slots); }
Tensor random_rows(int64_t width, uint64_t seed, double low = -1, double high = 1) {
  return random_tensor(DType::f32, {1, tokens, width}, seed, low, high);
}

struct Rule {
  const char* name;
  int64_t queries, keys, states, d, e;
  bool decay_of_keys, beta_for_all;
};
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name << rule.d; }

class CudaLinearAttention : public testing::TestWithParam<Rule> {};

TEST_P(CudaLinearAttention, EqualsTheReference) {
  const Rule& c = GetParam();
  const std::string rule = c.name;
  const Tensor state = random_tensor(DType::f32, {5, c.states, c.d, c.e}, 9);
  Tensor decay, beta;
  if (rule.starts_with("gated")) decay = random_rows(c.states * (c.decay_of_keys ? c.d : 1), 4, -1, 0);
  if (rule.ends_with("delta")) beta = random_rows(c.beta_for_all ? 1 : c.states, 5, 0, 1);
  expect_reference("plait.LinearAttention",
                   attributes({{"update_rule", rule}, {"q_num_heads", c.queries}, {"kv_num_heads", c.states}}),
                   {state, random_rows(c.queries * c.d, 1), random_rows(c.keys * c.d, 2, -0.4, 0.4),
                    random_rows(c.states * c.e, 3), segments_of_tokens(), slots_of_segments(), decay, beta},
                   {{DType::f32, state.shape()}, {DType::f32, {1, tokens, std::max(c.queries, c.states) * c.e}}},
                   1e-4, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(All, CudaLinearAttention,
                         testing::Values(Rule{"gated_delta", 4, 2, 2, 20, 70, false, false},
                                         Rule{"linear", 3, 3, 3, 7, 5, false, false},
                                         Rule{"gated", 2, 2, 2, 16, 16, true, false},
                                         Rule{"delta", 1, 1, 1, 33, 129, false, false},
                                         Rule{"gated_delta", 2, 2, 6, 8, 40, false, true},
                                         Rule{"gated_delta", 2, 4, 4, 9, 64, true, false}));

TEST(CudaCausalConv, EqualsTheReference) {
  for (int64_t taps : {1, 2, 4, 9})
    for (int64_t c : {5, 300}) {
      SCOPED_TRACE(cat(taps, " taps, ", c, " channels"));
      const Tensor state = random_tensor(DType::f32, {5, taps - 1, c}, 1);
      for (const char* activation : {"none", "silu"})
        for (DType dtype : float_types) {
          const Tensor w = random_tensor(dtype, {taps, c}, 2),
                       bias = dtype == DType::f16 ? Tensor() : random_tensor(dtype, {c}, 3);
          expect_reference("plait.CausalConv", attributes({{"activation", std::string(activation)}}),
                           {state, random_rows(c, 4), w, segments_of_tokens(), slots_of_segments(), bias},
                           {{DType::f32, state.shape()}, {DType::f32, {1, tokens, c}}}, 1e-5, 1e-5);
        }
    }
}

TEST(CudaCausalConv, ASlotOutOfRangeIsReported) {
  KernelStatus status;
  run_on_cuda(
      "plait.CausalConv", {},
      {random_tensor(DType::f32, {2, 3, 8}, 1), random_tensor(DType::f32, {1, 1, 8}, 2),
       random_tensor(DType::f32, {4, 8}, 3), tensor(DType::i32, {1, 1}, {0}), tensor(DType::i32, {1, 2}, {0, 2})},
      {{DType::f32, {2, 3, 8}}, {DType::f32, {1, 1, 8}}}, {}, 0, &status);
  EXPECT_EQ(std::tuple(status.code, status.operand, status.value), std::tuple(KernelCode::index_out_of_range, 4, 2));
}

}  // namespace
}  // namespace plait::test
