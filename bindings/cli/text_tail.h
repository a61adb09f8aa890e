#pragma once
// Streams the text of token ids, using only a tokenizer's decode.
#include <string>
#include <vector>

#include "bindings/c/plait.hpp"

namespace plait::cli {

/// For prompts of ids, where the generator runs without a tokenizer so as not to delay the first token.
class TextTail {
 public:
  /// `prompt`: the preceding ids, on which a piece's leading blank depends.
  TextTail(const plait_api::Tokenizer& tokenizer, const std::vector<int32_t>& prompt);

  /// The text that `id` completes; incomplete characters are held back.
  std::string push(int32_t id);
  /// The held-back text.
  std::string finish();

 private:
  std::string fresh(bool whole);

  const plait_api::Tokenizer& tokenizer_;
  std::vector<int32_t> window_;  ///< the last ids
  size_t printed_ = 0;           ///< bytes of the window's text that were returned
};

}  // namespace plait::cli
