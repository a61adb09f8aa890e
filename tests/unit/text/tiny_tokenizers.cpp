#include "tests/unit/text/tiny_tokenizers.h"

#include <cstdio>

#include "core/base/text.h"

namespace plait::text_test {
namespace {

const char* const space = "\u2581";

/// The character that stands for a byte in byte-level vocabularies.
std::string byte_character(int byte) {
  auto prints = [](int b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
  if (prints(byte)) return utf8(static_cast<uint32_t>(byte));
  uint32_t code = 0x100;
  for (int b = 0; b < byte; b++) code += !prints(b);
  return utf8(code);
}

std::string byte_characters(std::string_view text) {
  std::string out;
  for (unsigned char byte : text) out += byte_character(byte);
  return out;
}

/// Appends each `word` and the pieces on the way to it, built from the left out of single characters.
void add_word(const std::vector<std::string>& characters, Pieces& pieces, Merges& merges) {
  std::string left = characters[0];
  for (size_t i = 1; i < characters.size(); i++) {
    std::string joined = left + characters[i];
    bool known = false;
    for (const auto& piece : pieces) known |= piece == joined;
    if (!known) {
      pieces.push_back(joined);
      merges.push_back({left, characters[i]});
    }
    left = joined;
  }
}

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> out;
  for (char byte : text)
    if ((byte & 0xC0) != 0x80 || out.empty()) out.push_back(std::string(1, byte));
    else out.back() += byte;
  return out;
}

std::string begin_with(std::string_view token, int id) {
  return cat(R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":")", token,
             R"(","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},)"
             R"({"Sequence":{"id":"B","type_id":1}}],"special_tokens":{")", token, R"(":{"id":")", token,
             R"(","ids":[)", id, R"(],"tokens":[")", token, R"("]}}})");
}

std::string sentence_piece_model() {
  Pieces pieces = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; byte++) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    pieces.push_back(name);
  }
  pieces.push_back(space);
  for (char letter = 'a'; letter <= 'z'; letter++) pieces.push_back(std::string(1, letter));
  for (const char* character : {"\u4f60", "\u597d", "\u00e9", ".", "!", "'"}) pieces.push_back(character);
  Merges merges;
  for (const char* word : {"\u2581hello", "\u2581world", "\u2581the", "ing", "\u4f60\u597d", "\u2581\u2581\u2581"})
    add_word(characters_of(word), pieces, merges);
  return bpe_model(pieces, merges, R"("unk_token":"<unk>","fuse_unk":true,"byte_fallback":true,)");
}

std::string replace(std::string_view from, std::string_view to) {
  return cat(R"({"type":"Replace","pattern":{"String":)", json_string(from), R"(},"content":)", json_string(to), "}");
}

std::string strip(int start, int stop) {
  return cat(R"({"type":"Strip","content":" ","start":)", start, R"(,"stop":)", stop, "}");
}

std::string vocabulary(const Pieces& pieces) {
  std::string out = "{";
  for (size_t id = 0; id < pieces.size(); id++) out += cat(id ? "," : "", json_string(pieces[id]), ":", id);
  return out + "}";
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (char byte : text) {
    char escape[8];
    if (byte == '"' || byte == '\\') out += cat('\\', byte);
    else if (static_cast<unsigned char>(byte) < 0x20) {
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else out += byte;
  }
  return out + "\"";
}

std::string utf8(uint32_t code) {
  auto byte = [](uint32_t value) { return static_cast<char>(value); };
  auto tail = [&](int shift) { return byte(0x80 | ((code >> shift) & 0x3F)); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xC0 | (code >> 6)), tail(0)};
  if (code < 0x10000) return {byte(0xE0 | (code >> 12)), tail(6), tail(0)};
  return {byte(0xF0 | (code >> 18)), tail(12), tail(6), tail(0)};
}

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    auto first = static_cast<unsigned char>(text[at]);
    size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (at + size > text.size()) return false;
    uint32_t code = size == 1 ? first : first & (0x7F >> size);
    for (size_t i = 1; i < size; i++) {
      auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xC0) != 0x80) return false;
      code = (code << 6) | (next & 0x3F);
    }
    bool surrogate = code >= 0xD800 && code < 0xE000;
    if (code > 0x10FFFF || surrogate || utf8(code) != text.substr(at, size)) return false;
    at += size;
  }
  return true;
}

std::string Parts::json() const {
  // The truncation must be ignored.
  return cat(R"({"version":"1.0","truncation":{"direction":"Right","max_length":4,"strategy":"LongestFirst",)",
             R"("stride":0},"padding":null,"added_tokens":)", added_tokens, R"(,"normalizer":)", normalizer,
             R"(,"pre_tokenizer":)", pre_tokenizer, R"(,"post_processor":)", post_processor, R"(,"decoder":)", decoder,
             R"(,"model":)", model, "}");
}

std::string added_token(std::string_view content, bool special) {
  return cat(R"({"id":0,"content":)", json_string(content), R"(,"single_word":false,"lstrip":false,"rstrip":false,)",
             R"("normalized":false,"special":)", special, "}");
}

std::string bpe_model(const Pieces& pieces, const Merges& merges, const std::string& settings) {
  std::string out = cat(R"({"type":"BPE","dropout":null,)", settings, R"("vocab":)", vocabulary(pieces));
  out += R"(,"merges":[)";
  for (size_t i = 0; i < merges.size(); i++)
    out += cat(i ? "," : "", "[", json_string(merges[i].first), ",", json_string(merges[i].second), "]");
  return out + "]}";
}

Parts byte_level() {
  Pieces pieces;
  Merges merges;
  for (int byte = 0; byte < 256; byte++) pieces.push_back(byte_character(byte));
  for (const char* word : {" hello", " world", "the", "ing", "\U0001F600", " \u4f60", "\u597d"})
    add_word(characters_of(byte_characters(word)), pieces, merges);
  int begin = static_cast<int>(pieces.size());
  Parts parts;
  parts.added_tokens = cat("[", added_token("<|begin|>", true), ",", added_token("<|end|>", true), ",",
                           added_token("two words", false), "]");
  parts.pre_tokenizer =
      R"({"type":"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","invert":false,"pattern":{"Regex":)"
      R"("\\s+(?!\\S)| ?\\p{L}+| ?\\p{N}{1,3}|\\s+| ?[^\\s\\p{L}\\p{N}]+"}},)"
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]})";
  parts.post_processor = begin_with("<|begin|>", begin);
  parts.decoder = R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true})";
  parts.model = bpe_model(pieces, merges);
  return parts;
}

std::string fallback_decoder(const std::string& last_step) {
  return cat(R"({"type":"Sequence","decoders":[)", replace(space, " "), R"(,{"type":"ByteFallback"},{"type":"Fuse"})",
             last_step.empty() ? "" : ",", last_step, "]}");
}

Parts sentence_piece() {
  Parts parts;
  parts.added_tokens =
      cat("[", added_token("<unk>", true), ",", added_token("<s>", true), ",", added_token("</s>", true), "]");
  parts.normalizer = cat(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":")", space, R"("},)",
                         replace(" ", space), "]}");
  parts.post_processor = begin_with("<s>", 1);
  parts.decoder = fallback_decoder(strip(1, 0));
  parts.model = sentence_piece_model();
  return parts;
}

Parts gemma() {
  Parts parts = sentence_piece();
  parts.normalizer = replace(" ", space);
  parts.decoder = fallback_decoder("");
  return parts;
}

Parts with_decoder(const std::string& decoder) {
  Parts parts = sentence_piece();
  parts.decoder = decoder;
  return parts;
}

Parts word_piece() {
  Parts parts;
  parts.added_tokens = cat("[", added_token("[UNK]", true), "]");
  parts.pre_tokenizer = R"({"type":"BertPreTokenizer"})";
  parts.decoder = R"({"type":"WordPiece","prefix":"##","cleanup":true})";
  Pieces pieces = {"[UNK]", "hello", "world", "##s", "##ing", "the", ".", "'", "n't", "do", "not", "\u4f60"};
  parts.model = cat(R"({"type":"WordPiece","unk_token":"[UNK]","continuing_subword_prefix":"##",)",
                    R"("max_input_chars_per_word":50,"vocab":)", vocabulary(pieces), "}");
  return parts;
}

Parts unigram() {
  Parts parts;
  parts.added_tokens = cat("[", added_token("<unk>", true), "]");
  parts.pre_tokenizer = R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always","split":true})";
  parts.decoder = parts.pre_tokenizer;
  parts.model = R"({"type":"Unigram","unk_id":0,"vocab":[["<unk>",0.0],["\u2581hello",-1.0],["\u2581",-2.0],)"
                R"(["h",-3.0],["e",-3.0],["l",-3.0],["o",-3.0],["\u2581world",-1.5],["w",-3.0],["r",-3.0],["lo\u2581",-2.5]]})";
  return parts;
}

std::vector<Named> all_tokenizers() {
  std::string metaspace = R"({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always","split":true})";
  std::string ctc = R"({"type":"CTC","pad_token":"z","word_delimiter_token":"\u2581","cleanup":true})";
  Parts lossy = byte_level();
  lossy.decoder = cat(R"({"type":"Sequence","decoders":[)", lossy.decoder, R"(,{"type":"Fuse"}]})");
  return {{"byte_level", byte_level().json()},
          {"sentence_piece", sentence_piece().json()},
          {"gemma", gemma().json()},
          {"word_piece", word_piece().json()},
          {"unigram", unigram().json()},
          {"metaspace", with_decoder(metaspace).json()},
          {"no_decoder", with_decoder("null").json()},
          {"ctc", with_decoder(ctc).json()},
          {"suffix", with_decoder(R"({"type":"BPEDecoder","suffix":"."})").json()},
          {"strip_two_before", with_decoder(fallback_decoder(strip(2, 0))).json()},
          {"strip_behind", with_decoder(fallback_decoder(strip(0, 1))).json()},
          {"byte_level_in_sequence", lossy.json()}};
}

Tokenizer make(const Parts& parts) { return make(parts.json()); }
Tokenizer make(const std::string& json) { return Tokenizer::from_bytes({.tokenizer_json = json}); }

std::string random_text(std::mt19937& random, int most_characters) {
  static const std::vector<std::string> words = {" hello", " world", "the", "ing", "\u4f60\u597d", "\U0001F600",
                                                 "\U0001F468\u200D\U0001F469", " ", "  ", "\n", "'", ".", "two words"};
  std::string out;
  auto below = [&](uint32_t bound) { return static_cast<uint32_t>(random() % bound); };
  for (int left = static_cast<int>(below(static_cast<uint32_t>(most_characters) + 1)); left > 0; left--) {
    switch (below(6)) {
      case 0: out += static_cast<char>(below(0x80)); break;
      case 1: out += utf8(0x400 + below(0x100)); break;
      case 2: out += utf8(0x4E00 + below(0x1000)); break;
      case 3: out += utf8(0x1F300 + below(0x300)); break;
      default: out += words[below(static_cast<uint32_t>(words.size()))];
    }
  }
  return out;
}

}  // namespace plait::text_test
