// The binary form: equal to the JSON form, and an error when it is anything but whole and fresh.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/unit/text/tiny_tokenizers.h"

namespace plait::text_test {
namespace {

namespace fs = std::filesystem;

/// A directory that is gone after the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "plait_text_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Scratch() { fs::remove_all(path_); }

  std::string path(const std::string& name = {}) const { return (path_ / name).string(); }
  void write(const std::string& name, std::string_view text) const { std::ofstream(path_ / name) << text; }

 private:
  fs::path path_;
};

std::vector<fs::path> files_in(const std::string& directory) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(directory)) out.push_back(entry.path());
  return out;
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool loads(const std::string& fast, const std::string& json) {
  try {
    Tokenizer::from_fast(fast, {.tokenizer_json = json});
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::bad_model);
    return false;
  }
}

void expect_same(const Tokenizer& a, const Tokenizer& b, uint32_t seed) {
  std::mt19937 random(seed);
  ASSERT_EQ(a.vocab_size(), b.vocab_size());
  for (int32_t id = 0; id < a.vocab_size(); id++) {
    ASSERT_EQ(a.id_to_piece(id), b.id_to_piece(id));
    ASSERT_EQ(a.is_special(id), b.is_special(id));
  }
  for (int round = 0; round < 300; round++) {
    std::string text = random_text(random, 40);
    auto ids = a.encode(text, true);
    ASSERT_EQ(ids, b.encode(text, true)) << quote(text);
    ASSERT_EQ(a.decode(ids), b.decode(ids)) << quote(text);
  }
}

TEST(FastForm, EqualsTheJsonForm) {
  for (const auto& parts : {byte_level(), sentence_piece(), gemma()}) {
    std::string json = parts.json();
    Tokenizer from_json = make(json);
    std::string fast = from_json.save_fast();
    Tokenizer from_fast = Tokenizer::from_fast(fast, {.tokenizer_json = json});
    expect_same(from_json, from_fast, 31);
    EXPECT_EQ(from_fast.save_fast(), fast);
  }
}

TEST(FastForm, IdsWithoutPiecesSurvive) {
  Parts parts;
  parts.model = R"({"type":"BPE","vocab":{"a":1,"b":5,"ab":3},"merges":[["a","b"]]})";
  std::string json = parts.json();
  Tokenizer tokenizer = Tokenizer::from_fast(make(json).save_fast(), {.tokenizer_json = json});
  EXPECT_EQ(tokenizer.vocab_size(), 6);
  EXPECT_EQ(tokenizer.encode("aba", false), (std::vector<int32_t>{3, 1}));
  EXPECT_THROW(tokenizer.id_to_piece(4), Error);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{0, 4}), "");
}

TEST(FastForm, EveryDamagedByteIsNoticed) {
  std::string json = gemma().json(), fast = make(json).save_fast();
  ASSERT_TRUE(loads(fast, json));
  for (size_t at = 0; at < fast.size(); at++) {
    std::string damaged = fast;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    ASSERT_FALSE(loads(damaged, json)) << at;
  }
}

TEST(FastForm, EveryTruncationIsNoticed) {
  std::string json = gemma().json(), fast = make(json).save_fast();
  for (size_t size = 0; size < fast.size(); size += 1 + size / 50)
    EXPECT_FALSE(loads(fast.substr(0, size), json)) << size;
  EXPECT_FALSE(loads(fast + std::string(16, '\0'), json));
  EXPECT_FALSE(loads(std::string(fast.size(), '\0'), json));
}

TEST(FastForm, AnotherSourceIsNoticed) {
  std::string json = gemma().json(), fast = make(json).save_fast();
  EXPECT_FALSE(loads(fast, json + " "));
  EXPECT_FALSE(loads(fast, ""));
  std::string other = json;
  other[other.size() / 2] ^= 1;
  EXPECT_FALSE(loads(fast, other));
}

TEST(FastForm, OnlyBpeHasOne) {
  for (const auto& parts : {word_piece(), unigram()}) {
    try {
      make(parts).save_fast();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
    }
  }
}

TEST(Load, ReadsADirectory) {
  Scratch model;
  model.write("tokenizer.json", gemma().json());
  EXPECT_FALSE(Tokenizer::load(model.path()).has_chat_template());
  model.write("tokenizer_config.json", R"({"bos_token":"<s>","chat_template":"config"})");
  Tokenizer tokenizer = Tokenizer::load(model.path());
  EXPECT_EQ(tokenizer.bos_id(), 1);
  EXPECT_EQ(tokenizer.render_chat({.messages = "[]"}), "config");
  model.write("chat_template.json", R"({"chat_template":"json"})");
  EXPECT_EQ(Tokenizer::load(model.path()).render_chat({.messages = "[]"}), "json");
  model.write("chat_template.jinja", "{{ bos_token }}jinja");
  EXPECT_EQ(Tokenizer::load(model.path()).render_chat({.messages = "[]"}), "<s>jinja");
}

TEST(Load, SaysWhichFileIsMissingAndWhatToDo) {
  Scratch model;
  try {
    Tokenizer::load(model.path());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_found);
    EXPECT_NE(error.message().find("tokenizer.json"), std::string::npos);
    EXPECT_NE(error.message().find(model.path()), std::string::npos);
    EXPECT_NE(error.hint().find("save_pretrained"), std::string::npos);
  }
  model.write("tokenizer.json", gemma().json());
  model.write("tokenizer_config.json", "{");
  EXPECT_THROW(Tokenizer::load(model.path()), Error);
}

TEST(Load, MakesUsesAndReplacesTheCache) {
  Scratch model, other;
  std::string cache = other.path("made/below");
  model.write("tokenizer.json", gemma().json());
  Tokenizer first = Tokenizer::load(model.path(), cache);
  ASSERT_EQ(files_in(cache).size(), 1u);
  fs::path file = files_in(cache)[0];
  std::string fast = read(file);
  EXPECT_EQ(fast, first.save_fast());
  expect_same(first, Tokenizer::load(model.path(), cache), 32);
  expect_same(first, Tokenizer::load(model.path() + "/.", cache), 33);

  std::ofstream(file) << "damaged";
  expect_same(first, Tokenizer::load(model.path(), cache), 34);
  EXPECT_EQ(read(file), fast) << "made again";

  model.write("tokenizer.json", sentence_piece().json());
  expect_same(make(sentence_piece()), Tokenizer::load(model.path(), cache), 35);
  EXPECT_EQ(files_in(cache).size(), 1u) << "the stale one was replaced";
  EXPECT_NE(read(file), fast);
}

TEST(Load, ACacheThatCannotBeIsNoError) {
  Scratch model;
  model.write("tokenizer.json", gemma().json());
  model.write("file", "");
  EXPECT_EQ(Tokenizer::load(model.path(), model.path("file")).vocab_size(), make(gemma()).vocab_size());
  EXPECT_EQ(Tokenizer::load(model.path(), "/proc/plait").vocab_size(), make(gemma()).vocab_size());
  model.write("tokenizer.json", unigram().json());
  Tokenizer::load(model.path(), model.path("cache"));
  EXPECT_FALSE(fs::exists(model.path("cache"))) << "no binary form, nothing written";
}

}  // namespace
}  // namespace plait::text_test
