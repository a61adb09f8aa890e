#include "core/base/text.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "core/base/error.h"

namespace plait {

void append(std::string& out, std::string_view text) { out.append(text); }
void append(std::string& out, char letter) { out.push_back(letter); }

template <class Number>
static void append_number(std::string& out, Number number) {
  char digits[64];
  auto end = std::to_chars(digits, digits + sizeof digits, number);
  out.append(digits, end.ptr);
}

void append(std::string& out, int64_t number) { append_number(out, number); }
void append(std::string& out, uint64_t number) { append_number(out, number); }
void append(std::string& out, double number) { append_number(out, number); }

/// Length of the valid UTF-8 sequence at the start of `text`, 0 if invalid.
static size_t utf8_length(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned char first = byte(0);
  if (first < 0x80) return 1;
  size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  bool overlong = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  bool outside = (first == 0xED && byte(1) > 0x9F) || (first == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : length;
}

std::string quote(std::string_view text, size_t limit) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    if (i >= limit) {
      out += "...";
      break;
    }
    unsigned char c = static_cast<unsigned char>(text[i]);
    size_t length = utf8_length(text.substr(i));
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i++];
    } else if (c == '\n') {
      out += "\\n";
      ++i;
    } else if (c < 0x20 || c == 0x7F || length == 0) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", c);
      out += escape;
      ++i;
    } else {
      out.append(text.substr(i, length));
      i += length;
    }
  }
  return out + "\"";
}

std::string unquote(std::string_view literal) {
  auto bad = [&] { return Error(Code::invalid_argument, cat("not a quoted string: ", quote(literal))); };
  if (literal.size() < 2 || literal.front() != '"' || literal.back() != '"') throw bad();
  std::string_view body = literal.substr(1, literal.size() - 2);
  std::string out;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      out += body[i];
      continue;
    }
    if (++i >= body.size()) throw bad();
    if (body[i] == 'n') {
      out += '\n';
    } else if (body[i] == 'x') {
      unsigned value = 0;
      if (i + 2 >= body.size()) throw bad();
      auto end = std::from_chars(body.data() + i + 1, body.data() + i + 3, value, 16);
      if (end.ptr != body.data() + i + 3) throw bad();
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += body[i];
    }
  }
  return out;
}

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end == std::string_view::npos ? end : end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

template <class Number>
static bool parse_whole(std::string_view text, Number& out) {
  auto end = std::from_chars(text.data(), text.data() + text.size(), out);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && !text.empty();
}

bool parse_int(std::string_view text, int64_t& out) { return parse_whole(text, out); }
bool parse_double(std::string_view text, double& out) { return parse_whole(text, out); }

std::string human_bytes(int64_t bytes) {
  static const char* const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double amount = static_cast<double>(bytes);
  int unit = 0;
  while (amount >= 999.5 && unit < 5) amount /= 1000, ++unit;
  char out[32];
  std::snprintf(out, sizeof out, unit && amount < 99.95 ? "%.3g %s" : "%.0f %s", amount, units[unit]);
  return out;
}

size_t misfit(std::string_view pattern, std::string_view name) {
  std::vector<size_t> row(name.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (char letter : pattern) {
    size_t before = row[0];  // of the row above, one to the left
    row[0] += letter == '*' ? 0 : 1;
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t above = row[j];
      if (letter == '*') row[j] = std::min(above, row[j - 1]);
      else row[j] = std::min({before + (letter == '?' || letter == name[j - 1] ? 0 : 1), above + 1, row[j - 1] + 1});
      before = above;
    }
  }
  return row.back();
}

}  // namespace plait
