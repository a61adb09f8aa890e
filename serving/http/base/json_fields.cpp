#include "serving/http/base/json_fields.h"

#include "serving/http/base/failure.h"

namespace plait::http {

constexpr int most_levels = 64;

Json parse_body(std::string_view text) {
  const auto shallow = [](int depth, Json::parse_event_t, Json&) {
    if (depth > most_levels) throw HttpError(400, "the body has more than 64 levels", "invalid_json");
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), shallow);
  } catch (const Json::exception& error) {
    throw HttpError(400, std::string("the body is not JSON: ") + error.what(), "invalid_json");
  }
}

std::string dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object()) reject(path_, "expected an object");
}

std::string Fields::path(std::string_view name) const {
  return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
}

const Json* Fields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::required(const char* name) const {
  if (const Json* found = find(name)) return *found;
  throw HttpError(400, path(name) + " is missing", "missing_required_parameter", path(name));
}

std::optional<std::string> Fields::text(const char* name) const {
  const Json* found = find(name);
  if (!found) return std::nullopt;
  if (!found->is_string()) reject(path(name), "expected a text");
  return found->get<std::string>();
}

std::string Fields::required_text(const char* name) const {
  required(name);
  return *text(name);
}

std::optional<bool> Fields::flag(const char* name) const {
  const Json* found = find(name);
  if (!found) return std::nullopt;
  if (!found->is_boolean()) reject(path(name), "expected true or false");
  return found->get<bool>();
}

std::optional<int64_t> Fields::integer(const char* name, int64_t low, int64_t high) const {
  const std::optional<double> found = number(name, static_cast<double>(low), static_cast<double>(high));
  if (!found) return std::nullopt;
  const Json& value = *find(name);
  if (value.is_number_integer()) return value.get<int64_t>();
  const auto whole = static_cast<int64_t>(*found);
  if (static_cast<double>(whole) != *found) reject(path(name), "expected an integer");
  return whole;
}

std::optional<double> Fields::number(const char* name, double low, double high) const {
  const Json* found = find(name);
  if (!found) return std::nullopt;
  if (!found->is_number()) reject(path(name), "expected a number");
  const auto value = found->get<double>();
  if (!(value >= low && value <= high))
    reject(path(name), "is " + dumped(*found) + ", expected " + dumped(Json(low)) + " to " + dumped(Json(high)));
  return value;
}

}  // namespace plait::http
