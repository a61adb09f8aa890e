#pragma once
// Regular expressions and letters' case, for ops on strings. Thread-safe.
#include <memory>
#include <string>
#include <string_view>

struct plait_text_pattern;

namespace plait {

/// A regular expression in RE2's syntax, as Rust's regex crate reads it: Unicode, no look-around, no back-references.
class Pattern {
 public:
  /// Throws Error(bad_model), with the place, for one that is damaged, and for one that takes more than the crate's 10 MB.
  explicit Pattern(std::string_view pattern);
  /// Whether the whole text matches, in time linear in it. Throws Error(invalid_argument) if it is no UTF-8.
  bool matches(std::string_view text) const;

 private:
  std::shared_ptr<plait_text_pattern> pattern_;
};

enum class LetterCase { lower, upper };
/// By Unicode's full mappings: of "straße" "STRASSE". Throws Error(invalid_argument) if the text is no UTF-8.
std::string in_case(std::string_view text, LetterCase to);

}  // namespace plait
