#pragma once
// Small tokenizer.json files, made by hand, one for each kind of decoder that models use.
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/tokenizer.h"

namespace plait::text_test {

std::string json_string(std::string_view text);
/// The UTF-8 of one code point.
std::string utf8(uint32_t code);
bool is_utf8(std::string_view text);

using Pieces = std::vector<std::string>;
using Merges = std::vector<std::pair<std::string, std::string>>;

/// The parts of a tokenizer.json, as JSON text unless said otherwise.
struct Parts {
  std::string added_tokens = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = "null";
  std::string model;

  std::string json() const;
};

/// `content` as an added token; its id is that of the vocabulary, or the next free one.
std::string added_token(std::string_view content, bool special);
/// A BPE model whose ids are the places in `pieces`; `settings` is JSON: "\"unk_token\":\"<unk>\",".
std::string bpe_model(const Pieces& pieces, const Merges& merges, const std::string& settings = "");

/// GPT-2, Llama 3, Qwen: 256 bytes, words, whole and half emoji; specials <|begin|> (added by the post-processor)
/// and <|end|>; an added token with a space that is not special.
Parts byte_level();

/// Llama 2, Mistral: SentencePiece's BPE with byte_fallback, a space put before and stripped after.
Parts sentence_piece();

/// Gemma: the same without the added space.
Parts gemma();

/// `sentence_piece` with another decoder; a sequence gets "Replace, ByteFallback, Fuse" before `last_step`.
Parts with_decoder(const std::string& decoder);
std::string fallback_decoder(const std::string& last_step);

Parts word_piece();
Parts unigram();

struct Named {
  std::string name;
  std::string json;

  friend void PrintTo(const Named& tokenizer, std::ostream* out) { *out << tokenizer.name; }
};
/// All of the above, and further decoders.
std::vector<Named> all_tokenizers();

Tokenizer make(const Parts& parts);
Tokenizer make(const std::string& json);

/// Random text of ASCII, Cyrillic, Chinese, emoji, controls (NUL too) and words of the tokenizers' vocabularies.
std::string random_text(std::mt19937& random, int most_characters);

}  // namespace plait::text_test
