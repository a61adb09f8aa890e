// Several prompts at once: they share the steps. Usage: batch MODEL_DIRECTORY PROMPT...
#include <cstdio>

#include "plait.hpp"

int main(int count, char** words) {
  if (count < 3) return 2;
  plait_api::Model model(words[1]);
  plait_api::Generator generator(model);
  plait_api::Options options;
  options.set("max_tokens", 16).set("temperature", "0");
  std::vector<plait_api::Request> requests;
  for (int i = 2; i < count; ++i) requests.push_back(generator.submit(words[i], options));
  for (const plait_api::Request& request : requests) std::puts(request.text().c_str());
}
