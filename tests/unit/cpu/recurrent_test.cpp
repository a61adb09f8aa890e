// plait.CausalConv and plait.LinearAttention: the reference against the ONNX ops that they stand for, the fast
// kernels against the reference, and a segment's bits in any company and any cut. The same over packed rows, and
// their gradients.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

struct RecurrentCase {
  std::string rule = "gated_delta";
  int64_t queries = 4, keys = 2, states = 2, d = 20, e = 70;
  bool decay_each = false, beta_for_all = false;
};

std::vector<RecurrentCase> recurrent_cases() {
  return {{},
          {.rule = "linear", .queries = 3, .keys = 3, .states = 3, .d = 7, .e = 5},
          {.rule = "gated", .queries = 2, .keys = 2, .states = 2, .d = 16, .e = 16, .decay_each = true},
          {.rule = "delta", .queries = 1, .keys = 1, .states = 1, .d = 33, .e = 129},
          {.rule = "gated_delta", .queries = 2, .keys = 2, .states = 6, .d = 8, .e = 40, .beta_for_all = true},
          {.rule = "gated_delta", .queries = 2, .keys = 4, .states = 4, .d = 9, .e = 64, .decay_each = true},
          {.rule = "gated_delta", .queries = 3, .keys = 1, .states = 1, .d = 40, .e = 33, .decay_each = true}};
}

/// Tokens [begin, end) of a segment.
struct Part {
  int32_t segment;
  int64_t begin, end;
};

/// Operands of the tokens of some segments: what a token has depends only on its segment and place.
class Rows {
 public:
  explicit Rows(const std::vector<Part>& parts) {
    for (const Part& part : parts)
      for (int64_t i = part.begin; i < part.end; ++i) tokens_.push_back({part.segment, i, i + 1});
  }

  int64_t count() const { return static_cast<int64_t>(tokens_.size()); }
  Tensor operand(uint64_t which, int64_t width, double low = -1, double high = 1) const {
    Tensor out(DType::f32, {1, count(), width});
    for (int64_t i = 0; i < count(); ++i) {
      const Part& token = tokens_[static_cast<size_t>(i)];
      auto seed =
          which * 1000000 + static_cast<uint64_t>(token.segment + 1) * 1000 + static_cast<uint64_t>(token.begin);
      Tensor row = random_tensor(DType::f32, {width}, seed, low, high);
      std::memcpy(out.data() + i * row.bytes(), row.data(), static_cast<size_t>(row.bytes()));
    }
    return out;
  }
  Tensor segments() const {
    Tensor out(DType::i32, {1, count()});
    for (int64_t i = 0; i < count(); ++i) out.as<int32_t>()[i] = tokens_[static_cast<size_t>(i)].segment;
    return out;
  }

 private:
  std::vector<Part> tokens_;
};

Tensor slots(const std::vector<std::pair<int32_t, int32_t>>& pairs) {
  Tensor out(DType::i32, {static_cast<int64_t>(pairs.size()), 2});
  for (size_t i = 0; i < pairs.size(); ++i)
    out.as<int32_t>()[2 * i] = pairs[i].first, out.as<int32_t>()[2 * i + 1] = pairs[i].second;
  return out;
}

Attributes attention_attributes(const RecurrentCase& c) {
  return attributes({{"update_rule", c.rule}, {"q_num_heads", c.queries}, {"kv_num_heads", c.states}});
}

/// query, key, value, then decay and beta where the rule has them.
std::vector<Tensor> attention_operands(const RecurrentCase& c, const Rows& rows) {
  std::vector<Tensor> out{rows.operand(1, c.queries * c.d), rows.operand(2, c.keys * c.d, -0.4, 0.4),
                          rows.operand(3, c.states * c.e), Tensor(), Tensor()};
  if (c.rule.starts_with("gated")) out[3] = rows.operand(4, c.states * (c.decay_each ? c.d : 1), -1, 0);
  if (c.rule.ends_with("delta")) out[4] = rows.operand(5, c.beta_for_all ? 1 : c.states, 0, 1);
  return out;
}

/// state, y.
std::vector<Tensor> attend(const RecurrentCase& c, const std::vector<Part>& parts, const Tensor& state,
                           const Tensor& where, int threads, std::string_view isa) {
  Rows rows(parts);
  std::vector<Tensor> x = attention_operands(c, rows);
  return run_op(kernels(), "plait.LinearAttention", attention_attributes(c),
                {state, x[0], x[1], x[2], rows.segments(), where, x[3], x[4]},
                {{DType::f32, state.shape()}, {DType::f32, {1, rows.count(), std::max(c.queries, c.states) * c.e}}},
                threads, nullptr, isa);
}

constexpr int64_t channels = 300, taps = 4;

std::vector<Tensor> convolve(const std::vector<Part>& parts, const Tensor& state, const Tensor& where, int threads,
                             std::string_view isa, const char* activation = "silu") {
  Rows rows(parts);
  return run_op(kernels(), "plait.CausalConv", attributes({{"activation", std::string(activation)}}),
                {state, rows.operand(1, channels), random_tensor(DType::f32, {taps, channels}, 2), rows.segments(),
                 where, random_tensor(DType::f32, {channels}, 3)},
                {{DType::f32, state.shape()}, {DType::f32, {1, rows.count(), channels}}}, threads, nullptr, isa);
}

/// Tokens of three segments and of none; slot 0 to 4, another to itself, zeros to 2, and one that is not kept.
const std::vector<Part> mixture{{2, 0, 1}, {0, 5, 17}, {-1, 0, 2}, {3, 0, 3}, {1, 9, 10}};
const std::vector<std::pair<int32_t, int32_t>> places{{0, 4}, {1, 1}, {-1, 2}, {3, -1}};

TEST(CpuLinearAttention, EqualsReference) {
  for (const RecurrentCase& c : recurrent_cases()) {
    Tensor state = random_tensor(DType::f32, {6, c.states, c.d, c.e}, 9);
    auto expected = attend(c, mixture, state, slots(places), 1, "reference");
    for (const std::string& isa : whole_isas()) {
      for (int threads : {1, 2}) {
        SCOPED_TRACE(cat(isa, " ", c.rule, " d ", c.d, " e ", c.e, " threads ", threads));
        auto actual = attend(c, mixture, state, slots(places), threads, isa);
        // Sums of 2 d products of numbers around 1, over up to 12 tokens.
        expect_near(actual[0], expected[0], 1e-5, 1e-5);
        expect_near(actual[1], expected[1], 1e-5, 2e-5);
      }
    }
  }
}

TEST(CpuCausalConv, EqualsReference) {
  for (const char* activation : {"none", "silu"}) {
    Tensor state = random_tensor(DType::f32, {6, taps - 1, channels}, 9);
    auto expected = convolve(mixture, state, slots(places), 1, "reference", activation);
    for (const std::string& isa : whole_isas()) {
      auto actual = convolve(mixture, state, slots(places), 2, isa, activation);
      expect_equal_bits(actual[0], expected[0]);
      expect_near(actual[1], expected[1], 2e-6, 1e-6);
    }
  }
}

/// Row `index` along the first axis but one (tokens), or the first (slots).
std::string bits(const Tensor& tensor, int64_t index, bool of_tokens) {
  const int64_t size = tensor.bytes() / tensor.shape()[of_tokens ? 1 : 0];
  return std::string(reinterpret_cast<const char*>(tensor.data()) + index * size, static_cast<size_t>(size));
}

/// Only segment 0 of the mixture, and cut in two after each of its tokens: the same bits as in company.
template <class Run>
void expect_any_cut(const Tensor& state, const Run& run) {
  auto company = run(mixture, state, slots(places));
  for (int64_t cut = 5; cut <= 17; ++cut) {
    Tensor now = state;
    std::string rows;
    for (const Part& part : {Part{0, 5, cut}, Part{0, cut, 17}}) {
      if (part.begin == part.end) continue;
      const bool first = part.begin == 5;
      auto out = run({part}, now, slots({{first ? 0 : 5, part.end == 17 ? 4 : 5}}));
      now = out[0];
      for (int64_t i = 0; i < part.end - part.begin; ++i) rows += bits(out[1], i, true);
    }
    std::string expected;
    for (int64_t i = 0; i < 12; ++i) expected += bits(company[1], 1 + i, true);
    EXPECT_EQ(rows, expected) << "cut at " << cut;
    EXPECT_EQ(bits(now, 4, false), bits(company[0], 4, false)) << "cut at " << cut;
  }
  for (int64_t slot : {0, 3, 5})  // nothing is written there
    EXPECT_EQ(bits(company[0], slot, false), bits(state, slot, false)) << slot;
}

TEST(CpuLinearAttention, BitsInAnyCompanyAndCut) {
  for (const RecurrentCase& c : recurrent_cases()) {
    Tensor state = random_tensor(DType::f32, {6, c.states, c.d, c.e}, 9);
    for (const std::string& isa : with_reference(whole_isas())) {
      SCOPED_TRACE(cat(isa, " ", c.rule));
      expect_any_cut(state, [&](const std::vector<Part>& parts, const Tensor& before, const Tensor& where) {
        return attend(c, parts, before, where, 2, isa);
      });
    }
  }
}

TEST(CpuCausalConv, BitsInAnyCompanyAndCut) {
  Tensor state = random_tensor(DType::f32, {6, taps - 1, channels}, 9);
  for (const std::string& isa : with_reference(whole_isas())) {
    SCOPED_TRACE(isa);
    expect_any_cut(state, [&](const std::vector<Part>& parts, const Tensor& before, const Tensor& where) {
      return convolve(parts, before, where, 2, isa);
    });
  }
}

/// One segment that begins with a state is what ONNX's ops make of it.
TEST(ReferenceSlots, AreTheOpsOfTheStandard) {
  const std::vector<Part> parts{{0, 0, 7}};
  Rows rows(parts);
  for (const RecurrentCase& c : recurrent_cases()) {
    SCOPED_TRACE(c.rule);
    Tensor state = random_tensor(DType::f32, {1, c.states, c.d, c.e}, 9);
    auto got = attend(c, parts, state, slots({{0, 0}}), 1, "reference");
    std::vector<Tensor> x = attention_operands(c, rows);
    auto expected =
        run_op(kernels(), "LinearAttention", attention_attributes(c), {x[0], x[1], x[2], state, x[3], x[4]},
               {{DType::f32, got[1].shape()}, {DType::f32, state.shape()}}, 1, nullptr, "reference");
    expect_near(got[1], expected[0], 1e-6, 2e-6);  // the state is rounded to f32 after each token
    expect_near(got[0], expected[1], 1e-6, 2e-6);
  }
  Tensor state = random_tensor(DType::f32, {1, taps - 1, channels}, 9);
  auto got = convolve(parts, state, slots({{0, 0}}), 1, "reference");
  auto transposed = [](const Tensor& tensor, int64_t n, int64_t m, const Shape& shape) {
    Tensor out(DType::f32, shape);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j) out.as<float>()[j * n + i] = tensor.as<float>()[i * m + j];
    return out;
  };
  auto expected = run_op(
      kernels(), "CausalConvWithState", attributes({{"activation", std::string("silu")}}),
      {transposed(rows.operand(1, channels), 7, channels, {1, channels, 7}),
       transposed(random_tensor(DType::f32, {taps, channels}, 2), taps, channels, {channels, 1, taps}),
       random_tensor(DType::f32, {channels}, 3), transposed(state, taps - 1, channels, {1, channels, taps - 1})},
      {{DType::f32, {1, channels, 7}}, {DType::f32, {1, channels, taps - 1}}}, 1, nullptr, "reference");
  expect_equal_bits(transposed(expected[0], channels, 7, {1, 7, channels}), got[1]);
  expect_equal_bits(transposed(expected[1], channels, taps - 1, {1, taps - 1, channels}), got[0]);
}

/// Segments of a token, of less than a chunk (32), of chunks to the token and of more, with tokens of none between.
const std::vector<Part> packed{{2, 0, 1},  {0, 5, 35}, {-1, 0, 2}, {3, 0, 3},  {1, 9, 10},
                               {4, 0, 64}, {5, 0, 65}, {6, 0, 71}, {-1, 2, 3}, {7, 0, 203}};

/// q, k, v, segments, decay?, beta?: decays are between `weakest` and `strongest`, keys at most of length 1, as the
/// delta rule has them: others would grow the state, and what is off in it, from token to token.
std::vector<Tensor> packed_operands(const RecurrentCase& c, const Rows& rows, double strongest = -1,
                                    double weakest = 0) {
  std::vector<Tensor> x = attention_operands(c, rows);
  const double longest = 1 / std::sqrt(static_cast<double>(c.d));
  x[1] = rows.operand(2, c.keys * c.d, -longest, longest);
  if (x[3].present()) x[3] = rows.operand(4, c.states * (c.decay_each ? c.d : 1), strongest, weakest);
  for (size_t k : {3, 4})  // what the rule does not ask for has no effect
    if (!x[k].present()) x[k] = rows.operand(k + 1, c.states);
  return {x[0], x[1], x[2], rows.segments(), x[3], x[4]};
}

int64_t width_of(const RecurrentCase& c) { return std::max(c.queries, c.states) * c.e; }

std::vector<OutputType> gradients_of(const std::vector<Tensor>& operands) {
  std::vector<OutputType> out;
  for (size_t k : {0, 1, 2, 4, 5}) out.push_back({operands[k].dtype(), operands[k].shape()});
  return out;
}

void expect_packed_reference(const RecurrentCase& c, const Rows& rows, const std::vector<Tensor>& operands,
                             double off) {
  SCOPED_TRACE(cat(c.rule, " d ", c.d, " e ", c.e));
  expect_reference("plait.PackedLinearAttention", attention_attributes(c), operands,
                   {{DType::f32, {1, rows.count(), width_of(c)}}}, 1e-5, off, 2);
  std::vector<Tensor> with_slope = operands;
  with_slope.insert(with_slope.begin(), rows.operand(6, width_of(c)));
  expect_reference("plait.PackedLinearAttentionBack", attention_attributes(c), with_slope, gradients_of(operands),
                   1e-4, 4 * off, 2);
}

TEST(Packed, LinearAttentionEqualsReference) {
  const Rows rows(packed);
  for (const RecurrentCase& c : recurrent_cases()) expect_packed_reference(c, rows, packed_operands(c, rows), 5e-5);
}

/// Of some tokens nothing is left after a few others: their factors are zero, or numbers whose products are. And of
/// none anything fades, or states grow a little.
TEST(Packed, DecaysOfAnyStrength) {
  const Rows rows(packed);
  for (const bool each : {false, true}) {
    const RecurrentCase c{
        .rule = "gated_delta", .queries = 2, .keys = 2, .states = 2, .d = 12, .e = 18, .decay_each = each};
    for (const double strongest : {-1e4, -200.0, -30.0})
      expect_packed_reference(c, rows, packed_operands(c, rows, strongest), 5e-5);
    expect_packed_reference(c, rows, packed_operands(c, rows, 0, 0), 5e-5);
    expect_packed_reference(c, rows, packed_operands(c, rows, -0.01, 0.01), 1e-4);
    std::vector<Tensor> operands = packed_operands(c, rows);
    for (int64_t i = 0; i < operands[4].elements(); i += 7)
      operands[4].as<float>()[i] = -std::numeric_limits<float>::infinity();
    expect_packed_reference(c, rows, operands, 5e-5);
  }
}

/// What a document gives does not depend on who else is in its row, nor on where it begins.
TEST(Packed, DocumentsHaveTheBitsThatTheyHaveAlone) {
  const Rows rows(packed), own({packed.back()});
  const int64_t n = own.count(), first = rows.count() - n;
  for (const RecurrentCase& c : recurrent_cases())
    for (const std::string& isa : whole_isas()) {
      auto run = [&](const Rows& tokens) {
        std::vector<Tensor> operands = packed_operands(c, tokens);
        std::vector<Tensor> out = run_op(kernels(), "plait.PackedLinearAttention", attention_attributes(c), operands,
                                         {{DType::f32, {1, tokens.count(), width_of(c)}}}, 2, nullptr, isa);
        const std::vector<OutputType> gradients = gradients_of(operands);
        operands.insert(operands.begin(), tokens.operand(6, width_of(c)));
        for (Tensor& one : run_op(kernels(), "plait.PackedLinearAttentionBack", attention_attributes(c), operands,
                                  gradients, 2, nullptr, isa))
          out.push_back(std::move(one));
        return out;
      };
      const auto company = run(rows), alone = run(own);
      for (size_t k = 0; k < alone.size(); ++k)
        for (int64_t i = 0; i < n; ++i)
          ASSERT_EQ(bits(company[k], first + i, true), bits(alone[k], i, true)) << isa << " " << c.rule << " " << k;
    }
}

TEST(Packed, ConvolutionsEqualReference) {
  const Rows rows(packed);
  const Tensor x = rows.operand(1, channels), w = random_tensor(DType::f32, {taps, channels}, 2),
               bias = random_tensor(DType::f32, {channels}, 3), dy = rows.operand(4, channels);
  for (const char* activation : {"none", "silu"})
    for (const bool biased : {false, true}) {
      const Attributes how = attributes({{"activation", std::string(activation)}});
      const Tensor shift = biased ? bias : Tensor();
      expect_reference("plait.PackedConv", how, {x, w, rows.segments(), shift}, {{DType::f32, x.shape()}}, 1e-5, 1e-6,
                       2);
      std::vector<OutputType> gradients{{DType::f32, x.shape()}, {DType::f32, w.shape()}, {DType::f32, bias.shape()}};
      expect_reference("plait.PackedConvBack", how, {dy, x, w, rows.segments(), shift}, gradients, 1e-5, 1e-5, 2);
    }
}

/// However many threads there are, and whichever of them are wanted.
TEST(Packed, GradientsHaveTheSameBits) {
  const RecurrentCase c{
      .rule = "gated_delta", .queries = 2, .keys = 2, .states = 6, .d = 16, .e = 130, .beta_for_all = true};
  const Rows rows(packed);
  std::vector<Tensor> operands = packed_operands(c, rows);
  std::vector<OutputType> gradients = gradients_of(operands);
  operands.insert(operands.begin(), rows.operand(6, width_of(c)));
  auto back = [&](int threads) {
    return run_op(kernels(), "plait.PackedLinearAttentionBack", attention_attributes(c), operands, gradients,
                  threads);
  };
  const auto alone = back(1), shared = back(3);
  for (size_t k = 0; k < alone.size(); ++k) expect_equal_bits(alone[k], shared[k]);
  for (size_t k = 0; k < alone.size(); ++k) {
    const OutputType wanted = std::exchange(gradients[k], OutputType{});
    const auto others = back(2);
    for (size_t i = 0; i < alone.size(); ++i)
      if (i != k) expect_equal_bits(alone[i], others[i]);
    gradients[k] = wanted;
  }
}

TEST(Slots, WhatIsOutOfRangeIsRefused) {
  RecurrentCase c;
  Tensor state = random_tensor(DType::f32, {6, c.states, c.d, c.e}, 9);
  for (const std::string& isa : with_reference(whole_isas())) {
    auto status = [&](const std::vector<Part>& parts, const std::vector<std::pair<int32_t, int32_t>>& where) {
      Rows rows(parts);
      std::vector<Tensor> x = attention_operands(c, rows);
      KernelStatus out;
      run_op(kernels(), "plait.LinearAttention", attention_attributes(c),
             {state, x[0], x[1], x[2], rows.segments(), slots(where), x[3], x[4]},
             {{DType::f32, state.shape()}, {DType::f32, {1, rows.count(), c.queries * c.e}}}, 1, &out, isa);
      return out;
    };
    EXPECT_EQ(status({{0, 0, 2}}, {{0, 6}}).code, KernelCode::index_out_of_range) << isa;
    EXPECT_EQ(status({{0, 0, 2}}, {{-2, 1}}).operand, 5) << isa;
    EXPECT_EQ(status({{1, 0, 2}}, {{0, 1}}).operand, 4) << isa;
    EXPECT_EQ(status({{0, 0, 2}, {1, 0, 1}, {0, 2, 3}}, {{0, 1}, {2, 3}}).code, KernelCode::bad_value) << isa;
    EXPECT_EQ(status({{0, 0, 2}}, {{0, 1}}).code, KernelCode::ok) << isa;
  }
}

}  // namespace
}  // namespace plait::test
