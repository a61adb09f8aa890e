// Encoding, decoding, pieces, and what bad input does.
#include "core/text/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "core/base/error.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

using Ids = std::vector<int32_t>;

Code code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_FALSE(error.message().empty());
    return error.code();
  }
  return Code::ok;
}

TEST(Tokenizer, ByteLevelGivesTheTextBack) {
  Tokenizer tokenizer = make(byte_level());
  std::string nul("a\0b\0", 4);
  std::vector<std::string> texts = {"", " hello world", nul, "\U0001F600 \u4f60\u597d \U00010348\n\n",
                                    "two words and <|end|>", "\uFFFD\u0301\u200D"};
  for (const auto& text : texts) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false), false), text);
  std::mt19937 random(1);
  for (int round = 0; round < 500; round++) {
    std::string text = random_text(random, 30);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, true), true), text);
  }
}

TEST(Tokenizer, SentencePieceGivesTheTextBack) {
  std::mt19937 random(2);
  Tokenizer llama = make(sentence_piece()), plain = make(gemma());
  for (int round = 0; round < 500; round++) {
    std::string text = random_text(random, 30);
    EXPECT_EQ(plain.decode(plain.encode(text, true)), text);
    // Between added tokens each part gets its own space: only texts without those come back.
    if (text.find('<') == std::string::npos) {
      EXPECT_EQ(llama.decode(llama.encode(text, true)), text);
    }
  }
}

// What the tokenizers library finds out by a panic when it encodes.
TEST(Tokenizer, PartsThatCannotWorkAreRefusedWhenTheyAreLoaded) {
  auto refused = [](const Parts& parts) {
    try {
      make(parts);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_model) << error.message();
      EXPECT_NE(error.message().find("tokenizer.json"), std::string::npos) << error.message();
      return error.message();
    }
    return std::string("loaded");
  };
  auto with_processor = [](std::string single, std::string pair) {
    Parts parts = gemma();
    parts.post_processor = R"({"type":"Sequence","processors":[{"type":"TemplateProcessing","single":[)" + single +
                           R"({"Sequence":{"id":"A","type_id":0}}],"pair":[)" + pair +
                           R"({"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{}}]})";
    return parts;
  };
  std::string token = R"({"SpecialToken":{"id":"[NONE]","type_id":0}},)";
  EXPECT_NE(refused(with_processor(token, "")).find("[NONE]"), std::string::npos);
  EXPECT_NE(refused(with_processor("", token)).find("[NONE]"), std::string::npos);
  EXPECT_EQ(refused(with_processor("", "")), "loaded");

  // Expressions that match nothing: in every part that takes one, and whatever the text.
  int panics = 0;
  for (std::string pattern : {"", "a*", "\\b", "(?=a)", "$", "^"}) {
    std::string regex = R"("pattern":{"Regex":)" + json_string(pattern) + "}";
    for (const Parts& base : {gemma(), byte_level(), sentence_piece(), word_piece(), unigram()}) {
      std::vector<Parts> list(4, base);
      list[0].normalizer = R"({"type":"Replace",)" + regex + R"(,"content":""})";
      list[1].normalizer = R"({"type":"Replace",)" + regex + R"(,"content":"xy"})";
      list[2].pre_tokenizer = R"({"type":"Split",)" + regex + R"(,"behavior":"MergedWithNext","invert":true})";
      list[3].decoder = R"({"type":"Replace",)" + regex + R"(,"content":"xy"})";
      for (const Parts& parts : list) {
        if (refused(parts) != "loaded") {
          ++panics;
          continue;
        }
        Tokenizer tokenizer = make(parts);
        for (std::string text : {"", "a", "aaa", "b a\n", "\u00e9\u4f60"}) {
          EXPECT_NE(code_of([&] { tokenizer.decode(tokenizer.encode(text, true)); }), Code::internal) << pattern << text;
        }
      }
    }
  }
  EXPECT_GT(panics, 0) << "nothing of this has to be refused";
}

TEST(Tokenizer, KnownIds) {
  Tokenizer tokenizer = make(gemma());
  auto id = [&](std::string_view piece) { return tokenizer.piece_to_id(piece).value(); };
  EXPECT_EQ(tokenizer.encode("he hello", false), (Ids{id("h"), id("e"), id("\u2581hello")}));
  EXPECT_EQ(tokenizer.encode("\u00fc", true), (Ids{1, id("<0xC3>"), id("<0xBC>")}));
  EXPECT_EQ(tokenizer.encode("a</s>", true), (Ids{1, id("a"), 2}));
  EXPECT_EQ(tokenizer.encode("", true), (Ids{1}));
  EXPECT_EQ(tokenizer.decode(Ids{1, id("a"), 2}, true), "a");
  EXPECT_EQ(tokenizer.decode(Ids{1, id("a"), 2}, false), "<s>a</s>");
}

TEST(Tokenizer, TruncationOfTheFileIsIgnored) {
  EXPECT_GT(make(byte_level()).encode("one two three four five six", false).size(), 6u);
}

TEST(Tokenizer, ByteRunsKeepTheirValidCharacters) {
  Tokenizer tokenizer = make(gemma());
  auto bytes = [&](std::string_view text) {
    Ids ids;
    for (unsigned char byte : text) ids.push_back(3 + byte);
    return ids;
  };
  EXPECT_EQ(tokenizer.decode(bytes("\U0001F600\u00e9")), "\U0001F600\u00e9");
  EXPECT_EQ(tokenizer.decode(bytes("\u00e9\xF0\x9F")), "\u00e9\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer.decode(bytes("\xFF\u00e9")), "\uFFFD\u00e9");
}

TEST(Tokenizer, Pieces) {
  Tokenizer tokenizer = make(byte_level());
  EXPECT_EQ(tokenizer.piece_to_id("\u0120hello").value(), tokenizer.encode(" hello", false)[0]);
  EXPECT_EQ(tokenizer.id_to_piece(tokenizer.encode(" hello", false)[0]), "\u0120hello");
  EXPECT_EQ(tokenizer.id_to_piece(tokenizer.vocab_size() - 1), "two words");
  EXPECT_FALSE(tokenizer.piece_to_id("nothing"));
  EXPECT_FALSE(tokenizer.piece_to_id("\xFF"));
  int specials = 0;
  for (int32_t id = 0; id < tokenizer.vocab_size(); id++) {
    EXPECT_EQ(tokenizer.piece_to_id(tokenizer.id_to_piece(id)), id);
    specials += tokenizer.is_special(id);
  }
  EXPECT_EQ(specials, 2);
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(tokenizer.vocab_size()));
  for (int32_t id : {-1, tokenizer.vocab_size(), INT32_MAX, INT32_MIN})
    EXPECT_EQ(code_of([&] { tokenizer.id_to_piece(id); }), Code::invalid_argument);
}

TEST(Tokenizer, NamedTokens) {
  std::string json = gemma().json();
  auto with = [&](std::string_view config) {
    return Tokenizer::from_bytes({.tokenizer_json = json, .tokenizer_config = config});
  };
  Tokenizer both = with(R"({"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false}})");
  EXPECT_EQ(both.bos_id(), 1);
  EXPECT_EQ(both.eos_id(), 2);
  Tokenizer odd = with(R"({"bos_token":null,"eos_token":"<unheard-of>"})");
  EXPECT_FALSE(odd.bos_id());
  EXPECT_FALSE(odd.eos_id());
  EXPECT_FALSE(make(json).bos_id());
}

TEST(Tokenizer, IdsWithoutAPieceHaveNoText) {
  Tokenizer tokenizer = make(byte_level());
  EXPECT_EQ(tokenizer.decode(Ids{tokenizer.vocab_size(), INT32_MAX}), "");
  EXPECT_EQ(tokenizer.decode({}), "");
  EXPECT_EQ(code_of([&] { tokenizer.decode(Ids{0, -5}); }), Code::invalid_argument);
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  Tokenizer tokenizer = make(byte_level());
  for (std::string text : {"\xFF", "ab\xC3", "\xED\xA0\x80", "\xF4\x90\x80\x80"})
    EXPECT_EQ(code_of([&] { tokenizer.encode(text, true); }), Code::invalid_argument) << text;
}

TEST(Tokenizer, RefusesDamagedFiles) {
  std::string json = byte_level().json();
  auto load = [](const std::string& text) { return code_of([&] { make(text); }); };
  EXPECT_EQ(load(""), Code::bad_model);
  EXPECT_EQ(load("{}"), Code::bad_model);
  EXPECT_EQ(load("[1, 2]"), Code::bad_model);
  EXPECT_EQ(load("\xFF\xFE"), Code::bad_model);
  EXPECT_EQ(load(std::string(100000, '[')), Code::bad_model);
  for (size_t size = 0; size < json.size(); size += 97) EXPECT_EQ(load(json.substr(0, size)), Code::bad_model);
  Parts parts = byte_level();
  parts.model = bpe_model({"a", "b"}, {{"a", "b"}});
  EXPECT_EQ(load(parts.json()), Code::bad_model) << "merge of a piece that is not there";
  parts.model = R"({"type":"NewModel","vocab":{}})";
  EXPECT_EQ(load(parts.json()), Code::bad_model);
  parts = byte_level();
  parts.decoder = R"({"type":"NewDecoder"})";
  EXPECT_EQ(load(parts.json()), Code::bad_model);
  parts = byte_level();
  parts.pre_tokenizer = R"({"type":"Split","pattern":{"Regex":"(("},"behavior":"Isolated","invert":false})";
  EXPECT_EQ(load(parts.json()), Code::bad_model);
}

TEST(Tokenizer, RandomDamageIsAnErrorOrATokenizer) {
  std::string json = sentence_piece().json();
  std::mt19937 random(3);
  for (int round = 0; round < 2000; round++) {
    std::string damaged = json;
    for (int change = 0; change < 3; change++) damaged[random() % damaged.size()] = static_cast<char>(random() % 128);
    try {
      Tokenizer tokenizer = make(damaged);
      EXPECT_TRUE(is_utf8(tokenizer.decode(tokenizer.encode("hello w\u00f6rld", true))));
    } catch (const Error& error) {
      EXPECT_NE(error.message(), "");
    }
  }
}

TEST(Tokenizer, OlderFilesWithMergesAsLines) {
  Parts parts;
  parts.model = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"abb":3},"merges":["#version: 0.2","a b","ab b"]})";
  EXPECT_EQ(make(parts).encode("abba", false), (Ids{3, 0}));
  parts.model = R"({"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]})";
  EXPECT_EQ(make(parts).encode("abb", false), (Ids{2, 1}));
  parts.model = R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b c"]})";
  EXPECT_EQ(code_of([&] { make(parts); }), Code::bad_model);
}

TEST(Tokenizer, ManyThreadsAtOnce) {
  Tokenizer tokenizer = make(byte_level());
  std::string text = "hello world \U0001F600 \u4f60\u597d";
  Ids ids = tokenizer.encode(text, true);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; thread++)
    threads.emplace_back([&, copy = tokenizer] {
      for (int round = 0; round < 200; round++) {
        EXPECT_EQ(copy.encode(text, true), ids);
        EXPECT_EQ(tokenizer.decode(ids), text);
      }
    });
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace plait::text_test
