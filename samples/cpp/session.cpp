// Any graph, tensors in, tensors out: an encoder's states of a row of tokens. Inputs are i64 [1, s]: tokens for the first, ones
// for a mask, zeros for what else there is. Usage: session MODEL.onnx OUTPUT TOKEN...
#include <cstdio>
#include <cstdlib>

#include "plait.hpp"

int main(int count, char** words) {
  if (count < 4) return 2;
  plait_api::Model model(words[1]);
  plait_api::Session session(model);
  const auto tokens = static_cast<size_t>(count - 3);
  std::vector<plait_api::Tensor> values;
  std::vector<std::pair<std::string, const plait_api::Tensor*>> inputs;
  const std::vector<plait_operand> operands = session.inputs();
  values.reserve(operands.size());
  for (const plait_operand& operand : operands) {
    const std::string name = operand.name;
    std::vector<int64_t> row(tokens, name.find("mask") != std::string::npos ? 1 : 0);
    for (size_t i = 0; values.empty() && i < tokens; ++i) row[i] = std::atoll(words[3 + i]);
    values.push_back(
        plait_api::Tensor::copy(PLAIT_I64, {1, count - 3}, row.data(), static_cast<int64_t>(8 * tokens)));
    inputs.emplace_back(name, &values.back());
  }
  const std::vector<plait_api::Tensor> results = session.run(inputs, {words[2]});
  const plait_view view = results[0].view();
  for (int32_t i = 0; i < view.rank; ++i) std::printf("%lld ", static_cast<long long>(view.dims[i]));
  std::printf("%.3f\n", static_cast<const float*>(view.data)[0]);
}
