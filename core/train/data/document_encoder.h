#pragma once
// Encodes texts, completions and conversations as training tokens.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace plait {

struct Document {
  std::vector<int32_t> ids;
  std::vector<uint8_t> counted;  ///< per id: whether it counts as a label; empty: all count
};

/// A message of a conversation, as a JSON object.
struct ChatTurn {
  std::string json;
  bool assistant = false;
  bool counted = true;  ///< of an assistant's turn: whether it is trained on
};

/// What the documents of a conversation could not keep.
struct ChatNotes {
  bool found = true;  ///< false: the template does not begin its assistant turns in one way, and all tokens count
  std::vector<std::string> unknown;  ///< members of messages that the template does not name
};

/// Immutable and thread-safe. Throws what Tokenizer::encode and render_chat throw.
class DocumentEncoder {
 public:
  /// `eos` ends texts; nullopt: the tokenizer's, if it has one.
  explicit DocumentEncoder(const Tokenizer& tokenizer, std::optional<int32_t> eos = std::nullopt);

  /// The text with the tokenizer's prefix (usually BOS) and EOS. All tokens count.
  Document text(std::string_view text) const;
  /// A part of a longer text: `first` adds the prefix, `last` adds EOS.
  Document part(std::string_view text, bool first, bool last) const;

  /// Completion and EOS count. The prompt is tokenized separately, as in generation.
  Document completion(std::string_view prompt, std::string_view completion) const;

  /// The conversation up to the assistant's last turn that counts, rendered with the chat template. What {% generation %} blocks
  /// make counts, if the template has them; otherwise the assistant's turns and their end markers do, from where the generation
  /// prompt ends, or, where that begins a thought that the turn has not, from where its content does. If the template renders
  /// an earlier turn differently once there are later ones (e.g. leaves out its reasoning), each assistant turn is then a
  /// document, rendered as when it was generated. No document if no assistant turn counts. `tools` is a JSON list, or empty.
  std::vector<Document> chat(const std::vector<ChatTurn>& turns, std::string_view tools, ChatNotes& notes) const;

 private:
  std::vector<int32_t> begin(std::string_view text) const;
  ChatText render(const std::vector<ChatTurn>& turns, size_t count, std::string_view tools, bool ask) const;
  size_t answer_begin(const std::vector<ChatTurn>& turns, size_t at, std::string_view tools,
                      std::string_view answered) const;

  const Tokenizer& tokenizer_;
  std::optional<int32_t> eos_;
  bool adds_eos_ = false;  ///< the tokenizer appends EOS itself
};

}  // namespace plait
