// Recurrences over packed documents against PyTorch: results and every gradient, of each set of kernels
// (tests/fixtures/recurrent_goldens.py).
#include <nlohmann/json.hpp>

#include "core/base/safetensors.h"
#include "tests/unit/support/kernel_test.h"
#include "tests/unit/support/models.h"

namespace plait::test {
namespace {

class RecurrentGoldens : public testing::TestWithParam<std::string> {
 protected:
  Tensor array(const std::string& name) const { return file_.tensor(GetParam() + "/" + name); }
  bool has(const std::string& name) const { return file_.has(GetParam() + "/" + name); }

  Attributes attributes() const {
    Attributes out;
    const nlohmann::json said = nlohmann::json::parse(file_.metadata().at(GetParam()));
    for (const auto& [name, value] : said.items()) {
      if (value.is_string()) out.set(name, value.get<std::string>());
      else out.set(name, value.get<int64_t>());
    }
    return out;
  }

  /// Of documents in sequence, with tokens of none at the end.
  Tensor segments() const {
    const Shape shape{1, array("y").shape()[1]};
    std::vector<int32_t> all;
    const nlohmann::json lengths = nlohmann::json::parse(file_.metadata().at("lengths"));
    for (const int64_t length : lengths)
      all.insert(all.end(), static_cast<size_t>(length), all.empty() ? 0 : all.back() + 1);
    all.resize(static_cast<size_t>(shape.elements()), -1);
    return Tensor::of<int32_t>(DType::i32, shape, all);
  }

  /// The op of these operands, and its gradients; "" stands for segments.
  void expect(const std::string& op, const std::vector<std::string>& names) {
    std::vector<Tensor> operands, gradients;
    std::vector<OutputType> back;
    for (const std::string& name : names) {
      operands.push_back(name.empty() ? segments() : has(name) ? array(name) : Tensor());
      if (name.empty()) continue;
      gradients.push_back(has(name) ? array("d" + name) : Tensor());
      back.push_back({gradients.back().dtype(), gradients.back().shape()});
    }
    std::vector<Tensor> with_dy{array("dy")};
    with_dy.insert(with_dy.end(), operands.begin(), operands.end());
    for (const std::string& isa : with_reference(whole_isas())) {
      SCOPED_TRACE(isa);
      const Tensor y = run_op(World::get().kernels, op, attributes(), operands, {{DType::f32, array("y").shape()}}, 2,
                              nullptr, isa)[0];
      expect_close(y, array("y"), "y");
      const auto got = run_op(World::get().kernels, op + "Back", attributes(), with_dy, back, 2, nullptr, isa);
      for (size_t k = 0; k < got.size(); ++k)
        if (got[k].present()) expect_close(got[k], gradients[k], cat("gradient ", k));
    }
  }

  const SafeTensors file_ = SafeTensors::open(PLAIT_FIXTURES "/recurrent/recurrent.safetensors");

 private:
  /// Sums of f32 over up to 70 tokens.
  static void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
    double norm = 0, off = 0;
    for (int64_t i = 0; i < got.elements(); ++i) {
      norm += std::pow(element(expected, i), 2);
      off += std::pow(element(got, i) - element(expected, i), 2);
    }
    EXPECT_LE(std::sqrt(off), 2e-6 * std::sqrt(norm)) << what;
  }
};

TEST_P(RecurrentGoldens, ResultsAndGradients) {
  if (has("x")) expect("plait.PackedConv", {"x", "w", "", "bias"});
  else expect("plait.PackedLinearAttention", {"q", "k", "v", "", "decay", "beta"});
}

INSTANTIATE_TEST_SUITE_P(PyTorch, RecurrentGoldens,
                         testing::Values("conv_none", "conv_silu", "linear", "gated", "delta", "gated_delta",
                                         "gated_delta_each"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace plait::test
