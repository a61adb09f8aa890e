#pragma once
// Reading a body: every error has the path of the field and what was expected there.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace plait::http {

using Json = nlohmann::json;

/// Throws HttpError(400) for what is not JSON, or deeper than 64 levels.
Json parse_body(std::string_view text);

/// UTF-8 in any case: bytes that are not become U+FFFD.
std::string dumped(const Json& value);

/// Fields of an object. A null counts as absent. All throw HttpError(400).
class Fields {
 public:
  /// `path`: of the object, "" for the body.
  explicit Fields(const Json& object, std::string path = {});

  const Json* find(const char* name) const;
  const Json& required(const char* name) const;
  std::optional<std::string> text(const char* name) const;
  std::string required_text(const char* name) const;
  std::optional<bool> flag(const char* name) const;
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const;
  std::optional<double> number(const char* name, double low, double high) const;
  /// "messages[3].content"
  std::string path(std::string_view name) const;
  const Json& object() const { return object_; }

 private:
  const Json& object_;
  const std::string path_;
};

}  // namespace plait::http
