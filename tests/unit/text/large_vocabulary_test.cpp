// A vocabulary of Gemma's size: 262,144 pieces, about 500,000 merges, 6,000 added tokens. The file is made here.
#include <gtest/gtest.h>

#include <ctime>
#include <unordered_set>

#include "core/base/text.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

constexpr size_t piece_count = 262144;
constexpr int added_count = 6000;

struct Vocabulary {
  Pieces pieces;
  Merges merges;
};

/// Pieces that are joined from earlier ones, so that most have several splits into two pieces, as SentencePiece's.
Vocabulary large_vocabulary() {
  std::mt19937 random(41);
  Vocabulary out;
  std::unordered_set<std::string> known;
  auto add = [&](std::string piece) {
    bool fresh = known.insert(piece).second;
    if (fresh) out.pieces.push_back(std::move(piece));
    return fresh;
  };
  add("<unk>");
  for (int i = 0; i < added_count; i++) add(cat("<unused", i, ">"));
  size_t first = out.pieces.size();
  add("\u2581");
  for (char letter = 'a'; letter <= 'z'; letter++) add(std::string(1, letter));
  for (uint32_t code = 0x4E00; code < 0x4F00; code++) add(utf8(code));
  while (out.pieces.size() < piece_count) {
    // The smaller of three numbers: short, frequent pieces come up most.
    auto pick = [&] {
      size_t bound = out.pieces.size() - first, place = bound;
      for (int draw = 0; draw < 3; draw++) place = std::min<size_t>(place, random() % bound);
      return out.pieces[first + place];
    };
    std::string left = pick(), joined = left + pick();
    if (joined.size() > 16 || !add(joined)) continue;
    for (size_t at = 1; at < joined.size(); at++) {
      std::string head = joined.substr(0, at), tail = joined.substr(at);
      if (known.count(head) && known.count(tail)) out.merges.push_back({head, tail});
    }
  }
  return out;
}

std::string large_json(const Vocabulary& vocabulary) {
  Parts parts = gemma();
  parts.post_processor = "null";
  parts.added_tokens = "[" + added_token("<unk>", true);
  for (int i = 0; i < added_count; i++) parts.added_tokens += "," + added_token(cat("<unused", i, ">"), true);
  parts.added_tokens += "]";
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
