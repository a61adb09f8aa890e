// Three steps of training on one text, whose loss falls. Usage: three_steps MODEL_DIRECTORY TEXT
#include <cstdio>

#include "plait.hpp"

int main(int count, char** words) {
  if (count != 3) return 2;
  plait_api::Model model(words[1]);
  plait_api::Trainer trainer(
      model, plait_api::Options().set("optimizer", "sgd").set("lr", "0.5").set("schedule", "constant"));
  const std::vector<int32_t> ids = plait_api::Tokenizer(model).encode(words[2]);
  const auto tokens = static_cast<int64_t>(ids.size());
  const plait_api::Tensor document = plait_api::Tensor::copy(PLAIT_I32, {1, tokens}, ids.data(), 4 * tokens);
  for (int i = 0; i < 3; ++i) std::printf("%.3f\n", trainer.step(document).loss);
}
