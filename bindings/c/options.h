#pragma once
// Options: one table of keys, which checks values as they are set, and describes itself.
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/tensor.h"

namespace plait::c_api {

/// Kinds of objects that take an option; there may be several.
enum Scope : unsigned {
  for_model = 1,
  for_generator = 2,
  for_request = 4,
  for_session = 8,
  for_tokenizer = 16,
  for_world = 32,
  for_trainer = 64,
  for_export = 128,
  for_server = 256,
  for_plan = 512
};

/// A maximum that is no limit: integers below 2^53 are exact as double.
inline constexpr double huge = 9e15;

struct OptionRow {
  enum class Type {
    integer,
    real,
    boolean,  ///< true, false, 1, 0
    text,
    choice,  ///< one word of `choices`
    bytes,   ///< an integer with optional suffix K, M or G (powers of 1024)
    ids,     ///< 1,5,7
    biases,  ///< 5:-1.5,7:100
    tensor,
  };
  std::string_view key;
  Type type;
  unsigned scopes;
  std::string_view default_text;
  std::string_view doc;
  double minimum = 0, maximum = 0;  ///< of numbers, inclusive; no limits if equal
  std::string_view choices = {};    ///< separated by blanks
  bool repeats = false;
  std::string (*more)() = nullptr;  ///< appended to `doc`: what other tables list
};

inline constexpr std::pair<Scope, std::string_view> scope_names[] = {
    {for_model, "model"},     {for_generator, "generator"}, {for_request, "request"},
    {for_session, "session"}, {for_tokenizer, "tokenizer"}, {for_world, "world"},
    {for_trainer, "trainer"}, {for_export, "export"},       {for_server, "server"},
    {for_plan, "plan"}};

std::span<const OptionRow> option_rows();
/// What its values are, for messages.
std::string type_text(const OptionRow& row);

/// Checked values by key.
class Settings {
 public:
  /// Throws Error(not_found) for an unknown key, Error(invalid_argument) for an invalid value.
  void set(std::string_view key, std::string_view value);
  void set(std::string_view key, Tensor tensor);
  /// Throws Error(invalid_argument) naming a key that is not for `scopes`.
  void check(unsigned scopes) const;
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  /// These settings, but for some keys.
  Settings without(std::initializer_list<std::string_view> keys) const;
  /// These settings, with those of `other` as defaults.
  Settings or_else(const Settings& other) const;

  // The value, or the default of the key's row.
  int64_t integer(std::string_view key) const;  ///< also of bytes
  double real(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string text(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;  ///< of a key that repeats
  std::vector<int32_t> ids(std::string_view key) const;
  std::vector<std::pair<int32_t, float>> biases(std::string_view key) const;
  Tensor tensor(std::string_view key) const;  ///< not present if it is not set

  using Values = std::map<std::string, std::vector<std::string>, std::less<>>;
  /// The values as set.
  const Values& values() const { return values_; }

 private:
  Values values_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

/// JSON of plait_options_describe, and of plait_options_values. Throws Error(not_found) for an unknown kind.
std::string describe_options();
std::string option_values(const Settings& settings, std::string_view kind);
/// Of a kind's name. Throws Error(not_found).
Scope scope_of(std::string_view kind);

}  // namespace plait::c_api
