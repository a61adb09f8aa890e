// Tokens chosen on CUDA devices.
#include <numbers>

#include "core/base/token_weight.h"
#include "tests/unit/cuda/cuda_test.h"

namespace plait::test {
namespace {

/// Inputs of plait.Sample.
struct Choices {
  Tensor logits;
  std::vector<ChoiceSettings> settings;
  std::vector<std::pair<int32_t, LogitEdit>> edits;

  std::vector<Tensor> inputs() const {
    Tensor words(DType::i64, {1, static_cast<int64_t>(settings.size()), choice_words});
    std::memcpy(words.data(), settings.data(), static_cast<size_t>(words.bytes()));
    Tensor changes(DType::i32, {1, static_cast<int64_t>(edits.size()), edit_words});
    for (size_t i = 0; i < edits.size(); ++i) {
      int32_t* const at = changes.as<int32_t>() + static_cast<int64_t>(i) * edit_words;
      at[0] = edits[i].first;
      std::memcpy(at + 1, &edits[i].second, sizeof(LogitEdit));
    }
    return {logits, words, changes};
  }
  std::vector<int32_t> reference() const {
    const OutputType tokens{DType::i32, {1, logits.shape()[1]}};
    const Tensor out = run_op(kernels(), "plait.Sample", {}, inputs(), {tokens}, 1, nullptr, "reference")[0];
    return {out.as<int32_t>(), out.as<int32_t>() + out.elements()};
  }
  /// The kernel's tokens, which must be the reference's in any order of threads.
  void expect_equal() const {
    expect_reference("plait.Sample", {}, inputs(), {{DType::i32, {1, logits.shape()[1]}}}, 0, 0);
  }
};

/// Settings that make use of all cuts, by number.
ChoiceSettings some_settings(int i) {
  constexpr double temperatures[] = {0.3, 1, 7}, top_ps[] = {1, 0.95, 0.4, 1e-9};
  ChoiceSettings out;
  out.per_unit = std::numbers::log2e / temperatures[i % 3];
  out.top_p = top_ps[i / 3 % 4];
  out.top_k = i % 5 == 0 ? 0 : i % 5 == 1 ? 1 : 1 << (i % 5);
  out.floor = i % 7 == 0 ? -1.5 * temperatures[i % 3] : -INFINITY;
  out.uniform = (i * 37 % 101) / 101.0;
  out.repetition = 1.3;
  return out;
}

TEST(CudaSample, EqualsTheReference) {
  for (int64_t v : {1, 31, 33, 700, 1600}) {
    SCOPED_TRACE(v);
    constexpr int rows = 24;
    Choices all{random_tensor(DType::f32, {1, rows, v}, 5, -12, 12), {}, {}};
    for (int i = 0; i < rows; ++i) all.settings.push_back(some_settings(i + static_cast<int>(v)));
    all.settings[1].top_k = no_choice;
    all.settings[2].per_unit = 0;
    for (int32_t k = 0; k < 40 && k < v; ++k)
      all.edits.push_back({k % rows, {k, k % 2, k % 3 * 0.5F, k % 5 == 0 ? -INFINITY : static_cast<float>(k % 4)}});
    all.edits.push_back({-1, {}});
    all.edits.push_back({3, {static_cast<int32_t>(v), 1, 0, 5}});  // no such token
    all.expect_equal();
  }
}

TEST(CudaSample, TakesTheFirstOfEqualLogits) {
  Choices all{Tensor(DType::f32, {1, 8, 900}), {}, {}};
  for (int i = 0; i < 8; ++i) {
    for (int64_t k = 0; k < 900; ++k) all.logits.as<float>()[i * 900 + k] = k % 3 ? 0.0F : -0.0F;  // equal, too
    ChoiceSettings one = some_settings(i);
    one.uniform = i / 8.0;
    one.floor = -INFINITY;
    one.top_k = i % 2 ? 100 : 0;
    one.top_p = 1;
    all.settings.push_back(one);
  }
  const std::vector<int32_t> expected = all.reference();
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(expected[static_cast<size_t>(i)], static_cast<int>((i % 2 ? 100 : 900) * i / 8.0));
  all.expect_equal();
}

TEST(CudaSample, ReportsLogitsThatAreNotFinite) {
  Choices all{random_tensor(DType::f32, {1, 4, 40}, 6), {{}, {}, some_settings(1), some_settings(2)}, {}};
  float* const logits = all.logits.as<float>();
  logits[7] = std::nanf("");
  logits[40 + 7] = INFINITY;
  for (int64_t k = 0; k < 40; ++k) logits[80 + k] = -INFINITY;
  logits[120 + 3] = -std::nanf("");
  EXPECT_EQ(all.reference(), (std::vector<int32_t>{nan_in_logits, no_finite_logit, no_finite_logit, nan_in_logits}));
  all.expect_equal();
}

}  // namespace
}  // namespace plait::test
