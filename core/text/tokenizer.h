#pragma once
// Converts text to token ids and back, and conversations to prompts.
//
// Tokenizers are those of Hugging Face (tokenizer.json), run by Hugging Face's own library except for the tables and
// merges of BPE (see rust/src/bpe.rs); chat templates are rendered like transformers' apply_chat_template.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

struct plait_text_tokenizer;
struct plait_text_stream;

namespace plait {

/// The contents of a model directory's text files, UTF-8; empty for missing files. Read only during the call.
struct TokenizerFiles {
  std::string_view tokenizer_json;
  std::string_view tokenizer_config;    ///< tokenizer_config.json: special tokens, and often the chat template
  std::string_view chat_template;       ///< chat_template.jinja; has priority over the other two templates
  std::string_view chat_template_json;  ///< chat_template.json; has priority over tokenizer_config.json's template
  /// special_tokens_map.json, which counts if tokenizer_config.json has no added_tokens_decoder, as in transformers
  std::string_view special_tokens_map;
  std::string_view tool_use_template;  ///< additional_chat_templates/tool_use.jinja, for conversations with tools
};

/// Limits per text: tokenizer.json and the chat template are programs by the model's author.
struct TextLimits {
  uint64_t bytes = 64 << 20;  ///< memory, plus 64 bytes per byte of a conversation and 1 KiB per byte of a text
  uint64_t milliseconds = 10000;  ///< plus 1 ms per 64 bytes
};

/// A conversation to render. The texts are JSON, UTF-8. Messages are read in one way for training and serving: members that are null
/// are left out, and a thought has all of its names, as in transformers; calls' arguments that are texts become objects ("" and
/// absent ones empty), function_call becomes a call, and parts of a content are joined for templates that take no parts.
struct ChatRequest {
  std::string_view messages;        ///< list of {"role": ..., "content": ...}
  std::string_view tools = {};      ///< list of JSON schemas of functions; empty: no tools
  std::string_view variables = {};  ///< object: further variables of the template ("enable_thinking"); may be empty
  bool add_generation_prompt = true;  ///< end with the header of the assistant's turn
};

/// A rendered conversation.
struct ChatText {
  std::string text;
  /// Begin and end, in bytes, of what {% generation %} blocks made, in order; nullopt if the template has none, or has them in macros.
  std::optional<std::vector<std::pair<size_t, size_t>>> generated;
  /// Members of messages that neither the reader knows nor the template names: they have no effect.
  std::vector<std::string> unknown;
};

class TextStream;

/// Immutable once loaded and thread-safe. Copies share everything. Ids are those of the file: 0 <= id < vocab_size(),
/// with gaps only where the file has them.
class Tokenizer {
 public:
  /// Reads tokenizer.json and, if they exist, the other files of TokenizerFiles. With a
  /// `cache_dir` (created if absent) a BPE tokenizer stores a binary form there that loads many times faster; it is
  /// rebuilt when tokenizer.json changes, and an unusable cache is not an error. Throws Error: not_found (no
  /// tokenizer.json), bad_model, io.
  static Tokenizer load(const std::string& directory, const std::string& cache_dir = {}, TextLimits limits = {});

  /// Throws Error(bad_model) if a file is damaged, or its parts fail on any text.
  static Tokenizer from_bytes(const TokenizerFiles& files, TextLimits limits = {});

  /// The binary form, and a tokenizer from it. `files` must be those of the saved tokenizer: Error(bad_model) if
  /// tokenizer.json differs, or the binary form is damaged or of another version. save_fast throws Error(unsupported)
  /// for models other than BPE.
  std::string save_fast() const;
  static Tokenizer from_fast(std::string_view fast, const TokenizerFiles& files, TextLimits limits = {});

  /// encode, decode and render_chat throw Error(out_of_memory) and Error(timeout) beyond the limits. This makes
  /// pending calls of other threads, on any copy of this tokenizer, throw Error(cancelled).
  void cancel() const;

  /// `text` is UTF-8 (otherwise Error(invalid_argument)) and may contain NULs. Special tokens written out in it
  /// become their ids. `add_special` adds the tokens of the file's post-processor, usually BOS: for plain prompts,
  /// not for the result of render_chat, which has them.
  std::vector<int32_t> encode(std::string_view text, bool add_special) const;

  /// Valid UTF-8; invalid bytes become U+FFFD, one per byte piece. (Their neighbours are kept, as in SentencePiece;
  /// Hugging Face's decoder replaces a whole run of byte pieces for one bad byte.) Ids without a piece have no text
  /// (models pad their vocabulary); a negative id is Error(invalid_argument).
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  /// One past the largest id, including added tokens. A model may have more logits.
  int32_t vocab_size() const;

  /// The piece as in the vocabulary ("\u2581the", "<0x0A>"); Error(invalid_argument) if there is none.
  std::string id_to_piece(int32_t id) const;
  /// The bytes that the id adds within a text, which need not be whole characters: " the" of "\u2581the". Empty if it has no
  /// piece; a special token's are its name. Error(invalid_argument) for a negative id.
  std::string token_bytes(int32_t id) const;
  std::optional<int32_t> piece_to_id(std::string_view piece) const;
  /// Whether decode skips the id as a special token. False for ids without a piece.
  bool is_special(int32_t id) const;

  /// The tokens that tokenizer_config.json names "bos_token" and "eos_token".
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;

  bool has_chat_template() const;
  /// Throws Error: unsupported (no chat template), bad_model (it cannot be compiled), invalid_argument (not JSON, or
  /// the template rejects these messages, with its message), out_of_memory (it runs on a thread of its own, which
  /// could not be started).
  std::string render_chat(const ChatRequest& request) const;
  ChatText render_chat_parts(const ChatRequest& request) const;

  /// Streams text from ids.
  TextStream stream(bool skip_special = true) const;

  /// Makes the tree of all tokens' bytes that grammars need (core/text/constraint.h), if it is not there yet: otherwise the first
  /// grammar does. Throws Error(unsupported) for a vocabulary that is too large.
  void prepare_grammars() const;

 private:
  friend class Grammar;
  explicit Tokenizer(plait_text_tokenizer* handle);
  std::optional<int32_t> named_token(std::string_view key) const;

  std::shared_ptr<plait_text_tokenizer> handle_;
};

/// Text from ids, one at a time: push and finish return whole UTF-8, and their concatenation is what
/// Tokenizer::decode returns for all ids. The cost of a push does not grow with the length of the text. (Decoders
/// that rewrite earlier text cannot be streamed exactly; no known language model has one.) Not thread-safe; keeps
/// what it needs of its tokenizer.
class TextStream {
 public:
  /// The text that this id completes: often empty while a character is incomplete. Throws Error(invalid_argument) for
  /// a negative id.
  std::string push(int32_t id);

  /// The ids so far are a prompt: a character that is incomplete there counts only if what follows completes it, and is not
  /// U+FFFD otherwise.
  void end_prompt();

  /// The rest: an incomplete character as U+FFFD. The stream can then be used for another text.
  std::string finish();

 private:
  friend class Tokenizer;
  struct Free {
    void operator()(plait_text_stream* stream) const;
  };
  explicit TextStream(plait_text_stream* stream) : stream_(stream) {}

  std::unique_ptr<plait_text_stream, Free> stream_;
};

}  // namespace plait
