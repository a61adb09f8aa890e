// The smallest program that generates text: c++ -std=c++17 stream.cpp -lplait -o stream && ./stream MODEL_DIRECTORY PROMPT
#include <cstdio>

#include "plait.hpp"

int main(int count, char** words) try {
  if (count != 3) return 2;
  plait_api::Model model(words[1]);
  plait_api::Generator generator(model);
  plait_api::Request request = generator.submit(words[2], plait_api::Options().set("max_tokens", 64));
  plait_event event{};
  while (request.next(event) && event.kind != PLAIT_EVENT_END) {
    std::fputs(event.text, stdout);
    std::fflush(stdout);
  }
  std::puts("");
} catch (const plait_api::Failure& failure) {
  std::fprintf(stderr, "%s %s\n", failure.what(), failure.hint().c_str());
  return 1;
}
