#include "bindings/cli/conversation.h"

#include <algorithm>

#include "bindings/cli/common.h"
#include "bindings/cli/mistakes.h"

namespace plait::cli {
namespace {

using Json = Conversation::Json;

bool is_role(const Json& message, const char* role) { return message.at("role") == role; }

/// The messages in a file's JSON; empty if it has none.
Json messages_in(const Json& file) {
  const Json list = file.is_object() && file.contains("messages") ? file.at("messages") : file;
  if (!list.is_array()) return {};
  for (const Json& message : list)
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string() ||
        !message.contains("content"))
      return {};
  return list;
}

}  // namespace

bool Conversation::drop_answer() {
  if (messages_.empty() || !is_role(messages_.back(), "assistant")) return false;
  messages_.pop_back();
  return true;
}

void Conversation::set_system(const std::string& text) {
  if (!messages_.empty() && is_role(messages_.front(), "system")) messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", text}});
}

void Conversation::reset() {
  const bool keeps = !messages_.empty() && is_role(messages_.front(), "system");
  messages_.resize(keeps ? 1 : 0);
}

std::string Conversation::text() const {
  return Json(messages_).dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Conversation::save(const std::string& path) const {
  const Json file = {{"messages", messages_}};
  write_file(path, file.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void Conversation::load(const std::string& path) {
  const Json list = messages_in(Json::parse(read_all(path), nullptr, false));
  if (list.empty())
    throw UsageError("\"" + path + "\" is no conversation",
                     "it is one JSON object {\"messages\": [{\"role\", \"content\"}, ...]}, as /save writes it");
  messages_.assign(list.begin(), list.end());
}

void Conversation::set(const std::string& key, const std::string& value) {
  if (value.empty()) {
    settings_.erase(key);
    return;
  }
  std::vector<std::string> keys;
  for (const auto& row : option_rows("request")) keys.push_back(row.at("key"));
  if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
    const std::string near = closest(key, keys);
    throw UsageError("an answer has no option " + key,
                     near.empty() ? "`plait options` lists them: those for a request" : "did you mean " + near + "?");
  }
  plait_api::Options checked;
  set_option(checked, key, value);
  settings_[key] = value;
}

plait_api::Options Conversation::options(const std::map<std::string, std::string>& defaults) const {
  plait_api::Options out;
  std::map<std::string, std::string> all = settings_;
  all.insert(defaults.begin(), defaults.end());
  for (const auto& [key, value] : all) out.set(key, value);
  return out;
}

}  // namespace plait::cli
