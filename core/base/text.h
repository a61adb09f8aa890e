#pragma once
// Text helpers; the supported compilers lack <format>.
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace plait {

void append(std::string& out, std::string_view text);
void append(std::string& out, int64_t number);
void append(std::string& out, uint64_t number);
void append(std::string& out, double number);  ///< the shortest form that reads back to the same number
void append(std::string& out, char letter);

/// Concatenates strings and numbers: cat("node ", name, " has ", 3, " inputs").
template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  auto one = [&out](const auto& part) {
    using Part = std::decay_t<decltype(part)>;
    if constexpr (std::is_same_v<Part, bool>) append(out, std::string_view(part ? "true" : "false"));
    else if constexpr (std::is_same_v<Part, char>) append(out, part);
    else if constexpr (std::is_floating_point_v<Part>) append(out, static_cast<double>(part));
    else if constexpr (std::is_integral_v<Part> && std::is_signed_v<Part>) append(out, static_cast<int64_t>(part));
    else if constexpr (std::is_integral_v<Part>) append(out, static_cast<uint64_t>(part));
    else append(out, std::string_view(part));
  };
  (one(parts), ...);
  return out;
}

/// `text` in double quotes, with control characters, quotes, backslashes and invalid UTF-8 escaped (\xNN), truncated
/// after `limit` bytes: safe to print from any file. The inverse is `unquote`.
std::string quote(std::string_view text, size_t limit = 200);

/// The inverse of `quote` for text that was not truncated. Throws Error(invalid_argument) on a malformed literal.
std::string unquote(std::string_view literal);

std::string join(const std::vector<std::string>& parts, std::string_view separator);

/// Splits at every `separator`; "a,,b" has three parts, "" has one empty part.
std::vector<std::string> split(std::string_view text, char separator);

/// Without leading and trailing blanks.
std::string_view trimmed(std::string_view text);

/// The whole text as a number; false if it is not one, or does not fit.
bool parse_int(std::string_view text, int64_t& out);
bool parse_double(std::string_view text, double& out);

/// "1.07 GB": powers of ten, three digits.
std::string human_bytes(int64_t bytes);

/// Edit distance between `name` and `pattern`, in which "*" matches any letters at no cost and "?" one; 0: a match
/// (Levenshtein).
size_t misfit(std::string_view pattern, std::string_view name);

}  // namespace plait
