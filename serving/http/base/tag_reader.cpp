#include "serving/http/base/tag_reader.h"

#include <algorithm>
#include <utility>

namespace plait::http {
namespace {

constexpr size_t most_of_key = 4096;
constexpr std::string_view blank_bytes = " \n\r\t";

/// The blanks at the beginning of a mark, or at its end.
std::string blanks_before(const std::string& mark) { return mark.substr(0, after_blanks(mark, 0)); }
std::string blanks_after(const std::string& mark) { return mark.substr(mark.find_last_not_of(blank_bytes) + 1); }

/// A text within a JSON string.
std::string within_json(const std::string& text) {
  const std::string quoted = dumped(Json(text));
  return quoted.substr(1, quoted.size() - 2);
}

/// What a JSON value is, by its first byte; 0 if the text is not JSON.
unsigned type_of_json(const std::string& text) {
  if (text.empty() || !Json::accept(text)) return 0;
  switch (text.front()) {
    case '"': return text_value;
    case '{': return object_value;
    case '[': return array_value;
    case 'n': return null_value;
    case 't':
    case 'f': return boolean_value;
    default: break;
  }
  return text.find_first_of(".eE") == std::string::npos ? number_value : fraction_value;
}

/// The words that Python has for JSON's: what a model has seen where a template writes values by it.
std::string json_word(const std::string& text) {
  constexpr std::pair<const char*, const char*> words[] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (const auto& [python, json] : words)
    if (text == python) return json;
  return text;
}

}  // namespace

unsigned type_read(const std::string& text) {
  const unsigned type = type_of_json(json_word(trimmed_mark(text)));
  return type == 0 ? static_cast<unsigned>(text_value) : type;
}

size_t after_blanks(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(blank_bytes, at), text.size());
}

std::string trimmed_mark(std::string text) {
  text.resize(text.find_last_not_of(blank_bytes) + 1);
  return text.substr(after_blanks(text, 0));
}

size_t begun(const std::string& text, const std::string& mark) {
  for (size_t length = std::min(text.size(), mark.empty() ? 0 : mark.size() - 1); length > 0; --length)
    if (text.compare(text.size() - length, length, mark, 0, length) == 0) return length;
  return 0;
}

Match match_mark(std::string_view text, size_t& at, std::string_view mark) {
  size_t i = after_blanks(text, at);
  for (size_t j = after_blanks(mark, 0); j < mark.size();) {
    if (blank_bytes.find(mark[j]) != std::string_view::npos) {
      j = after_blanks(mark, j);
      i = after_blanks(text, i);
      continue;
    }
    if (i == text.size()) return Match::part;
    if (text[i++] != mark[j++]) return Match::no;
  }
  at = i;
  return Match::whole;
}

void TagReader::begin(const ArgumentTypes& types) {
  types_ = types;
  place_ = Place::key;
  some_ = false;
}

bool TagReader::read(std::string& held, bool last, std::string& out) {
  for (;;) {
    const Place before = place_;
    switch (place_) {
      case Place::key:
        if (read_key(held, out)) return true;
        break;
      case Place::name:
        if (!read_name(held, out)) return true;
        break;
      case Place::text:
      case Place::value: read_value(held, last, out);
    }
    if (place_ == before) return false;
  }
}

/// Whether there is no other argument.
bool TagReader::read_key(std::string& held, std::string& out) {
  size_t at = 0;
  const Match match = match_mark(held, at, tags_.open);
  if (match == Match::part) return false;  // at the last, the call is cut here
  if (match == Match::whole) {
    held.erase(0, at);
    place_ = Place::name;
    return false;
  }
  out += std::exchange(some_, true) ? "}" : "{}";
  return true;
}

/// Whether it may be a key still.
bool TagReader::read_name(std::string& held, std::string& out) {
  const std::string text_mark = trimmed_mark(tags_.before_text), json_mark = trimmed_mark(tags_.before_json);
  const size_t text_at = held.find(text_mark), json_at = held.find(json_mark), end = std::min(text_at, json_at);
  if (end == std::string::npos) {
    if (held.size() < most_of_key) return true;
    out += std::exchange(some_, true) ? "}" : "{}";
    return false;
  }
  const bool text = text_at <= json_at;
  const std::string& mark = text ? tags_.before_text : tags_.before_json;
  // The blanks of the mark are not the value's.
  size_t begin = end + (text ? text_mark : json_mark).size();
  for (const char one : blanks_after(mark)) {
    if (begin == held.size()) return true;  // they are to come
    if (held[begin] != one) break;
    ++begin;
  }
  const std::string key = trimmed_mark(held.substr(0, end));
  held.erase(0, begin);
  auto known = types_.find(key);
  if (known == types_.end()) known = types_.find("");
  type_ = known == types_.end() ? static_cast<unsigned>(any_value) : known->second;
  // Other marks before texts tell what it is.
  if (tags_.before_text != tags_.before_json)
    type_ = text ? static_cast<unsigned>(text_value) : type_ & ~static_cast<unsigned>(text_value);
  place_ = tags_.raw_text && type_ == text_value ? Place::text : Place::value;
  out += std::exchange(some_, true) ? ", " : "{";
  out += dumped(Json(key)) + (place_ == Place::text ? ": \"" : ": ");
  return true;
}

size_t TagReader::end_of_value(const std::string& held, size_t& close) const {
  const std::string mark = trimmed_mark(tags_.close), before = blanks_before(tags_.close);
  const size_t found = held.find(mark);
  if (found == std::string::npos) return found;
  close = found + mark.size();
  return std::string_view(held).substr(0, found).ends_with(before) ? found - before.size() : found;
}

void TagReader::read_value(std::string& held, bool last, std::string& out) {
  size_t close = 0;
  const size_t end = end_of_value(held, close);
  if (end != std::string::npos) {
    const std::string value = held.substr(0, end);
    out += place_ == Place::text ? within_json(value) + "\"" : json_of(value);
    held.erase(0, close);
    place_ = Place::key;
  } else if (place_ == Place::text) {
    const std::string mark = trimmed_mark(tags_.close);
    const size_t keep = last ? 0 : std::max(begun(held, mark), begun(held, blanks_before(tags_.close) + mark));
    out += within_json(held.substr(0, held.size() - keep));
    held.erase(0, held.size() - keep);
  }
}

std::string TagReader::json_of(const std::string& text) const {
  const std::string value = json_word(trimmed_mark(text));
  const unsigned type = type_of_json(value);
  // Where texts are not JSON, what has quotes is a text with quotes.
  const bool json = type != 0 && (type != text_value || !tags_.raw_text);
  if (json && ((type & type_) != 0 || (type_ & text_value) == 0)) return value;
  return dumped(Json(text));
}

}  // namespace plait::http
