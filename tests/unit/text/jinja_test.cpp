// Templates of Python's and jinja2's constructs, drawn by make_jinja_cases.py, with what jinja2 makes of them.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/base/error.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

using Json = nlohmann::ordered_json;

/// nullopt: an error.
std::optional<std::string> rendered(const std::string& chat_template, std::string_view variables) {
  const Tokenizer tokenizer =
      Tokenizer::from_bytes({.tokenizer_json = gemma().json(), .chat_template = chat_template});
  try {
    return tokenizer.render_chat({.messages = "[]", .variables = variables});
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == Code::invalid_argument || error.code() == Code::bad_model) << error.what();
    return std::nullopt;
  }
}

TEST(Jinja, RendersAsJinja2Does) {
  std::ifstream file(PLAIT_SOURCE_DIR "/tests/unit/text/jinja_cases.jsonl");
  std::string variables, line;
  ASSERT_TRUE(std::getline(file, variables));
  int count = 0;
  for (; std::getline(file, line); ++count) {
    const Json json = Json::parse(line);
    const std::string text = json[0];
    const std::optional<std::string> expected =
        json[1].is_null() ? std::nullopt : std::optional<std::string>(json[1]);
    EXPECT_EQ(rendered(text, variables), expected) << text;
  }
  EXPECT_EQ(count, 2000);
}

/// message_cases.jsonl is of make_message_cases.py.
TEST(ChatMessages, AreReadAsTransformersDoes) {
  std::ifstream file(PLAIT_SOURCE_DIR "/tests/unit/text/message_cases.jsonl");
  std::string line;
  int count = 0;
  for (; std::getline(file, line); ++count) {
    const Json json = Json::parse(line);
    const std::string text = json[0], messages = json[1].dump(), tools = json[2].is_null() ? "" : json[2].dump();
    const Tokenizer tokenizer = Tokenizer::from_bytes({.tokenizer_json = gemma().json(), .chat_template = text});
    EXPECT_EQ(tokenizer.render_chat({.messages = messages, .tools = tools, .add_generation_prompt = false}),
              json[3].get<std::string>())
        << messages << "\n"
        << text;
  }
  EXPECT_EQ(count, 57);
}

TEST(Jinja, WhatIsNotThereIsRefusedByName) {
  const auto message = [](const std::string& text) -> std::string {
    const Tokenizer tokenizer = Tokenizer::from_bytes({.tokenizer_json = gemma().json(), .chat_template = text});
    try {
      return tokenizer.render_chat({.messages = "[]"});
    } catch (const Error& error) {
      return error.message();
    }
  };
  for (const auto& [text, name] : {std::pair{"{{ [1]|random }}", "'random'"},
                                   {"{{ [1]|pprint }}", "'pprint'"},
                                   {"{{ 'a'|striptags }}", "'striptags'"},
                                   {"{{ 'a'|urlize }}", "'urlize'"},
                                   {"{{ lipsum() }}", "'lipsum'"},
                                   {"{% include 'a' %}", "'include'"},
                                   {"{% import 'a' as b %}", "'import'"},
                                   {"{% extends 'a' %}", "'extends'"},
                                   {"{{ 'a'.encode() }}", "'encode'"},
                                   {"{% autoescape true %}{% endautoescape %}", "'autoescape'"},
                                   {"{{ 10 ** 40 }}", "127 bits"},
                                   {"{{ self.a() }}", "'self'"},
                                   {"{{ 'a'.upper }}", "builtin_function_or_method"},
                                   {"{{ (-8) ** 0.5 }}", "complex"},
                                   {"{{ '\\N{DASH}' }}", "by its name"}})
    EXPECT_NE(message(text).find(name), std::string::npos) << text << ": " << message(text);
  // Unless a condition stands before it, as in jinja2.
  EXPECT_EQ(message("{% if false %}{{ [1]|random }}{% endif %}ok"), "ok");
}

}  // namespace
}  // namespace plait::text_test
