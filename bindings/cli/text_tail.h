#pragma once
// Text of token ids as they come, made with a tokenizer's decode alone.
#include <string>
#include <vector>

#include "bindings/c/plait.hpp"

namespace plait::cli {

/// For prompts of ids, where the generator runs without a tokenizer so that none stands before the first token.
class TextTail {
 public:
  /// Whether a piece begins with a blank depends on what stands before it: `prompt` is that.
  TextTail(const plait_api::Tokenizer& tokenizer, const std::vector<int32_t>& prompt);

  /// The text that `id` completes; characters whose bytes are still coming are held back.
  std::string push(int32_t id);
  /// What was held back.
  std::string finish();

 private:
  std::string fresh(bool whole);

  const plait_api::Tokenizer& tokenizer_;
  std::vector<int32_t> window_;  ///< the last ids
  size_t printed_ = 0;           ///< bytes of the window's text that were handed out
};

}  // namespace plait::cli
