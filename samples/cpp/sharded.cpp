// A model that is spread over ranks, which are threads of this process. Usage: sharded MODEL_DIRECTORY MESH PROMPT, with a mesh as
// tensor=2
#include <cstdio>

#include "plait.hpp"

int main(int count, char** words) {
  if (count != 4) return 2;
  plait_api::Model model(words[1]);
  plait_api::Generator generator(model, plait_api::Options().set("mesh", std::string_view(words[2])));
  std::puts(
      generator.submit(words[3], plait_api::Options().set("max_tokens", 16).set("temperature", "0")).text().c_str());
  std::fprintf(stderr, "%s\n", generator.ranks().c_str());
}
