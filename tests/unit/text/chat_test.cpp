// Chat templates: rendering, which template is used, and errors that say what is wrong.
#include <gtest/gtest.h>
#include <pthread.h>

#include <ctime>
#include <functional>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/text/chat_cases.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

Tokenizer with_config(const std::string& config) {
  return Tokenizer::from_bytes({.tokenizer_json = gemma().json(), .tokenizer_config = config});
}

Tokenizer with_template(std::string_view chat_template) {
  return Tokenizer::from_bytes({.tokenizer_json = gemma().json(),
                                .tokenizer_config = R"({"bos_token":"<s>","eos_token":{"content":"</s>"}})",
                                .chat_template = chat_template});
}

std::string render(std::string_view chat_template, std::string_view messages = "[]", std::string_view variables = "") {
  return with_template(chat_template).render_chat({.messages = messages, .variables = variables});
}

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::ok, "no error");
}

class Templates : public testing::TestWithParam<ChatCase> {};

TEST_P(Templates, RenderAsTransformersDoes) {
  const ChatCase& test = GetParam();
  EXPECT_EQ(with_template(test.chat_template)
                .render_chat({test.messages, test.tools, test.variables, test.add_generation_prompt}),
            test.expected);
}

INSTANTIATE_TEST_SUITE_P(Cases, Templates, testing::ValuesIn(chat_cases()),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(Chat, TheResultEncodesWithoutASecondBos) {
  Tokenizer tokenizer = with_template("{{ bos_token }}{{ messages[0].content }}");
  std::string prompt = tokenizer.render_chat({.messages = R"([{"role":"user","content":"a"}])"});
  EXPECT_EQ(tokenizer.encode(prompt, false), (std::vector<int32_t>{1, tokenizer.piece_to_id("a").value()}));
}

TEST(Chat, TokensOfTheConfigAreVariables) {
  std::string config = R"({"bos_token":{"content":"B"},"eos_token":"E","pad_token":null,"add_bos_token":true,)"
                       R"("additional_special_tokens":["x",{"content":"y"}],)"
                       R"("extra_special_tokens":{"image_token":"I"},)"
                       R"("chat_template":"{{ bos_token }}{{ eos_token }}{{ image_token }})"
                       R"({{ additional_special_tokens }}[{{ pad_token }}{{ add_bos_token }}]"})";
  EXPECT_EQ(with_config(config).render_chat({.messages = "[]"}), "BEI['x', 'y'][]");
}

TEST(Chat, NamedTemplates) {
  Tokenizer tokenizer = with_config(
      R"({"chat_template":[{"name":"tool_use","template":"tools"},{"name":"default","template":"plain"}]})");
  EXPECT_EQ(tokenizer.render_chat({.messages = "[]"}), "plain");
  EXPECT_EQ(tokenizer.render_chat({.messages = "[]", .tools = R"([{"type":"function"}])"}), "tools");
  Tokenizer only_default = with_config(R"({"chat_template":[{"name":"default","template":"plain"}]})");
  EXPECT_EQ(only_default.render_chat({.messages = "[]", .tools = "[]"}), "plain");

  Tokenizer other = with_config(R"({"chat_template":[{"name":"rag","template":"x"}]})");
  Error none = error_of([&] { other.render_chat({.messages = "[]"}); });
  EXPECT_EQ(none.code(), Code::unsupported);
  EXPECT_NE(none.message().find("rag"), std::string::npos);
  EXPECT_EQ(error_of([] { with_config(R"({"chat_template":[{"name":"x"}]})"); }).code(), Code::bad_model);
  EXPECT_EQ(error_of([] { with_config(R"({"chat_template":7})"); }).code(), Code::bad_model);
}

TEST(Chat, TemplatesAndTokensOfOtherFiles) {
  const std::string json = gemma().json();
  const auto made = [&](std::string_view config, std::string_view map, std::string_view tool_use = "") {
    return Tokenizer::from_bytes({.tokenizer_json = json,
                                  .tokenizer_config = config,
                                  .chat_template = "{{ bos_token }}{{ eos_token }}",
                                  .special_tokens_map = map,
                                  .tool_use_template = tool_use});
  };
  // additional_chat_templates/tool_use.jinja
  const Tokenizer tools = made("", "", "{{ tools|length }} tools");
  EXPECT_EQ(tools.render_chat({.messages = "[]"}), "");
  EXPECT_EQ(tools.render_chat({.messages = "[]", .tools = R"([{"type":"function"}])"}), "1 tools");
  // As in transformers, the map counts unless tokenizer_config.json has all added tokens.
  const char* const map = R"({"bos_token":{"content":"M"},"eos_token":"N"})";
  EXPECT_EQ(made(R"({"bos_token":"C"})", map).render_chat({.messages = "[]"}), "MN");
  EXPECT_EQ(made(R"({"bos_token":"C","added_tokens_decoder":{}})", map).render_chat({.messages = "[]"}), "C");

  // Tokens that only tokenizer_config.json has.
  const int32_t next = made("", "").vocab_size();
  const std::string added = cat(R"({"added_tokens_decoder":{")", next, R"(":{"content":"<|new|>","special":true}}})");
  const Tokenizer more = made(added, "");
  EXPECT_EQ(more.vocab_size(), next + 1);
  EXPECT_EQ(more.encode("<|new|>", false), std::vector<int32_t>{next});
  EXPECT_TRUE(more.is_special(next));
  EXPECT_EQ(more.decode(std::vector<int32_t>{next}), "");
  EXPECT_EQ(error_of([&] { made(R"({"added_tokens_decoder":{"3":{"content":"<|new|>"}}})", ""); }).code(),
            Code::bad_model);
}

TEST(Chat, AModelWithoutATemplateSaysSo) {
  Tokenizer tokenizer = make(gemma());
  EXPECT_FALSE(tokenizer.has_chat_template());
  Error error = error_of([&] { tokenizer.render_chat({.messages = "[]"}); });
  EXPECT_EQ(error.code(), Code::unsupported);
  EXPECT_NE(error.message().find("no chat template"), std::string::npos);
  EXPECT_NE(error.hint().find("chat_template.jinja"), std::string::npos);
}

TEST(Chat, ABrokenTemplateSpoilsOnlyChats) {
  Tokenizer tokenizer = with_template("{% if %}");
  EXPECT_EQ(tokenizer.encode("a", false).size(), 1u);
  for (int round = 0; round < 2; round++) {
    Error error = error_of([&] { tokenizer.render_chat({.messages = "[]"}); });
    EXPECT_EQ(error.code(), Code::bad_model);
    EXPECT_NE(error.message().find(":1"), std::string::npos) << "names the line: " << error.message();
  }
}

TEST(Chat, RaiseExceptionIsToldInTheTemplatesWords) {
  Error error = error_of([] {
    render("{% for m in [1] %}{% if m %}{{ raise_exception('roles must\talternate') }}{% endif %}{% endfor %}");
  });
  EXPECT_EQ(error.code(), Code::invalid_argument);
  EXPECT_NE(error.message().find("roles must\\talternate"), std::string::npos);
  EXPECT_EQ(error.message().find("in default"), std::string::npos);
}

TEST(Chat, FaultsAtRunTime) {
  for (const char* text : {"{{ missing.field }}", "{{ messages | no_such_filter }}", "{{ 'a' + 1 }}",
                           "{{ messages.no_such() }}", "{{ missing | tojson }}", "{% include 'x' %}"}) {
    Code code = error_of([&] { render(text); }).code();
    EXPECT_TRUE(code == Code::invalid_argument || code == Code::bad_model) << text;
  }
}

TEST(Chat, ArgumentsThatAreNotTheRightJson) {
  Tokenizer tokenizer = with_template("x");
  auto code = [&](ChatRequest request) { return error_of([&] { tokenizer.render_chat(request); }).code(); };
  EXPECT_EQ(code({.messages = ""}), Code::invalid_argument);
  EXPECT_EQ(code({.messages = "{}"}), Code::invalid_argument);
  EXPECT_EQ(code({.messages = "[1,"}), Code::invalid_argument);
  EXPECT_EQ(code({.messages = "\xFF"}), Code::invalid_argument);
  EXPECT_EQ(code({.messages = "[]", .tools = "{}"}), Code::invalid_argument);
  EXPECT_EQ(code({.messages = "[]", .variables = "[]"}), Code::invalid_argument);
  EXPECT_EQ(code({.messages = "[]", .tools = "null", .variables = "{}"}), Code::ok);
  EXPECT_EQ(code({.messages = std::string(100000, '[')}), Code::invalid_argument);
}

TEST(Chat, VariablesReplaceOthers) {
  EXPECT_EQ(render("{{ bos_token }}{{ mine }}", "[]", R"({"bos_token":"other","mine":[1]})"), "other[1]");
}

TEST(Chat, NulAndTextBeyondTheBmpPassThrough) {
  std::string expected("a\0b \U0001F600", 8);
  EXPECT_EQ(render("{{ messages[0].content }}", R"([{"content":"a\u0000b \ud83d\ude00"}])"), expected);
}

TEST(Chat, StrftimeNow) {
  char year[8];
  std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::strftime(year, sizeof year, "%Y", &parts);
  EXPECT_EQ(render("{{ strftime_now('%Y') }}").size(), 4u);
  EXPECT_GE(render("{{ strftime_now('%Y') }}"), year);
  EXPECT_EQ(render("{{ strftime_now('') }}|{{ strftime_now('%%') }}"), "|%");
}

TEST(Chat, DeepValuesAreAnErrorNotACrash) {
  std::string nest = "{% set ns = namespace(x=[]) %}{% for i in range(2000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  EXPECT_EQ(error_of([&] { render(nest + "{{ ns.x | tojson }}"); }).code(), Code::invalid_argument);
}

std::string repeat(std::string_view text, int count) {
  std::string out;
  for (; count > 0; count--) out += text;
  return out;
}

/// Runs `body` with the 256 KiB of stack that a host's thread may have.
void on_small_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread;
  auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &body), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(Chat, HostileTemplatesAreErrorsOrText) {
  on_small_stack([] {
    EXPECT_EQ(render("{{ 1" + repeat("+1", 120000) + " }}"), "120001");
    EXPECT_EQ(render("{{ " + repeat("-", 250000) + "1 }}"), "1");
    for (const std::string& text :
         {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}" + std::string(),
          repeat("{% if true %}", 10000) + repeat("{% endif %}", 10000), "{{ " + repeat("(", 5000) + " }}",
          std::string("{% for a in range(10000) %}{% for b in range(10000) %}{% endfor %}{% endfor %}"),
          repeat("x", 300000)}) {
      Code code = error_of([&] { render(text); }).code();
      // A busy machine may reach the limit of time before that of instructions.
      EXPECT_TRUE(code == Code::invalid_argument || code == Code::bad_model || code == Code::timeout) << text.substr(0, 60);
    }
    std::string nest = "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    EXPECT_EQ(render(nest + "done"), "done");
  });
}

}  // namespace
}  // namespace plait::text_test
