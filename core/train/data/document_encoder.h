#pragma once
// Texts, answers and conversations as tokens to train on.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace plait {

struct Document {
  std::vector<int32_t> ids;
  std::vector<uint8_t> counted;  ///< for each id: whether the loss counts it as a target; empty: all count
};

/// A message of a conversation, as a JSON object.
struct ChatTurn {
  std::string json;
  bool assistant = false;
};

/// Immutable: any number of threads may call it. Everything throws what Tokenizer::encode and render_chat throw.
class DocumentEncoder {
 public:
  /// `eos` ends texts; nullopt: the tokenizer's own, if it has one.
  explicit DocumentEncoder(const Tokenizer& tokenizer, std::optional<int32_t> eos = std::nullopt);

  /// What the tokenizer puts before a text (BOS, as a rule), the text, EOS. All count.
  Document text(std::string_view text) const;
  /// A part of a longer text: `first` gets what comes before a text, `last` EOS.
  Document part(std::string_view text, bool first, bool last) const;

  /// The completion and EOS count. The prompt's tokens are those that it has alone, as when the model is asked.
  Document completion(std::string_view prompt, std::string_view completion) const;

  /// The conversation up to the last turn of the assistant, through the chat template; the assistant's turns count, with
  /// what the template ends them with. Where the template shows an earlier turn otherwise once there are later ones (a
  /// thought that is left out, say), each turn of the assistant is a document, as it was when it was asked for. Without a
  /// turn of the assistant there is no document. `tools` is a JSON list, or empty.
  /// `found`: false where the template does not begin an assistant's turn as it asks for one; then all tokens count.
  std::vector<Document> chat(const std::vector<ChatTurn>& turns, std::string_view tools, bool& found) const;

 private:
  std::vector<int32_t> begin(std::string_view text) const;
  std::string render(const std::vector<ChatTurn>& turns, size_t count, std::string_view tools, bool ask) const;

  const Tokenizer& tokenizer_;
  std::optional<int32_t> eos_;
  bool adds_eos_ = false;  ///< the tokenizer itself ends texts with EOS
};

}  // namespace plait
