#pragma once
// Chat templates with what they must give.
#include <ostream>
#include <vector>

namespace plait::text_test {

struct ChatCase {
  const char* name;
  const char* chat_template;
  const char* messages;
  const char* tools;
  const char* variables;
  bool add_generation_prompt;
  const char* expected;

  friend void PrintTo(const ChatCase& test, std::ostream* out) { *out << test.name; }
};

std::vector<ChatCase> chat_cases();

}  // namespace plait::text_test
