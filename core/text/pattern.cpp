#include "core/text/pattern.h"

#include <algorithm>

#include "core/text/abi_calls.h"

namespace plait {

Pattern::Pattern(std::string_view pattern) {
  plait_text_pattern* made = nullptr;
  text_abi::run(
      [&](plait_text_error* error) { return plait_text_pattern_create(text_abi::view(pattern), &made, error); });
  pattern_ = {made, plait_text_pattern_free};
}

bool Pattern::matches(std::string_view text) const {
  bool out = false;
  text_abi::run([&](plait_text_error* error) {
    return plait_text_pattern_match(pattern_.get(), text_abi::view(text), &out, error);
  });
  return out;
}

std::string in_case(std::string_view text, LetterCase to) {
  const bool upper = to == LetterCase::upper;
  // Most texts are ASCII.
  if (std::all_of(text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) < 0x80; })) {
    std::string out(text);
    for (char& letter : out) {
      if (upper ? letter >= 'a' && letter <= 'z' : letter >= 'A' && letter <= 'Z')
        letter = static_cast<char>(letter ^ 0x20);
    }
    return out;
  }
  return text_abi::take_text([&](plait_text_bytes* out, plait_text_error* error) {
    return plait_text_change_case(text_abi::view(text), upper, out, error);
  });
}

}  // namespace plait
