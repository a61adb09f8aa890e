#include "bindings/cli/text_tail.h"

namespace plait::cli {
namespace {

// Decoding restarts from the last `context` ids when the window has `most`, so a push has constant cost.
constexpr size_t context = 16, most = 64;
constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD: decoded from an incomplete character

std::vector<int32_t> last_of(const std::vector<int32_t>& ids) {
  return {ids.end() - static_cast<std::ptrdiff_t>(std::min(context, ids.size())), ids.end()};
}

}  // namespace

TextTail::TextTail(const plait_api::Tokenizer& tokenizer, const std::vector<int32_t>& prompt)
    : tokenizer_(tokenizer), window_(last_of(prompt)), printed_(tokenizer.decode(window_).size()) {}

std::string TextTail::fresh(bool whole) {
  std::string text = tokenizer_.decode(window_);
  bool open = !whole && text.size() >= replacement.size() &&
              text.compare(text.size() - replacement.size(), replacement.size(), replacement) == 0;
  if (open || text.size() <= printed_) return {};
  std::string out = text.substr(printed_);
  printed_ = text.size();
  return out;
}

std::string TextTail::push(int32_t id) {
  window_.push_back(id);
  std::string out = fresh(false);
  if (!out.empty() && window_.size() >= most) {
    window_ = last_of(window_);
    printed_ = tokenizer_.decode(window_).size();
  }
  return out;
}

std::string TextTail::finish() { return fresh(true); }

}  // namespace plait::cli
