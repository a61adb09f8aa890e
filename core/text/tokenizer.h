#pragma once
// Text to token ids and back, and conversations to prompts.
//
// Tokenizers are those of Hugging Face (tokenizer.json), run by Hugging Face's own library except for the tables and
// merges of BPE (rust/src/bpe.rs says why); chat templates are rendered as transformers' apply_chat_template does.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct plait_text_tokenizer;
struct plait_text_stream;

namespace plait {

/// The contents of a model directory's text files, UTF-8; empty for files that it lacks. Read during the call only.
struct TokenizerFiles {
  std::string_view tokenizer_json;
  std::string_view tokenizer_config;    ///< tokenizer_config.json: special tokens, and often the chat template
  std::string_view chat_template;       ///< chat_template.jinja; goes before the other two templates
  std::string_view chat_template_json;  ///< chat_template.json; goes before tokenizer_config.json's template
};

/// What one text may take: tokenizer.json and the chat template are programs of whoever wrote the model.
struct TextLimits {
  uint64_t bytes = 64 << 20;  ///< memory, beside 64 bytes for each byte of a conversation and 1 KiB for each of a text
  uint64_t milliseconds = 10000;  ///< beside 1 ms for each 64 bytes of it
};

/// A conversation to be made a prompt. The texts are JSON, UTF-8.
struct ChatRequest {
  std::string_view messages;        ///< list of {"role": ..., "content": ...}
  std::string_view tools = {};      ///< list of JSON schemas of functions; empty: no tools
  std::string_view variables = {};  ///< object: further variables of the template ("enable_thinking"); may be empty
  bool add_generation_prompt = true;  ///< end with the header of the assistant's turn
};

class TextStream;

/// Immutable once loaded: any number of threads may call any method at once. Copies share everything.
/// Ids are those of the file: 0 <= id < vocab_size(), with gaps at most where the file has them.
class Tokenizer {
 public:
  /// Reads tokenizer.json and, where they exist, tokenizer_config.json, chat_template.jinja, chat_template.json.
  /// With a `cache_dir` (made if absent) a BPE tokenizer leaves a binary form there that loads many times faster; it
  /// is made again when tokenizer.json changes, and a cache that cannot be read or written is no error.
  /// Throws Error: not_found (no tokenizer.json), bad_model, io.
  static Tokenizer load(const std::string& directory, const std::string& cache_dir = {}, TextLimits limits = {});

  /// Throws Error(bad_model) when a file is damaged, or its parts fail on any text at all.
  static Tokenizer from_bytes(const TokenizerFiles& files, TextLimits limits = {});

  /// The binary form, and a tokenizer from it. `files` are those that the saved tokenizer was made from:
  /// Error(bad_model) when tokenizer.json is another one, or the binary form is damaged or of another version.
  /// save_fast throws Error(unsupported) for models other than BPE.
  std::string save_fast() const;
  static Tokenizer from_fast(std::string_view fast, const TokenizerFiles& files, TextLimits limits = {});

  /// encode, decode and render_chat throw Error(out_of_memory) beyond the limits' memory, Error(timeout) beyond their
  /// time. What other threads have under way of them, with any copy of this tokenizer, throws Error(cancelled).
  void cancel() const;

  /// `text` is UTF-8 (else Error(invalid_argument)) and may hold NULs. Special tokens written out in it become their
  /// ids. `add_special` adds what the file's post-processor adds, BOS as a rule: wanted for a plain prompt, not for
  /// the result of render_chat, which has it.
  std::vector<int32_t> encode(std::string_view text, bool add_special) const;

  /// Valid UTF-8; bytes that make no character become U+FFFD, one a byte piece. (Their neighbours stay, as in
  /// SentencePiece; Hugging Face's decoder replaces a whole run of byte pieces for one bad byte.) Ids that have no
  /// piece have no text (models pad their vocabulary); a negative id is Error(invalid_argument).
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;

  /// One past the largest id, added tokens included. A model's logits may be more.
  int32_t vocab_size() const;

  /// The piece as the vocabulary spells it ("\u2581the", "<0x0A>"); Error(invalid_argument) when there is none.
  std::string id_to_piece(int32_t id) const;
  std::optional<int32_t> piece_to_id(std::string_view piece) const;
  /// Whether decode leaves the id out when it skips special tokens. False for ids without a piece.
  bool is_special(int32_t id) const;

  /// The tokens that tokenizer_config.json names "bos_token" and "eos_token".
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> eos_id() const;

  bool has_chat_template() const;
  /// Throws Error: unsupported (no chat template), bad_model (it cannot be compiled), invalid_argument (not JSON, or
  /// the template refuses these messages; the message says why in the template's words), out_of_memory (it runs on
  /// a thread of its own, which could not be started).
  std::string render_chat(const ChatRequest& request) const;

  /// Turns ids into text as they come.
  TextStream stream(bool skip_special = true) const;

 private:
  explicit Tokenizer(plait_text_tokenizer* handle);
  std::optional<int32_t> named_token(std::string_view key) const;

  std::shared_ptr<plait_text_tokenizer> handle_;
};

/// Text from ids, one at a time: what push and finish return is whole UTF-8, and all of it together is what
/// Tokenizer::decode returns for all the ids. The work of a push does not grow with the length of the text.
/// (Decoders that rewrite what they gave before cannot be streamed exactly; no known language model has one.)
/// For one thread at a time; keeps what it needs of its tokenizer.
class TextStream {
 public:
  /// The text that this id completes: often empty while a character's bytes are still coming.
  /// Throws Error(invalid_argument) for a negative id.
  std::string push(int32_t id);

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
