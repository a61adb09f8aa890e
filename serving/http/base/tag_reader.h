#pragma once
// Arguments that a model writes as tags, read as the JSON object that callers get, as they come.
#include <map>
#include <string>
#include <string_view>

#include "serving/http/base/tool_format.h"

namespace plait::http {

/// What a value may be: bits of a set.
enum ValueTypes : unsigned {
  text_value = 1,
  number_value = 2,
  fraction_value = 4,  ///< a number that is no integer
  boolean_value = 8,
  null_value = 16,
  object_value = 32,
  array_value = 64,
  any_value = 127,
};
/// By argument, of those that a tool lists; "": of others.
using ArgumentTypes = std::map<std::string, unsigned>;

/// How much of a mark a text continues with. Blanks may be others than the mark's, or missing.
enum class Match { no, part, whole };
/// `at`: where the mark would begin, after blanks; if it is whole, then its end.
Match match_mark(std::string_view text, size_t& at, std::string_view mark);

/// What a text reads as, if it may be any value: text_value if it is no JSON, or a JSON string.
unsigned type_read(const std::string& text);
/// The next byte that is no blank, from `at` on; the end of the text if there is none.
size_t after_blanks(std::string_view text, size_t at);
/// A mark without the blanks around it.
std::string trimmed_mark(std::string text);
/// The length of the longest end of `text` that begins `mark`, without being all of it.
size_t begun(const std::string& text, const std::string& mark);

/// Of one call after the other. Texts are returned as they come, other values once they are complete: only then is it known what they are.
/// A value that is not of its type is a text if it is no JSON. Not thread-safe.
class TagReader {
 public:
  explicit TagReader(ArgumentTags tags) : tags_(std::move(tags)) {}

  /// Before a call's first argument.
  void begin(const ArgumentTypes& types);
  /// Takes from `held` what is read, and appends JSON to `out`. `last`: no more text comes. Whether the arguments have ended: what is
  /// held then is what follows them. A call that is cut has an object that is cut, too.
  bool read(std::string& held, bool last, std::string& out);

 private:
  enum class Place { key, name, text, value };
  bool read_key(std::string& held, std::string& out);
  bool read_name(std::string& held, std::string& out);
  void read_value(std::string& held, bool last, std::string& out);
  /// Where the value ends, and in `close` where its mark does; npos if it is not held yet.
  size_t end_of_value(const std::string& held, size_t& close) const;
  std::string json_of(const std::string& text) const;

  const ArgumentTags tags_;
  ArgumentTypes types_;
  Place place_ = Place::key;
  unsigned type_ = any_value;  ///< of the value
  bool some_ = false;          ///< the object has begun
};

}  // namespace plait::http
