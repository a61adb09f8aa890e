// LSTM and GRU against the reference: directions, layouts, states, few and many sequences, and more steps than one product takes.
#include "tests/unit/cpu/cpu_test.h"

namespace plait::test {
namespace {

struct Sizes {
  int64_t steps, batch, inputs, hidden;
};

/// With gradients of all results, or of the steps' only; of every operand.
void expect_reference_gradients(const std::string& op, Attributes how, std::vector<Tensor> inputs,
                                const std::vector<OutputType>& results) {
  how.set("layer", op);
  const std::vector<Tensor> operands = inputs;
  std::vector<OutputType> outputs;
  for (size_t k : {0, 1, 2, 3, 5, 6})
    if (k < operands.size() && operands[k].present()) outputs.push_back({DType::f32, operands[k].shape()});
    else outputs.push_back({DType::none, {}});
  inputs.resize(8);
  for (size_t k = 0; k < results.size(); ++k) {
    inputs.push_back(random_tensor(DType::f32, results[k].shape, 10 + k));
    // Weights' gradients are sums of up to 120 terms.
    if (k == 0 || k + 1 == results.size()) expect_reference("plait.RecurrentBack", how, inputs, outputs, 2e-4, 2e-3, 2);
  }
}

TEST(CpuLayers, EqualReference) {
  for (const Sizes& n :
       {Sizes{1, 1, 7, 5}, Sizes{9, 3, 20, 33}, Sizes{40, 1, 17, 16}, Sizes{3, 40, 12, 24}, Sizes{0, 2, 3, 4}})
    for (const std::string op : {"LSTM", "GRU"})
      for (const std::string direction : {"forward", "reverse", "bidirectional"})
        for (int64_t layout : {0, 1})
          for (int64_t extra : {0, 1}) {  // bias and states; linear_before_reset
            SCOPED_TRACE(cat(op, " ", direction, " layout ", layout, " extra ", extra, " steps ", n.steps, " batch ",
                             n.batch));
            const int64_t d = direction == "bidirectional" ? 2 : 1, rows = (op == "LSTM" ? 4 : 3) * n.hidden;
            Attributes how = attributes({{"direction", direction}, {"layout", layout}, {"hidden_size", n.hidden}});
            if (op == "GRU") how.set("linear_before_reset", extra);
            const Shape state = layout ? Shape{n.batch, d, n.hidden} : Shape{d, n.batch, n.hidden};
            std::vector<Tensor> inputs{
                random_tensor(DType::f32,
                              layout ? Shape{n.batch, n.steps, n.inputs} : Shape{n.steps, n.batch, n.inputs}, 1),
                random_tensor(DType::f32, {d, rows, n.inputs}, 2, -0.5, 0.5),
                random_tensor(DType::f32, {d, rows, n.hidden}, 3, -0.5, 0.5)};
            if (extra) {
              inputs.push_back(random_tensor(DType::f32, {d, 2 * rows}, 4));
              inputs.emplace_back();
              inputs.push_back(random_tensor(DType::f32, state, 5));
              if (op == "LSTM") inputs.push_back(random_tensor(DType::f32, state, 6));
            }
            std::vector<OutputType> outputs{
                {DType::f32, layout ? Shape{n.batch, n.steps, d, n.hidden} : Shape{n.steps, d, n.batch, n.hidden}},
                {DType::f32, state}};
            if (op == "LSTM") outputs.push_back({DType::f32, state});
            // Sums of up to 40 steps feed each other.
            expect_reference(op, how, inputs, outputs, 1e-4, 1e-4, 2);
            expect_reference_gradients(op, how, inputs, outputs);
          }
}

/// Products of 4 MB at once: 1,048,576 / (4 * 64) steps.
TEST(CpuLayers, EqualReferenceAcrossBlocksOfSteps) {
  const int64_t steps = 4200;
  for (const std::string direction : {"forward", "reverse"})
    expect_reference(
        "LSTM", attributes({{"direction", direction}}),
        {random_tensor(DType::f32, {steps, 1, 3}, 1), random_tensor(DType::f32, {1, 256, 3}, 2, -0.3, 0.3),
         random_tensor(DType::f32, {1, 256, 64}, 3, -0.1, 0.1)},
        {{DType::f32, {steps, 1, 1, 64}}, {DType::f32, {1, 1, 64}}, {DType::f32, {1, 1, 64}}}, 1e-4, 1e-4, 2);
}

}  // namespace
}  // namespace plait::test
