#include "importers/gguf/tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::gguf {
namespace {

using Json = nlohmann::json;  // a map: ordered objects take quadratic time to fill

enum PieceKind : int64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

/// Tokens that end an answer by their names, whatever kind a file gives them, as in llama.cpp.
constexpr const char* turn_ends[] = {"<|eot_id|>",    "<|im_end|>", "<|end|>",         "<|return|>",
                                     "<|call|>",      "<|flush|>",  "<|calls|>",       "<end_of_turn>",
                                     "<|endoftext|>", "<|eom_id|>", "<EOT>",           "_<EOT>",
                                     "[EOT]",         "[EOS]",      "<|end_of_text|>", "<end_of_utterance>"};

constexpr const char* space = "\u2581";  // how SentencePiece writes a space within a piece

struct Vocabulary {
  const std::vector<std::string>& pieces;
  std::vector<int64_t> kinds;

  explicit Vocabulary(const File& file) : pieces(file.texts("tokenizer.ggml.tokens")) {
    kinds.assign(pieces.size(), normal);
    const auto found = file.metadata().find("tokenizer.ggml.token_type");
    if (found == file.metadata().end()) return;
    const auto* given = std::get_if<std::vector<int64_t>>(&found->second);
    if (!given || given->size() != pieces.size())
      throw Error(Code::bad_model,
                  "the metadata tokenizer.ggml.token_type are no list of as many kinds as there are tokens");
    kinds = *given;
  }

  /// The ends of turns that there are, in the order of their ids.
  std::vector<size_t> ends() const {
    std::vector<size_t> out;
    bool returns = false, calls = false;
    for (size_t id = 0; id < pieces.size(); ++id) {
      returns |= pieces[id] == "<|return|>";
      calls |= pieces[id] == "<|call|>";
      if (std::find(std::begin(turn_ends), std::end(turn_ends), pieces[id]) != std::end(turn_ends)) out.push_back(id);
    }
    // Harmony's <|end|> ends a message, and an answer has several.
    if (returns && calls) std::erase_if(out, [&](size_t id) { return pieces[id] == "<|end|>"; });
    return out;
  }
};

/// The id under a key of the metadata; nothing if there is none.
std::optional<int64_t> id_of(const File& file, const Vocabulary& words, const std::string& key) {
  if (!file.has(key)) return std::nullopt;
  const int64_t id = file.integer(key);
  if (id < 0 || id >= static_cast<int64_t>(words.pieces.size()))
    throw Error(Code::bad_model,
                cat("the metadata ", key, " is ", id, ", and there are ", words.pieces.size(), " tokens"));
  return id;
}

Json added_tokens(const Vocabulary& words) {
  Json out = Json::array();
  for (size_t id = 0; id < words.pieces.size(); ++id) {
    const bool special = words.kinds[id] == control || words.kinds[id] == unknown;
    if (!special && words.kinds[id] != user_defined) continue;
    out.push_back({{"id", id},
                   {"content", words.pieces[id]},
                   {"single_word", false},
                   {"lstrip", false},
                   {"rstrip", false},
                   {"normalized", false},
                   {"special", special}});
  }
  return out;
}

Json vocabulary_of(const Vocabulary& words) {
  Json out = Json::object();
  for (size_t id = 0; id < words.pieces.size(); ++id) out[words.pieces[id]] = id;
  return out;
}

/// Merges that do what SentencePiece does: they join the neighbours whose union has the best score. Each split of a normal piece into
/// two normal pieces is a merge; better scores come first.
Json merges_of_scores(const File& file, const Vocabulary& words) {
  const auto found = file.metadata().find("tokenizer.ggml.scores");
  const auto* scores = found == file.metadata().end() ? nullptr : std::get_if<std::vector<double>>(&found->second);
  if (!scores || scores->size() != words.pieces.size())
    throw Error(Code::bad_model,
                "the metadata tokenizer.ggml.scores are no list of as many numbers as there are tokens");
  std::unordered_map<std::string_view, size_t> ids;
  std::vector<size_t> order;
  for (size_t id = 0; id < words.pieces.size(); ++id) {
    if (words.kinds[id] != normal) continue;
    ids.emplace(words.pieces[id], id);
    order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return (*scores)[a] > (*scores)[b]; });
  Json out = Json::array();
  for (const size_t id : order) {
    const std::string_view piece = words.pieces[id];
    std::vector<std::pair<size_t, size_t>> splits;
    for (size_t at = 1; at < piece.size(); ++at) {
      if ((piece[at] & 0xC0) == 0x80) continue;  // within a character
      const auto left = ids.find(piece.substr(0, at)), right = ids.find(piece.substr(at));
      if (left != ids.end() && right != ids.end()) splits.emplace_back(left->second, right->second);
    }
    std::sort(splits.begin(), splits.end());
    for (const auto& [left, right] : splits) out.push_back({words.pieces[left], words.pieces[right]});
  }
  return out;
}

/// "a b" as ["a", "b"]: a piece may contain a space only as its first letter.
Json merges_of_file(const File& file) {
  Json out = Json::array();
  for (const std::string& line : file.texts("tokenizer.ggml.merges")) {
    const size_t blank = line.find(' ', 1);
    if (blank == std::string::npos) throw Error(Code::bad_model, cat("the merge ", quote(line), " has no two parts"));
    out.push_back({line.substr(0, blank), line.substr(blank + 1)});
  }
  return out;
}

Json split_by(const char* pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

/// What comes before the byte-level BPE, by the name that llama.cpp gives it.
Json pre_tokenizer(const std::string& name) {
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  Json own_regex = bytes;  // GPT-2's
  own_regex["use_regex"] = true;
  const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
  const auto sequence = [](Json list) { return Json{{"type", "Sequence"}, {"pretokenizers", std::move(list)}}; };
  if (name == "gpt-2" || name == "default" || name == "olmo" || name == "phi-2" || name == "mpt") return own_regex;
  if (name == "smollm" || name == "starcoder" || name == "refact" || name == "command-r" || name == "codeshell")
    return sequence({digits, own_regex});
  if (name == "llama-bpe" || name == "llama3" || name == "llama-v3" || name == "smaug-bpe")
    return sequence(
        {split_by(
             "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
             "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
         bytes});
  if (name == "qwen2" || name == "stablelm2" || name == "deepseek-r1-qwen" || name == "hunyuan")
    return sequence(
        {split_by("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
                  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
         bytes});
  if (name == "gpt-4o")
    return sequence({split_by("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{"
                              "M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
                              "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{"
                              "M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
                              "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
                     bytes});
  throw Error(Code::unsupported, cat("the tokenizer's pre-tokenizer ", quote(name), " is not known"),
              "pass prompts as token ids, or use the model's own tokenizer.json: put model.onnx of `plait convert "
              "--option tokenizer=none` next to it");
}

Json bpe(const Vocabulary& words, Json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", vocabulary_of(words)},
          {"merges", std::move(merges)}};
}

/// Puts BOS before a text.
Json with_bos(const std::string& piece, int64_t id) {
  const Json token = {{"SpecialToken", {{"id", piece}, {"type_id", 0}}}},
             second = {{"SpecialToken", {{"id", piece}, {"type_id", 1}}}};
  const auto text = [](const char* name, int type) { return Json{{"Sequence", {{"id", name}, {"type_id", type}}}}; };
  return {{"type", "TemplateProcessing"},
          {"single", {token, text("A", 0)}},
          {"pair", {token, text("A", 0), second, text("B", 1)}},
          {"special_tokens", {{piece, {{"id", piece}, {"ids", {id}}, {"tokens", {piece}}}}}}};
}

Json byte_level_tokenizer(const File& file, const Vocabulary& words) {
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(words)},
      {"normalizer", nullptr},
      {"pre_tokenizer", pre_tokenizer(file.has("tokenizer.ggml.pre") ? file.text("tokenizer.ggml.pre") : "default")},
      {"post_processor", nullptr},
      {"decoder", bytes},
      {"model", bpe(words, merges_of_file(file))}};
}

/// `prefix`: texts get a space in front, as Llama 2's do and Gemma's do not.
Json sentence_piece_tokenizer(const File& file, const Vocabulary& words, bool prefix) {
  Json normalizers = Json::array(), decoders = Json::array();
  if (prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", space}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  Json model = bpe(words, merges_of_scores(file, words));
  model["byte_fallback"] = model["fuse_unk"] = true;
  if (const auto id = id_of(file, words, "tokenizer.ggml.unknown_token_id"))
    model["unk_token"] = words.pieces[static_cast<size_t>(*id)];
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens(words)},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", normalizers}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
          {"model", model}};
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

TokenizerFiles tokenizer_files(const File& file, int64_t context) {
  Vocabulary words(file);
  const std::vector<size_t> turns = words.ends();
  for (const size_t id : turns) words.kinds[id] = control;
  const std::string& kind = file.text("tokenizer.ggml.model");
  const bool pieces = kind == "llama", bytes = kind == "gpt2";
  if (!pieces && !bytes)
    throw Error(Code::unsupported, cat("the tokenizer's kind ", quote(kind), " is not known"),
                "those that are: gpt2 (BPE) and llama (SentencePiece)");
  Json tokenizer =
      bytes ? byte_level_tokenizer(file, words)
            : sentence_piece_tokenizer(file, words, file.integer_or("tokenizer.ggml.add_space_prefix", 1) != 0);
  Json config = {{"clean_up_tokenization_spaces", false}, {"model_max_length", context}}, generation = Json::object();
  const auto bos = id_of(file, words, "tokenizer.ggml.bos_token_id"),
             eos = id_of(file, words, "tokenizer.ggml.eos_token_id");
  const bool adds_bos = bos && file.integer_or("tokenizer.ggml.add_bos_token", pieces) != 0;
  if (adds_bos) tokenizer["post_processor"] = with_bos(words.pieces[static_cast<size_t>(*bos)], *bos);
  config["add_bos_token"] = adds_bos;
  for (const auto& [name, key] :
       {std::pair{"bos_token", "bos"}, {"eos_token", "eos"}, {"unk_token", "unknown"}, {"pad_token", "padding"}})
    if (const auto id = id_of(file, words, cat("tokenizer.ggml.", key, "_token_id")))
      config[name] = words.pieces[static_cast<size_t>(*id)];
  if (file.has("tokenizer.chat_template")) config["chat_template"] = file.text("tokenizer.chat_template");
  if (const char* key = "tokenizer.chat_template.tool_use"; file.has(key)) {
    Json templates = {{{"name", "tool_use"}, {"template", file.text(key)}}};
    if (config.contains("chat_template"))
      templates.push_back({{"name", "default"}, {"template", config["chat_template"]}});
    config["chat_template"] = std::move(templates);
  }
  if (bos) generation["bos_token_id"] = *bos;
  // A turn's end ends an answer, as a text's does.
  Json ends = Json::array();
  if (eos) ends.push_back(*eos);
  for (const char* name : {"eot", "eom"})
    if (const auto id = id_of(file, words, cat("tokenizer.ggml.", name, "_token_id")); id && id != eos)
      ends.push_back(*id);
  for (const size_t id : turns)
    if (std::find(ends.begin(), ends.end(), Json(id)) == ends.end()) ends.push_back(id);
  if (!ends.empty()) generation["eos_token_id"] = ends;
  return {text_of(tokenizer), text_of(config), text_of(generation)};
}

}  // namespace plait::gguf
