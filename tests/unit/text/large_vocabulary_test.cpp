// A vocabulary of Gemma's size: 262,144 pieces, about 500,000 merges, 6,000 added tokens. The file is made here.
#include <gtest/gtest.h>

#include <bit>
#include <ctime>
#include <optional>

#include "core/base/text.h"
#include "core/text/constraint.h"
#include "tests/unit/support/machine_load.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

constexpr size_t piece_count = 262144;
constexpr int added_count = 6000;

struct Vocabulary {
  Pieces pieces;
  Merges merges;
};

/// All words over eight letters, the shortest first; each but the letters is made by two merges: first letter and
/// rest, all but the last letter and the last. (Gemma has 1.96 merges a piece.)
Vocabulary large_vocabulary() {
  const Pieces letters = {"\u2581", "a", "b", "c", "d", "\u00e9", "\u4f60", "\u597d"};
  Vocabulary out{{"<unk>"}, {}};
  for (int i = 0; i < added_count; i++) out.pieces.push_back(cat("<unused", i, ">"));
  size_t next = out.pieces.size();
  for (const auto& letter : letters) out.pieces.push_back(letter);
  for (; out.pieces.size() < piece_count; next++)
    for (size_t last = 0; last < letters.size() && out.pieces.size() < piece_count; last++) {
      std::string head = out.pieces[next], word = cat(head, letters[last]);
      size_t first = 1;
      while ((word[first] & 0xC0) == 0x80) first++;
      out.merges.push_back({head, letters[last]});
      if (first < head.size()) out.merges.push_back({word.substr(0, first), word.substr(first)});
      out.pieces.push_back(word);
    }
  return out;
}

std::string large_json(const Vocabulary& vocabulary) {
  Parts parts = gemma();
  parts.post_processor = "null";
  std::string added = added_token("<unk>", true);
  for (int i = 0; i < added_count; i++) added += cat(",", added_token(cat("<unused", i, ">"), true));
  parts.added_tokens = cat("[", added, "]");
  parts.model = bpe_model(vocabulary.pieces, vocabulary.merges, R"("unk_token":"<unk>","fuse_unk":true,)");
  return parts.json();
}

/// Processor time, since tests share the machine.
template <class Body>
double seconds(Body body) {
  std::clock_t start = std::clock();
  body();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(LargeVocabulary, TheTreeOfTokensAndMasksAreFast) {
  const Tokenizer tokenizer = make(large_json(large_vocabulary()));
  const double tree = seconds([&] { tokenizer.prepare_grammars(); });
  RecordProperty("tree_us", static_cast<int>(tree * 1e6));
  const auto grammar = Grammar::compile(tokenizer, GrammarKind::regex, "([abcd]{3,9} ?)*");
  Constraint state = grammar->start();
  double masks = 0;
  constexpr int steps = 200;
  for (int i = 0; i < steps; ++i) {
    masks += seconds([&] { state.next(); });
    const std::span<const uint32_t> mask = state.next().mask;
    size_t word = static_cast<size_t>(i) * 37 % mask.size();
    while (mask[word] == 0) word = (word + 1) % mask.size();
    state.commit(static_cast<int32_t>(word * 32) + std::countr_zero(mask[word]));
  }
  RecordProperty("mask_us", static_cast<int>(masks / steps * 1e6));
  EXPECT_LT(tree, 3 * test::machine_load());
  EXPECT_LT(masks / steps, 0.02 * test::machine_load());
}

TEST(LargeVocabulary, TheFastFormIsEqualAndFast) {
  Vocabulary vocabulary = large_vocabulary();
  std::string json = large_json(vocabulary);
  std::optional<Tokenizer> slow, fast;
  double from_json = seconds([&] { slow = make(json); });
  std::string bytes = slow->save_fast();
  double from_fast = seconds([&] { fast = Tokenizer::from_fast(bytes, {.tokenizer_json = json}); });
  RecordProperty("merges", static_cast<int>(vocabulary.merges.size()));
  RecordProperty("from_json_us", static_cast<int>(from_json * 1e6));
  RecordProperty("from_fast_us", static_cast<int>(from_fast * 1e6));
  EXPECT_LT(from_fast, from_json / 3);
  EXPECT_EQ(fast->vocab_size(), static_cast<int32_t>(piece_count));

  std::mt19937 random(42);
  for (int round = 0; round < 200; round++) {
    std::string text;
    for (int words = 0; words < 40; words++)
      text += vocabulary.pieces[random() % vocabulary.pieces.size()] + (random() % 3 ? "" : " ");
    auto ids = slow->encode(text, true);
    ASSERT_EQ(ids, fast->encode(text, true)) << quote(text);
    ASSERT_EQ(slow->decode(ids), fast->decode(ids));
  }
}

}  // namespace
}  // namespace plait::text_test
