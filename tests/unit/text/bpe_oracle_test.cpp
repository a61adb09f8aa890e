// Our BPE against the tokenizers crate's own, for vocabularies and settings of every kind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "core/base/text.h"
#include "core/text/rust_abi.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

using Ids = std::vector<int32_t>;

plait_text_view view(std::string_view text) { return {text.data(), text.size()}; }

/// A tokenizer on the crate's own model; -1s where it fails.
class Oracle {
 public:
  explicit Oracle(const std::string& json) {
    plait_text_files files{view(json), {}, {}, {}, {}, {}};
    EXPECT_EQ(plait_text_create(&files, {64 << 20, 10000}, true, &handle_, nullptr), 0);
  }
  ~Oracle() { plait_text_free(handle_); }

  Ids encode(std::string_view text) const {
    plait_text_ids ids{};
    if (plait_text_encode(handle_, view(text), false, &ids, nullptr) != 0) return {-1};
    Ids out(ids.data, ids.data + ids.size);
    plait_text_ids_free(ids);
    return out;
  }

 private:
  plait_text_tokenizer* handle_ = nullptr;
};

const std::vector<std::string> letters = {"a", "b", "c", "\u00e9", "\u4f60", "\U0001F600"};

struct RandomBpe {
  Pieces pieces;
  Merges merges;
  std::string settings;
};

/// A model over a few letters: random merges, which may overlap and repeat, and random settings.
RandomBpe random_bpe(std::mt19937& random) {
  auto chance = [&](uint32_t one_in) { return random() % one_in == 0; };
  RandomBpe bpe;
  std::string prefix = chance(4) ? "##" : "", suffix = chance(4) ? "</w>" : "";
  std::set<std::string> known;
  auto add = [&](const std::string& piece) {
    if (known.insert(piece).second) bpe.pieces.push_back(piece);
  };
  for (const auto& letter : letters) {
    if (chance(6)) continue;
    for (const auto& before : {std::string(), prefix})
      for (const auto& after : {std::string(), suffix}) add(before + letter + after);
  }
  for (uint32_t count = random() % 40; count > 0 && !bpe.pieces.empty(); count--) {
    std::string left = bpe.pieces[random() % bpe.pieces.size()], right = bpe.pieces[random() % bpe.pieces.size()];
    if (!right.starts_with(prefix)) continue;
    add(left + right.substr(prefix.size()));
    bpe.merges.push_back({left, right});
  }
  if (chance(2)) add("<unk>");
  bool bytes = chance(2);
  for (int byte = 0; bytes && byte < 256; byte++) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    if (!chance(200)) add(name);
  }
  std::shuffle(bpe.pieces.begin(), bpe.pieces.end(), random);
  auto quoted = [](const std::string& text) { return text.empty() ? "null" : json_string(text); };
  bpe.settings = cat(R"("unk_token":)", known.count("<unk>") ? R"("<unk>")" : "null", R"(,"fuse_unk":)", chance(2),
                     R"(,"byte_fallback":)", bytes, R"(,"ignore_merges":)", chance(3),
                     R"(,"continuing_subword_prefix":)", quoted(prefix), R"(,"end_of_word_suffix":)",
                     quoted(suffix), ",");
  return bpe;
}

std::string random_word(std::mt19937& random) {
  std::string text;
  for (uint32_t left = random() % 24; left > 0; left--)
    text += random() % 8 ? letters[random() % letters.size()] : utf8(0x21 + random() % 0x300);
  return text;
}

TEST(BpeOracle, RandomModels) {
  std::mt19937 random(21);
  for (int round = 0; round < 400; round++) {
    RandomBpe bpe = random_bpe(random);
    Parts parts;
    parts.model = bpe_model(bpe.pieces, bpe.merges, bpe.settings);
    if (random() % 2) parts.pre_tokenizer = R"({"type":"Whitespace"})";
    std::string json = parts.json();
    Oracle oracle(json);
    Tokenizer ours = make(json), fast = Tokenizer::from_fast(ours.save_fast(), {.tokenizer_json = json});
    for (int word = 0; word < 40; word++) {
      std::string text = random_word(random);
      Ids expected = oracle.encode(text);
      ASSERT_EQ(ours.encode(text, false), expected) << quote(text) << "\n" << json;
      ASSERT_EQ(fast.encode(text, false), expected) << quote(text);
    }
  }
}

TEST(BpeOracle, TinyTokenizers) {
  std::mt19937 random(22);
  for (const auto& [name, json] : all_tokenizers()) {
    Oracle oracle(json);
    Tokenizer ours = make(json);
    for (int round = 0; round < 300; round++) {
      std::string text = random_text(random, 60);
      ASSERT_EQ(ours.encode(text, false), oracle.encode(text)) << name << " " << quote(text);
    }
  }
}

TEST(BpeOracle, OddVocabulariesFallBackToTheCrate) {
  Parts parts;
  for (const char* vocabulary :
       {R"({"a":0,"b":4000000000,"ab":7})", R"({"a":0,"b":1,"ab":2,"c":2})", R"({})", R"({"":0,"a":1})"}) {
    parts.model = cat(R"({"type":"BPE","vocab":)", vocabulary, R"(,"merges":[]})");
    std::string json = parts.json();
    plait_text_files files{view(json), {}, {}, {}, {}, {}};
    plait_text_tokenizer *ours = nullptr, *theirs = nullptr;
    int32_t status = plait_text_create(&files, {64 << 20, 10000}, false, &ours, nullptr);
    EXPECT_EQ(status, plait_text_create(&files, {64 << 20, 10000}, true, &theirs, nullptr)) << vocabulary;
    plait_text_free(ours);
    plait_text_free(theirs);
  }
}

TEST(BpeOracle, DropoutKeepsTheCrateModel) {
  Parts parts;
  parts.model = R"({"type":"BPE","dropout":1.0,"vocab":{"a":0,"b":1,"ab":2},"merges":[["a","b"]]})";
  EXPECT_EQ(make(parts).encode("ab", false), (Ids{0, 1}));
}

TEST(BpeOracle, LongTextWithoutASplit) {
  Tokenizer tokenizer = make(gemma());
  Oracle oracle(gemma().json());
  std::string text;
  for (int i = 0; i < 20000; i++) text += i % 7 ? " hello" : "\u4f60\u597d\u4f60";
  EXPECT_EQ(tokenizer.encode(text, false), oracle.encode(text));
}

}  // namespace
}  // namespace plait::text_test
