// Options that were set: checked by the table, and read.
#include <cmath>
#include <limits>

#include "bindings/c/options.h"
#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::c_api {
namespace {

std::string scope_text(unsigned scopes) {
  std::vector<std::string> names;
  for (auto [scope, name] : scope_names) {
    if (scopes & scope) names.emplace_back(name);
  }
  return join(names, ", ");
}

const OptionRow* find_row(std::string_view key) {
  for (const OptionRow& row : option_rows()) {
    if (row.key == key) return &row;
  }
  return nullptr;
}

/// Throws Error(not_found).
const OptionRow& known_row(std::string_view key) {
  if (const OptionRow* row = find_row(key)) return *row;
  std::vector<std::string> keys;
  for (const OptionRow& each : option_rows()) keys.emplace_back(each.key);
  throw Error(Code::not_found, cat("there is no option ", quote(key)), cat("the options are ", join(keys, ", ")));
}

}  // namespace

std::string type_text(const OptionRow& row) {
  auto limits = [&](std::string_view noun) {
    if (row.minimum == row.maximum) return std::string(noun);
    bool open = row.maximum >= huge;
    return open ? cat(noun, " >= ", row.minimum) : cat(noun, " from ", row.minimum, " to ", row.maximum);
  };
  switch (row.type) {
    case OptionRow::Type::integer: return limits("integer");
    case OptionRow::Type::real: return limits("number");
    case OptionRow::Type::boolean: return "true or false";
    case OptionRow::Type::text: return "text";
    case OptionRow::Type::choice: return cat("one of ", join(split(row.choices, ' '), ", "));
    case OptionRow::Type::bytes: return "bytes, optionally with suffix K, M or G";
    case OptionRow::Type::ids: return "token ids separated by commas";
    case OptionRow::Type::biases: return "id:bias pairs separated by commas, biases that f32 has";
    case OptionRow::Type::tensor: return "a tensor";
  }
  return {};
}

namespace {

bool parse_bytes(std::string_view text, int64_t& out) {
  int shift = 0;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K': shift = 10; break;
      case 'M': shift = 20; break;
      case 'G': shift = 30; break;
      default: break;
    }
  }
  if (!parse_int(shift ? text.substr(0, text.size() - 1) : text, out)) return false;
  if (out < 0 || out > (std::numeric_limits<int64_t>::max() >> shift)) return false;
  out <<= shift;
  return true;
}

bool parse_bool(std::string_view text, bool& out) {
  out = text == "true" || text == "1";
  return out || text == "false" || text == "0";
}

bool parse_id(std::string_view text, int32_t& out) {
  int64_t wide = 0;
  if (!parse_int(trimmed(text), wide) || wide < 0 || wide > std::numeric_limits<int32_t>::max()) return false;
  out = static_cast<int32_t>(wide);
  return true;
}

bool parse_ids(std::string_view text, std::vector<int32_t>& out) {
  if (trimmed(text).empty()) return true;
  for (const std::string& part : split(text, ',')) {
    if (!parse_id(part, out.emplace_back())) return false;
  }
  return true;
}

bool parse_biases(std::string_view text, std::vector<std::pair<int32_t, float>>& out) {
  if (trimmed(text).empty()) return true;
  for (const std::string& part : split(text, ',')) {
    size_t colon = part.find(':');
    auto& [id, bias] = out.emplace_back();
    double value = 0;
    if (colon == std::string::npos || !parse_id(std::string_view(part).substr(0, colon), id)) return false;
    constexpr double most = std::numeric_limits<float>::max(), never = -std::numeric_limits<double>::infinity();
    if (!parse_double(trimmed(std::string_view(part).substr(colon + 1)), value)) return false;
    if (!(std::abs(value) <= most || value == never)) return false;
    bias = static_cast<float>(value);
  }
  return true;
}

bool fits(const OptionRow& row, std::string_view value) {
  auto within = [&](double number) {
    return row.minimum == row.maximum || (number >= row.minimum && number <= row.maximum);  // false for NaN
  };
  int64_t integer = 0;
  double real = 0;
  bool boolean = false;
  std::vector<int32_t> ids;
  std::vector<std::pair<int32_t, float>> biases;
  switch (row.type) {
    case OptionRow::Type::integer: return parse_int(value, integer) && within(static_cast<double>(integer));
    case OptionRow::Type::bytes: return parse_bytes(value, integer) && within(static_cast<double>(integer));
    case OptionRow::Type::real: return parse_double(value, real) && within(real);
    case OptionRow::Type::boolean: return parse_bool(value, boolean);
    case OptionRow::Type::ids: return parse_ids(value, ids);
    case OptionRow::Type::biases: return parse_biases(value, biases);
    case OptionRow::Type::text: return true;
    case OptionRow::Type::tensor: return false;
    case OptionRow::Type::choice:
      for (const std::string& choice : split(row.choices, ' ')) {
        if (value == choice) return true;
      }
      return false;
  }
  return false;
}

}  // namespace

void Settings::set(std::string_view key, std::string_view value) {
  const OptionRow& row = known_row(key);
  if (!fits(row, value))
    throw Error(Code::invalid_argument, cat("option ", key, " is ", quote(value), ", expected ", type_text(row)));
  auto& values = values_[std::string(key)];
  if (!row.repeats) values.clear();
  values.emplace_back(value);
}

void Settings::set(std::string_view key, Tensor tensor) {
  if (const OptionRow& row = known_row(key); row.type != OptionRow::Type::tensor)
    throw Error(Code::invalid_argument, cat("option ", key, " is a tensor, expected ", type_text(row)));
  tensors_.insert_or_assign(std::string(key), std::move(tensor));
}

void Settings::check(unsigned scopes) const {
  const auto check_key = [&](std::string_view key) {
    const OptionRow* row = find_row(key);
    if (row->scopes & scopes) return;
    throw Error(Code::invalid_argument, cat("option ", key, " is not for a ", scope_text(scopes)),
                cat("it is for: ", scope_text(row->scopes)));
  };
  for (const auto& [key, values] : values_) check_key(key);
  for (const auto& [key, tensor] : tensors_) check_key(key);
}

Settings Settings::without(std::initializer_list<std::string_view> keys) const {
  Settings out = *this;
  for (const std::string_view key : keys)
    if (const auto found = out.values_.find(key); found != out.values_.end()) out.values_.erase(found);
  return out;
}

Settings Settings::or_else(const Settings& other) const {
  Settings out = *this;
  out.values_.insert(other.values_.begin(), other.values_.end());  // keeps existing ones
  out.tensors_.insert(other.tensors_.begin(), other.tensors_.end());
  return out;
}

Tensor Settings::tensor(std::string_view key) const {
  auto found = tensors_.find(key);
  return found != tensors_.end() ? found->second : Tensor();
}

std::string Settings::text(std::string_view key) const {
  auto found = values_.find(key);
  return found != values_.end() ? found->second.back() : std::string(find_row(key)->default_text);
}

std::vector<std::string> Settings::texts(std::string_view key) const {
  auto found = values_.find(key);
  return found != values_.end() ? found->second : std::vector<std::string>{};
}

// Values were checked, and defaults are valid: parsing succeeds.
int64_t Settings::integer(std::string_view key) const {
  int64_t out = 0;
  if (find_row(key)->type == OptionRow::Type::bytes) {
    parse_bytes(text(key), out);
  } else {
    parse_int(text(key), out);
  }
  return out;
}

double Settings::real(std::string_view key) const {
  double out = 0;
  parse_double(text(key), out);
  return out;
}

bool Settings::boolean(std::string_view key) const {
  bool out = false;
  parse_bool(text(key), out);
  return out;
}

std::vector<int32_t> Settings::ids(std::string_view key) const {
  std::vector<int32_t> out;
  parse_ids(text(key), out);
  return out;
}

std::vector<std::pair<int32_t, float>> Settings::biases(std::string_view key) const {
  std::vector<std::pair<int32_t, float>> out;
  parse_biases(text(key), out);
  return out;
}

Scope scope_of(std::string_view kind) {
  std::vector<std::string> known;
  for (const auto& [scope, name] : scope_names) {
    if (name == kind) return scope;
    known.emplace_back(name);
  }
  throw Error(Code::not_found, cat("no kind of object is named ", quote(kind)), cat("there are ", join(known, ", ")));
}

}  // namespace plait::c_api
