// Streamed text against whole text, for every kind of decoder and for ids as no model would order them.
#include <gtest/gtest.h>

#include <ctime>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

using Ids = std::vector<int32_t>;

/// The chunks joined; each must be whole UTF-8.
std::string streamed(TextStream& stream, const Ids& ids) {
  std::string all;
  for (int32_t id : ids) {
    std::string chunk = stream.push(id);
    EXPECT_TRUE(is_utf8(chunk)) << quote(chunk);
    all += chunk;
  }
  return all + stream.finish();
}

std::string show(const Ids& ids) {
  std::string out;
  for (int32_t id : ids) out += cat(id, " ");
  return out;
}

class Streams : public testing::TestWithParam<Named> {};

TEST_P(Streams, EqualWholeTextForRandomIds) {
  Tokenizer tokenizer = make(GetParam().json);
  std::mt19937 random(11);
  for (bool skip_special : {true, false}) {
    TextStream stream = tokenizer.stream(skip_special);
    for (int round = 0; round < 800; round++) {
      Ids ids(random() % 40);
      // A small range a round makes runs of the same pieces; ids beyond the vocabulary have no text.
      auto span = 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer.vocab_size() + 3));
      auto first = static_cast<int32_t>(random() % static_cast<uint32_t>(tokenizer.vocab_size() + 4 - span));
      for (auto& id : ids) id = first + static_cast<int32_t>(random() % static_cast<uint32_t>(span));
      ASSERT_EQ(streamed(stream, ids), tokenizer.decode(ids, skip_special)) << show(ids);
    }
  }
}

TEST_P(Streams, EqualWholeTextForRandomTexts) {
  Tokenizer tokenizer = make(GetParam().json);
  std::mt19937 random(12);
  for (int round = 0; round < 300; round++) {
    std::string text = random_text(random, 40);
    Ids ids = tokenizer.encode(text, true);
    TextStream stream = tokenizer.stream();
    ASSERT_EQ(streamed(stream, ids), tokenizer.decode(ids)) << show(ids);
    // Generation stops anywhere, also within a character.
    ids.resize(ids.size() / 2);
    ASSERT_EQ(streamed(stream, ids), tokenizer.decode(ids)) << show(ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Decoders, Streams, testing::ValuesIn(all_tokenizers()),
                         [](const auto& instance) { return instance.param.name; });

TEST(Stream, GivesByteFallbackCharactersAsSoonAsTheyAreWhole) {
  TextStream stream = make(gemma()).stream();
  std::string emoji = "\U0001F600";
  for (int round = 0; round < 2; round++) {
    auto id = [&](size_t at) { return 3 + static_cast<unsigned char>(emoji[at]); };
    for (size_t at = 0; at < 3; at++) EXPECT_EQ(stream.push(id(at)), "");
    EXPECT_EQ(stream.push(id(3)), emoji);
  }
  EXPECT_EQ(stream.push(3 + 0xE4), "");
  EXPECT_EQ(stream.push(3 + 'x'), "\uFFFDx");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Stream, GivesByteLevelCharactersAsSoonAsTheyAreWhole) {
  Tokenizer tokenizer = make(byte_level());
  TextStream stream = tokenizer.stream();
  EXPECT_EQ(stream.push(tokenizer.encode("\u597d", false)[0]), "\u597d");
  // Pieces spell bytes as characters: these are E5 A5 of E5 A5 BD.
  EXPECT_EQ(stream.push(tokenizer.piece_to_id("\u00e5").value()), "");
  EXPECT_EQ(stream.push(tokenizer.piece_to_id("\u00a5").value()), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
}

TEST(Stream, KeepsTheSpaceAfterSpecialTokens) {
  Tokenizer tokenizer = make(sentence_piece());
  int32_t hello = tokenizer.piece_to_id("\u2581hello").value();
  TextStream stream = tokenizer.stream();
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(hello), "hello");
  EXPECT_EQ(stream.push(1), "");
  EXPECT_EQ(stream.push(hello), " hello");
}

TEST(Stream, OutlivesItsTokenizerAndStartsAgain) {
  auto tokenizer = std::make_unique<Tokenizer>(make(sentence_piece()));
  int32_t hello = tokenizer->piece_to_id("\u2581hello").value();
  TextStream stream = tokenizer->stream();
  tokenizer.reset();
  for (int round = 0; round < 2; round++) {
    EXPECT_EQ(stream.push(hello), "hello");
    EXPECT_EQ(stream.push(hello), " hello");
    EXPECT_EQ(stream.finish(), "");
  }
}

TEST(Stream, ANegativeIdIsAnErrorAndChangesNothing) {
  TextStream stream = make(gemma()).stream();
  EXPECT_THROW(stream.push(-1), Error);
  EXPECT_EQ(stream.push(3 + 'a'), "a");
}

TEST(Stream, WorkDoesNotGrowWithTheText) {
  const double load = test::machine_load();
  for (const auto& [name, json] : all_tokenizers()) {
    Tokenizer tokenizer = make(json);
    TextStream stream = tokenizer.stream();
    // 0xFF bytes never make a character; "z" is silent for one of the decoders.
    for (int32_t id : {3 + 0xFF, 3 + 0xE4, tokenizer.piece_to_id("z").value_or(0), tokenizer.vocab_size()}) {
      std::clock_t start = std::clock();
      for (int push = 0; push < 5000; push++) stream.push(id);
      // About 20 ms of processor time; decoding everything again would take 12.5 million pieces, several seconds.
      EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 2 * load) << name << " " << id;
      stream.finish();
    }
  }
}

/// The first byte of a character that the prompt ends within is no U+FFFD of what follows.
TEST_P(Streams, APromptMayEndWithinACharacter) {
  Tokenizer tokenizer = make(GetParam().json);
  const std::string mark = "\uFFFD";
  for (const std::string text : {"a\u00e9b", "a\u6f22b", "a\U0001F600b", "a\u6f22\u6f22b"}) {
    const Ids ids = tokenizer.encode(text, false);
    for (size_t cut = 1; cut < ids.size(); ++cut) {
      const std::string before = tokenizer.decode(Ids(ids.begin(), ids.begin() + static_cast<int64_t>(cut)));
      if (!before.ends_with(mark)) continue;
      TextStream whole = tokenizer.stream(), ended = tokenizer.stream(), other = tokenizer.stream();
      for (size_t i = 0; i < cut; ++i)
        for (TextStream* stream : {&whole, &ended, &other}) stream->push(ids[i]);
      for (TextStream* stream : {&whole, &ended, &other}) stream->end_prompt();
      EXPECT_EQ(streamed(whole, Ids(ids.begin() + static_cast<int64_t>(cut), ids.end())).find(mark),
                std::string::npos)
          << text;
      EXPECT_EQ(ended.finish(), "") << text;
      const Ids letter = tokenizer.encode("b", false);
      EXPECT_EQ(streamed(other, {letter.back()}).find(mark), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace plait::text_test
