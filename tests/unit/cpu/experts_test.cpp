// Mixtures of experts: against the reference in every form, and bit for bit the same token in any company.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

enum class Biases { none, all };

struct Form {
  DType weights = DType::f32;
  bool gated = true;
  Biases biases = Biases::none;
  DType zeros = DType::none;  ///< of quantised weights
  int64_t h = 48, f = 80, length = 16;
  Attributes attributes;
};

std::string form_name(const Form& form) {
  return cat(dtype_name(form.weights), form.gated ? " gated" : "", form.biases == Biases::all ? " biases" : "",
             " zeros ", dtype_name(form.zeros), " h ", form.h, " f ", form.f);
}

constexpr int64_t experts = 7, most_choices = 3, width = 40;

/// Tokens with their experts and shares, drawn apart for each token: token i is the same in any number of them.
struct Tokens {
  Tensor x, numbers, shares;
  Tokens(const Form& form, int64_t begin, int64_t count, int64_t choices) {
    x = rows(random_tensor(DType::f32, {300, form.h}, 1), begin, begin + count);
    shares = Tensor(DType::f32, {count, choices});
    numbers = Tensor(DType::i64, {count, choices});
    for (int64_t i = 0; i < count; ++i)
      for (int64_t k = 0; k < choices; ++k) {
        const int64_t token = begin + i;
        // Expert 5 is never chosen, and 0 by most.
        numbers.as<int64_t>()[i * choices + k] = (token % 5 == 0 ? token * 3 + k : k) % 5;
        shares.as<float>()[i * choices + k] = 0.1f + 0.01f * static_cast<float>((token * 7 + k * 13) % 50);
      }
  }
};

/// The operands after the first three.
std::vector<Tensor> weights_of(const Form& form, int64_t shift = 0) {
  std::vector<Tensor> out(12);
  for (size_t which = 0; which < 3; ++which) {
    if (which == 1 && !form.gated) continue;
    const int64_t n = which == 2 ? width : form.f, k = which == 2 ? form.f : form.h;
    const uint64_t seed = 10 * (which + 1);
    const bool blocked = !is_float(form.weights);
    if (blocked) {
      const int64_t blocks = (k + form.length - 1) / form.length;
      const float range = static_cast<float>(1 << dtype_bits(form.weights));
      Tensor codes(form.weights, {experts, n, blocks, form.length});
      std::mt19937_64 engine(seed);
      for (int64_t i = 0; i < codes.bytes(); ++i) codes.as<uint8_t>()[i] = static_cast<uint8_t>(engine());
      out[which] = shifted(codes, shift);
      out[6 + 2 * which] =
          shifted(random_tensor(DType::f32, {experts, n, blocks}, seed + 1, -1 / range, 1 / range), shift);
      if (form.zeros != DType::none) {
        Tensor zeros(form.zeros, {experts, n, blocks});
        for (int64_t i = 0; i < zeros.elements(); ++i)
          zeros.as<uint8_t>()[i] = static_cast<uint8_t>(engine() % static_cast<uint64_t>(range));
        out[7 + 2 * which] = zeros;
      }
    } else {
      out[which] = shifted(random_tensor(form.weights, {experts, n, k}, seed, -0.2, 0.2), shift);
    }
    if (form.biases == Biases::all) out[3 + which] = random_tensor(DType::f32, {experts, n}, seed + 5);
  }
  while (!out.back().present()) out.pop_back();
  return out;
}

std::vector<Tensor> expert_operands(const Tokens& tokens, const std::vector<Tensor>& weights) {
  std::vector<Tensor> out{tokens.x, tokens.numbers, tokens.shares};
  out.insert(out.end(), weights.begin(), weights.end());
  return out;
}

Attributes gpt_oss() { return attributes({{"alpha", 1.702}, {"beta", 1.0}, {"limit", 0.7}}); }

std::vector<Form> forms() {
  std::vector<Form> out{{}};
  out.push_back({.biases = Biases::all, .attributes = gpt_oss()});
  out.push_back(
      {.gated = false, .biases = Biases::all, .attributes = attributes({{"activation", std::string("gelu_tanh")}})});
  out.push_back({.gated = false, .h = 33, .f = 17, .attributes = attributes({{"activation", std::string("relu")}})});
  out.push_back({.weights = DType::bf16, .h = 65, .f = 130});
  out.push_back({.weights = DType::f16, .attributes = attributes({{"activation", std::string("gelu")}})});
  for (DType dtype : {DType::u2, DType::u4, DType::u8}) {
    const int64_t half = 1 << (dtype_bits(dtype) - 1);
    Attributes zero = attributes({{"zero", half}, {"down_zero", half}});
    out.push_back({.weights = dtype, .attributes = zero});
    out.push_back(
        {.weights = dtype, .biases = Biases::all, .zeros = DType::u8, .length = 32, .attributes = gpt_oss()});
    out.push_back({.weights = dtype, .h = 64, .f = 64, .length = 64, .attributes = zero});  // one block a row
  }
  return out;
}

/// Of x and the shares; of weights of f32, and of biases where all have one, too.
std::vector<OutputType> expert_gradients(const std::vector<Tensor>& all, const Form& form) {
  std::vector<OutputType> out{{DType::f32, all[0].shape()}, {DType::f32, all[2].shape()}};
  if (form.weights != DType::f32 || !form.gated) return out;
  for (size_t k = 3; k < (form.biases == Biases::all ? 9 : 6); ++k) out.push_back({DType::f32, all[k].shape()});
  return out;
}

TEST(CpuExperts, GradientsEqualReference) {
  for (const Form& form : forms())
    for (const auto& [tokens, choices] : {std::pair<int64_t, int64_t>{1, 1}, {7, most_choices}, {150, 1}}) {
      SCOPED_TRACE(cat(form_name(form), " tokens ", tokens, " choices ", choices));
      std::vector<Tensor> all = expert_operands(Tokens(form, 0, tokens, choices), weights_of(form));
      const std::vector<OutputType> gradients = expert_gradients(all, form);
      all.insert(all.begin(), random_tensor(DType::f32, {tokens, width}, 77));
      expect_reference("plait.ExpertsBack", form.attributes, all, gradients, 2e-4, 5e-4, 2);
      for (const std::string& isa : whole_isas()) {
        const auto alone = run_op(kernels(), "plait.ExpertsBack", form.attributes, all, gradients, 1, nullptr, isa),
                   shared = run_op(kernels(), "plait.ExpertsBack", form.attributes, all, gradients, 3, nullptr, isa);
        for (size_t k = 0; k < alone.size(); ++k) expect_equal_bits(alone[k], shared[k]);
      }
      if (testing::Test::HasFailure()) return;
    }
}

/// Products of bf16 numbers: within what rounding costs, of the whole.
TEST(CpuExperts, RoundedGradientsAreNearTheReference) {
  const Form form{.weights = DType::bf16, .h = 64, .f = 128, .attributes = attributes({{"round_x", int64_t{1}}})};
  std::vector<Tensor> all = expert_operands(Tokens(form, 0, 90, 2), weights_of(form));
  const std::vector<OutputType> gradients = expert_gradients(all, form);
  all.insert(all.begin(), random_tensor(DType::f32, {90, width}, 77));
  const auto expected =
      run_op(kernels(), "plait.ExpertsBack", form.attributes, all, gradients, 1, nullptr, "reference");
  for (const std::string& isa : isas()) {
    if (isa == "avx2" || isa == "avx512") continue;
    SCOPED_TRACE(isa);
    const auto got = run_op(kernels(), "plait.ExpertsBack", form.attributes, all, gradients, 2, nullptr, isa);
    for (size_t k = 0; k < got.size(); ++k) {
      double norm = 0, off = 0;
      for (int64_t i = 0; i < got[k].elements(); ++i) {
        norm += std::pow(element(expected[k], i), 2);
        off += std::pow(element(got[k], i) - element(expected[k], i), 2);
      }
      EXPECT_LE(std::sqrt(off), 1e-2 * std::sqrt(norm)) << "result " << k;
      EXPECT_GT(off, 0);
    }
  }
}

TEST(CpuExperts, EqualReference) {
  for (const Form& form : forms())
    for (int64_t choices : {int64_t{1}, most_choices})
      for (int64_t tokens : {1, 2, 7, 40, 150}) {
        SCOPED_TRACE(cat(form_name(form), " tokens ", tokens, " choices ", choices));
        expect_reference("plait.Experts", form.attributes,
                         expert_operands(Tokens(form, 0, tokens, choices), weights_of(form)),
                         {{DType::f32, {tokens, width}}}, 1e-4, 1e-4, 2);
        if (testing::Test::HasFailure()) return;
      }
}

TEST(CpuExperts, ATokenHasTheSameBitsInAnyCompany) {
  std::vector<Form> all = forms();
  all.push_back({.weights = DType::bf16, .attributes = attributes({{"round_x", int64_t{1}}})});
  for (const Form& form : all) {
    const std::vector<Tensor> weights = weights_of(form);
    for (const std::string& isa : isas()) {
      const bool rounds = isa != "avx2" && isa != "avx512";
      if (rounds && !form.attributes.has("round_x")) continue;
      auto run = [&](int64_t begin, int64_t count, int threads, const std::vector<Tensor>& with) {
        return run_op(kernels(), "plait.Experts", form.attributes,
                      expert_operands(Tokens(form, begin, count, most_choices), with), {{DType::f32, {count, width}}},
                      threads, nullptr, isa)[0];
      };
      constexpr int64_t shown = 20;
      std::vector<Tensor> alone;
      for (int64_t token = 0; token < shown; ++token) alone.push_back(run(token, 1, 1, weights));
      for (int64_t count : {2, 5, 16, 100, 200})
        for (int threads : {1, 3}) {
          SCOPED_TRACE(cat(form_name(form), " on ", isa, ", tokens ", count, ", threads ", threads));
          const int64_t begin = std::min<int64_t>(count % 7, shown - 1);
          Tensor together = run(begin, count, threads, weights_of(form, count % 3));
          for (int64_t token = begin; token < std::min(begin + count, shown); ++token)
            expect_equal_bits(rows(together, token - begin, token - begin + 1), alone[static_cast<size_t>(token)]);
          if (testing::Test::HasFailure()) return;
        }
    }
  }
}

TEST(CpuExperts, NoTokensAndNoChoices) {
  const Form form;
  for (const std::string& isa : whole_isas()) {
    run_op(kernels(), "plait.Experts", {}, expert_operands(Tokens(form, 0, 0, 2), weights_of(form)),
           {{DType::f32, {0, width}}}, 2, nullptr, isa);
    Tensor y = run_op(kernels(), "plait.Experts", {}, expert_operands(Tokens(form, 0, 2, 0), weights_of(form)),
                      {{DType::f32, {2, width}}}, 2, nullptr, isa)[0];
    for (int64_t i = 0; i < y.elements(); ++i) EXPECT_EQ(y.as<float>()[i], 0);
  }
}

TEST(CpuExperts, RefuseWhatDoesNotFit) {
  const Form form{.weights = DType::u4};
  const Tokens tokens(form, 0, 2, 2);
  for (const std::string& isa : with_reference(whole_isas())) {
    SCOPED_TRACE(isa);
    auto status_of = [&](std::vector<Tensor> inputs) {
      KernelStatus status;
      run_op(kernels(), "plait.Experts", {}, inputs, {{DType::f32, {2, width}}}, 1, &status, isa);
      return status;
    };
    std::vector<Tensor> good = expert_operands(tokens, weights_of(form));
    EXPECT_EQ(status_of(good).code, KernelCode::ok);
    for (int64_t number : {int64_t{-1}, experts}) {
      std::vector<Tensor> inputs = good;
      inputs[1] = Tensor::of<int64_t>(DType::i64, {2, 2}, std::vector<int64_t>{0, 1, number, 2});
      KernelStatus status = status_of(inputs);
      EXPECT_EQ(status.code, KernelCode::index_out_of_range);
      EXPECT_EQ(status.operand, 1);
      EXPECT_EQ(status.value, number);
    }
    for (size_t operand : {4u, 5u, 9u, 13u}) {  // one expert fewer
      std::vector<Tensor> inputs = good;
      inputs[operand] = rows(inputs[operand], 0, experts - 1);
      EXPECT_EQ(status_of(inputs).code, KernelCode::bad_value) << operand;
    }
  }
}

}  // namespace
}  // namespace plait::test
