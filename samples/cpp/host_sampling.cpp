// The program chooses the tokens itself, here the likeliest one that is even. Usage: host_sampling MODEL_DIRECTORY PROMPT
#include <cstdio>

#include "plait.hpp"

static int32_t choose(const float* logits, int64_t count) {
  int32_t best = 0;
  for (int32_t token = 2; token < count; token += 2) {
    if (logits[token] > logits[best]) best = token;
  }
  return best;
}

int main(int count, char** words) {
  if (count != 3) return 2;
  plait_api::Model model(words[1]);
  plait_api::Generator generator(model);
  plait_api::Request request =
      generator.submit(words[2], plait_api::Options().set("host_sampling", "true").set("max_tokens", 16));
  plait_event event{};
  while (request.next(event) && event.kind != PLAIT_EVENT_END) {
    if (event.kind == PLAIT_EVENT_LOGITS) request.push(choose(event.logits, event.logits_count));
    std::fputs(event.text, stdout);
  }
  std::puts("");
}
