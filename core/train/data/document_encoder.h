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

  /// The conversation up to the assistant's last turn, rendered with the chat template; the assistant's turns and
  /// their end markers count. If the template renders an earlier turn differently once there are later ones (e.g.
  /// leaves out its reasoning), each assistant turn is a document, rendered as when it was generated. No document if
  /// there is no assistant turn. `tools` is a JSON list, or empty. `found`: false if the template's generation prompt
  /// is not the beginning of its assistant turn; then all tokens count.
  std::vector<Document> chat(const std::vector<ChatTurn>& turns, std::string_view tools, bool& found) const;

 private:
  std::vector<int32_t> begin(std::string_view text) const;
  std::string render(const std::vector<ChatTurn>& turns, size_t count, std::string_view tools, bool ask) const;

  const Tokenizer& tokenizer_;
  std::optional<int32_t> eos_;
  bool adds_eos_ = false;  ///< the tokenizer appends EOS itself
};

}  // namespace plait
