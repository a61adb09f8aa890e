#pragma once
// Parts of grammars in Lark's syntax, as llguidance reads it, of texts that may have special tokens in them.
#include <string>

#include "bindings/c/plait.hpp"

namespace plait::http {

/// An expression that matches the mark: texts, and special tokens by number. "" of an empty one; otherwise it ends in a blank.
std::string lark_of(const std::string& mark, const plait_api::Tokenizer& tokenizer);
/// As `lark_of`, with an id that the template wrote as any of nine letters and digits, as Mistral's are.
std::string lark_with_ids(const std::string& mark, const plait_api::Tokenizer& tokenizer);
bool has_special(const std::string& mark, const plait_api::Tokenizer& tokenizer);

/// A terminal's part that matches the text itself.
std::string lark_text(const std::string& text);

/// Blanks between the parts of JSON, as the option json_schema has them: without a bound a model may write them without end.
constexpr const char* json_blanks = "\\x20|\\x0D?\\x0A[\\x20\\x09]{0,20}";

/// Any text.
constexpr const char* lark_any = "/(.|\\n)*/";

}  // namespace plait::http
