// Grammars over tokens: what masks allow, places of errors, limits, and copies.
#include "core/text/constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

bool allowed(const NextTokens& next, int32_t id) {
  if (!next.forced.empty()) return next.forced[0] == id;
  const auto word = static_cast<size_t>(id) / 32;
  return word < next.mask.size() && (next.mask[word] >> (id % 32) & 1);
}

std::vector<int32_t> all_allowed(const Tokenizer& tokenizer, const NextTokens& next) {
  std::vector<int32_t> out;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (allowed(next, id)) out.push_back(id);
  return out;
}

/// A random text that the grammar allows, by bytes of its tokens; nullopt if it has no end in `most` tokens.
std::optional<std::string> random_output(const Tokenizer& tokenizer, const Grammar& grammar, std::mt19937& random,
                                         int most = 200) {
  Constraint state = grammar.start();
  std::string out;
  for (int i = 0; i < most; ++i) {
    const NextTokens next = state.next();
    if (next.ended || (next.may_end && random() % 4 == 0)) return out;
    const std::vector<int32_t> ids = all_allowed(tokenizer, next);
    EXPECT_FALSE(ids.empty()) << quote(out);
    if (ids.empty()) return std::nullopt;
    const int32_t id = ids[random() % ids.size()];
    out += tokenizer.token_bytes(id);
    if (state.commit(id)) return out;
  }
  return std::nullopt;
}

std::string error_of(GrammarKind kind, std::string_view text) {
  const Tokenizer tokenizer = make(byte_level());
  try {
    Grammar::compile(tokenizer, kind, text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument) << error.what();
    return error.what();
  }
  return "no error";
}

class EachTokenizer : public testing::TestWithParam<Named> {};

TEST_P(EachTokenizer, BytesOfTokensAreTheirTextWithinATextX) {
  const Tokenizer tokenizer = make(GetParam().json);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string bytes = tokenizer.token_bytes(id);
    if (!is_utf8(bytes) || tokenizer.is_special(id) || bytes.empty()) continue;
    const std::optional<int32_t> a = tokenizer.piece_to_id("a");
    if (!a) continue;
    const std::string alone = tokenizer.decode(std::vector<int32_t>{*a});
    const std::string both = tokenizer.decode(std::vector<int32_t>{*a, id, *a});
    EXPECT_EQ(both.substr(0, alone.size() + bytes.size()), alone + bytes) << id << " " << tokenizer.id_to_piece(id);
  }
}

TEST_P(EachTokenizer, OutputsMatchAnExpression) {
  const Tokenizer tokenizer = make(GetParam().json);
  std::shared_ptr<const Grammar> grammar;
  try {
    grammar = Grammar::compile(tokenizer, GrammarKind::regex, "[ab]{1,5}( [ab]{1,5}){0,2}");
  } catch (const Error& error) {  // the vocabulary lacks the letters
    ASSERT_EQ(error.code(), Code::unsupported) << error.what();
    return;
  }
  std::mt19937 random(1);
  int whole = 0;
  for (int round = 0; round < 20; ++round) {
    std::optional<std::string> text;
    try {
      text = random_output(tokenizer, *grammar, random);
    } catch (const Error& error) {  // the vocabulary lacks the letters
      ASSERT_EQ(error.code(), Code::unsupported) << error.what();
      return;
    }
    if (!text) continue;
    ++whole;
    EXPECT_EQ(text->find_first_not_of("ab "), std::string::npos) << quote(*text);
    EXPECT_FALSE(text->empty());
  }
  EXPECT_GT(whole, 0);
}

INSTANTIATE_TEST_SUITE_P(All, EachTokenizer, testing::ValuesIn(all_tokenizers()),
                         [](const auto& info) { return info.param.name; });

TEST(Constraint, ChoicesAreExact) {
  const Tokenizer tokenizer = make(byte_level());
  const auto grammar = Grammar::compile(tokenizer, GrammarKind::choices, R"(["yes", "no", "no \"way\""])");
  std::mt19937 random(2);
  std::set<std::string> seen;
  for (int round = 0; round < 60; ++round) seen.insert(random_output(tokenizer, *grammar, random).value());
  EXPECT_EQ(seen, (std::set<std::string>{"yes", "no", "no \"way\""}));
}

TEST(Constraint, WhatIsDeterminedIsForcedAndTheSameAsByMasks) {
  const Tokenizer tokenizer = make(byte_level());
  const auto grammar = Grammar::compile(tokenizer, GrammarKind::lark, R"(start: "Answer: " /[xy]/ " done")");
  Constraint state = grammar->start();
  std::string text;
  int forced = 0;
  bool ended = false;
  while (!ended) {
    const NextTokens next = state.next();
    ASSERT_FALSE(next.ended);
    forced += !next.forced.empty();
    const int32_t id = all_allowed(tokenizer, next).front();
    if (!next.forced.empty()) {
      EXPECT_THROW(state.fork().commit(id == 0 ? 1 : 0), Error);
    }
    text += tokenizer.token_bytes(id);
    ended = state.commit(id);
  }
  EXPECT_EQ(text, "Answer: x done");
  EXPECT_GT(forced, 8);
  EXPECT_TRUE(state.next().ended);
}

TEST(Constraint, ForksAreIndependent) {
  const Tokenizer tokenizer = make(byte_level());
  const auto grammar = Grammar::compile(tokenizer, GrammarKind::regex, "(ab|ba)+c");
  Constraint one = grammar->start();
  const int32_t a = *tokenizer.piece_to_id("a"), b = *tokenizer.piece_to_id("b");
  Constraint two = one.fork();
  one.next(), two.next();
  one.commit(a), two.commit(b);
  EXPECT_TRUE(allowed(one.next(), b) && !allowed(one.next(), a));
  EXPECT_TRUE(allowed(two.next(), a) && !allowed(two.next(), b));
  EXPECT_THROW(one.commit(a), Error);
}

TEST(Constraint, EndsOnlyWhereTheGrammarDoes) {
  const Tokenizer tokenizer = make(byte_level());
  Constraint state = Grammar::compile(tokenizer, GrammarKind::regex, "ab*")->start();
  EXPECT_FALSE(state.next().may_end);
  EXPECT_FALSE(state.commit(*tokenizer.piece_to_id("a")));
  EXPECT_TRUE(state.next().may_end && !state.next().ended);
  // A special token is text of no grammar that does not name it.
  EXPECT_FALSE(allowed(state.next(), *tokenizer.piece_to_id("<|end|>")));
}

TEST(Constraint, ErrorsNameThePlaceInTheSchema) {
  const std::string deep = error_of(GrammarKind::json_schema, R"({"type": "object", "properties": {
      "a": {"type": "string"}, "b": {"type": "array", "items": {"type": "strin"}}}})");
  EXPECT_NE(deep.find("at properties.b.items cannot be followed"), std::string::npos) << deep;
  const std::string in_definition = error_of(GrammarKind::json_schema, R"({"$ref": "#/$defs/x",
      "$defs": {"x": {"anyOf": [{"type": "null"}, {"pattern": "(", "type": "string"}]}}})");
  EXPECT_NE(in_definition.find("at $defs.x.anyOf[1] "), std::string::npos) << in_definition;
  EXPECT_NE(
      error_of(GrammarKind::json_schema, R"({"type": "object", "properties": {"a": {"not": {"type": "null"}}}})")
          .find("properties.a"),
      std::string::npos);
  EXPECT_NE(error_of(GrammarKind::json_schema, "{").find("is not JSON"), std::string::npos);
  EXPECT_NE(error_of(GrammarKind::json_schema, "5").find("neither an object nor true"), std::string::npos);
  EXPECT_NE(error_of(GrammarKind::regex, "a(").find("cannot be followed"), std::string::npos);
  EXPECT_NE(error_of(GrammarKind::lark, "begin: \"a\"").find("cannot be followed"), std::string::npos);
  EXPECT_NE(error_of(GrammarKind::choices, "[]").find("is empty"), std::string::npos);
  EXPECT_NE(error_of(GrammarKind::choices, "[1]").find("list of choices"), std::string::npos);
  EXPECT_NE(error_of(GrammarKind::json_schema, std::string(300000, ' ')).find("at most 262144"), std::string::npos);
}

/// What a grammar may ask for ends in bounded time with an error, or works.
TEST(Constraint, FormatsThatJsonSchemaLacksAreRemarks) {
  const auto with = [](std::string_view format) {
    return error_of(GrammarKind::json_schema,
                    cat(R"({"properties": {"a": {"items": {"anyOf": [{"type": "string", "format": ")", format, R"("}]}}}})"));
  };
  EXPECT_EQ(with("int32"), "no error");
  EXPECT_EQ(with("AWS::S3::Bucket.Name"), "no error");
  EXPECT_EQ(with("uuid"), "no error");
  EXPECT_NE(with("idn-hostname"), "no error");  // it would bound the text, and is not followed
  // What is not a schema keeps what has that name.
  const Tokenizer tokenizer = make(byte_level());
  const auto grammar = Grammar::compile(tokenizer, GrammarKind::json_schema, R"({"const": {"format": "x"}})");
  std::mt19937 random(3);
  EXPECT_THAT(random_output(tokenizer, *grammar, random).value_or(""), testing::HasSubstr("\"format\""));
}

TEST(Constraint, HostileGrammarsEnd) {
  const Tokenizer tokenizer = make(byte_level());
  const auto repeated = [](std::string_view text, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += text;
    return out;
  };
  const std::pair<GrammarKind, std::string> cases[] = {
      {GrammarKind::regex, "((((a{1,900}){1,900}){1,900}){1,900}){1,900}b"},
      {GrammarKind::regex, repeated("(", 60000) + "a" + repeated(")", 60000)},
      {GrammarKind::regex, repeated("a?", 60000)},
      {GrammarKind::regex, repeated("(a|b)*c?", 20000)},
      {GrammarKind::regex, repeated("(", 200) + "a" + repeated("*)*b", 200).substr(1)},
      {GrammarKind::regex, "(.*a){1,40}.{20}"},
      {GrammarKind::lark, "start: " + repeated("(", 60000) + "\"a\"" + repeated(")", 60000)},
      {GrammarKind::lark, "start: start start | \"a\""},
      {GrammarKind::lark, "start: a\na: a"},
      {GrammarKind::json_schema, repeated("{\"items\":", 20000) + "{}" + repeated("}", 20000)},
      {GrammarKind::json_schema, R"({"$ref": "#"})"},
      {GrammarKind::json_schema, R"({"type": "array", "minItems": 1000000000, "items": {"type": "null"}})"},
      {GrammarKind::json_schema, R"({"type": "string", "minLength": 1000000000})"},
      {GrammarKind::json_schema, R"({"type": "string", "pattern": "^(([a-z]+)+)+$", "maxLength": 100000})"},
      {GrammarKind::json_schema, R"({"$ref": "https://example.com/elsewhere"})"},
      {GrammarKind::json_schema, R"({"multipleOf": 1e-300, "type": "number", "minimum": 1e300})"},
      {GrammarKind::json_schema, R"({"allOf": [{"type": "string"}, {"type": "null"}]})"},
  };
  for (const auto& [kind, text] : cases) {
    const auto start = std::chrono::steady_clock::now();
    // As on a host's thread, whose stack may be small.
    std::thread([&, kind = kind, text = std::string_view(text)] {
      try {
        Constraint state = Grammar::compile(tokenizer, kind, text)->start();
        std::mt19937 random(3);
        for (int i = 0; i < 20; ++i) {
          const NextTokens next = state.next();
          const std::vector<int32_t> ids = all_allowed(tokenizer, next);
          if (next.ended || ids.empty() || state.commit(ids[random() % ids.size()])) break;
        }
      } catch (const Error& error) {
        EXPECT_NE(error.code(), Code::internal) << error.what();
      }
    }).join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_LT(seconds, 30 * test::machine_load()) << text.substr(0, 60);
  }
}

TEST(Constraint, TheCacheCompilesAGrammarOnce) {
  const Tokenizer tokenizer = make(byte_level());
  GrammarCache cache;
  const auto one = cache.get(tokenizer, GrammarKind::regex, "a");
  EXPECT_EQ(one, cache.get(tokenizer, GrammarKind::regex, "a"));
  EXPECT_NE(one, cache.get(tokenizer, GrammarKind::choices, "[\"a\"]"));
  for (int i = 0; i < 200; ++i) cache.get(tokenizer, GrammarKind::regex, cat("a", i));
  EXPECT_NE(one, cache.get(tokenizer, GrammarKind::regex, "a"));  // the least used was dropped
}

}  // namespace
}  // namespace plait::text_test
