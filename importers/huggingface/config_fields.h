#pragma once
// The fields of config.json: with the defaults of transformers' classes, and a record of which were read.
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace plait::huggingface {

/// By make_defaults.py: "base" and "types" have the fields of the classes with their defaults, "names" what fields are called, too,
/// "text" the kind of text in models of more than that, "generation" the fields of generation_config.json that are taken from here.
extern const char* const defaults_json;

/// A configuration's text with all fields that its class has.
struct Completed {
  std::string type;             ///< model_type
  nlohmann::json fields;        ///< the file's, and defaults; null stays null
  std::set<std::string> given;  ///< those of the file
  std::set<std::string> known;  ///< those of the class, for `type`
};

/// Of config.json; of a model of more than text, the part for text. Throws Error(bad_model), or Error(unsupported) for a model_type
/// without defaults, which lists those with, for weights that are quantised, and for a head other than that of tokens.
Completed completed(const nlohmann::json& config);

/// config.json with these defaults in its place; those of tokens that end texts only if no generation_config.json tells them.
nlohmann::json with_defaults(const nlohmann::json& config, bool has_generation_config);

/// An object's fields. Those that are read are remembered. All throw Error(bad_model), naming the field. The object must outlive it.
class Fields {
 public:
  explicit Fields(const nlohmann::json& json, std::string place = {}) : json_(json), place_(std::move(place)) {}

  /// Whether there is a value other than null.
  bool has(const char* key) const;
  const nlohmann::json& at(const char* key) const { return json_.at(key); }
  int64_t size(const char* key, int64_t most = 1 << 24) const { return integer(key, 1, most); }
  int64_t integer(const char* key, int64_t least, int64_t most) const;
  int64_t size_or(const char* key, int64_t otherwise) const { return has(key) ? size(key) : otherwise; }
  double real(const char* key) const;
  double real_or(const char* key, double otherwise) const { return has(key) ? real(key) : otherwise; }
  bool flag_or(const char* key, bool otherwise) const;
  std::string text_or(const char* key, const std::string& otherwise) const;
  const nlohmann::json* object(const char* key) const;  ///< null: there is none
  /// Without effect here.
  void pass_over(std::initializer_list<const char*> keys) const;
  std::vector<std::string> unread() const;
  /// Keeps the name of a field within one of these, for unknown_fields.
  void note(std::string name) const { notes_.push_back(std::move(name)); }
  const std::vector<std::string>& notes() const { return notes_; }
  const std::string& place() const { return place_; }
  [[noreturn]] void fail(const char* key, std::string_view what) const;

 private:
  const nlohmann::json& json_;
  const std::string place_;  ///< in front of its fields' names: "rope_scaling."
  mutable std::set<std::string, std::less<>> read_;
  mutable std::vector<std::string> notes_;
};

/// Fields of the file that nothing read and that transformers does not know either: they change nothing there. Throws Error(unsupported)
/// for one that the class has, with a value that changes results.
std::vector<std::string> unknown_fields(const Completed& config, const Fields& fields);

}  // namespace plait::huggingface
