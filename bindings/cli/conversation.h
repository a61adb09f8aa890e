#pragma once
// What a chat has said so far, and how it continues: messages, and the settings of requests.
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bindings/c/plait.hpp"

namespace plait::cli {

class Conversation {
 public:
  using Json = nlohmann::ordered_json;

  /// Messages {"role", "content"}, the oldest first.
  const std::vector<Json>& messages() const { return messages_; }
  void add(const std::string& role, const std::string& content) {
    messages_.push_back({{"role", role}, {"content", content}});
  }
  void drop_last() { messages_.pop_back(); }
  /// Takes the last answer back, with nothing else after its question; false if there is none.
  bool drop_answer();
  /// Replaces the system message, which comes first; "": removes it.
  void set_system(const std::string& text);
  /// Drops all but the system message.
  void reset();
  /// As JSON, for the chat template. Bytes that are no UTF-8 are replaced.
  std::string text() const;

  /// One JSON line {"messages": [...]}, which is also a line of training data. Throws UsageError.
  void save(const std::string& path) const;
  /// Such a file, or a JSON list of messages. Throws UsageError; nothing is changed then.
  void load(const std::string& path);

  /// Sets a request's option; "": back to its default. Throws UsageError.
  void set(const std::string& key, const std::string& value);
  /// In order of their names.
  const std::map<std::string, std::string>& settings() const { return settings_; }
  /// `defaults`: for those that are not set.
  plait_api::Options options(const std::map<std::string, std::string>& defaults) const;

 private:
  std::vector<Json> messages_;
  std::map<std::string, std::string> settings_;
};

}  // namespace plait::cli
