#pragma once
// Parts of HTML pages.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace plait::cli {

/// Text with &, <, > and " escaped.
std::string escaped(const std::string& text);
std::string text_of(const nlohmann::ordered_json& value);
/// "1.5 MB"
std::string bytes_of(const nlohmann::ordered_json& value);

struct Column {
  const char* name;
  bool number = false;  ///< aligned to the right
};
/// Cells are HTML. "" without rows.
std::string table(const std::string& caption, const std::vector<Column>& columns,
                  const std::vector<std::vector<std::string>>& rows);
/// An entry of a list of class "facts".
std::string fact(const std::string& name, const std::string& value, const std::string& more);
/// A self-contained page. `title` is escaped.
std::string page(const std::string& title, const std::string& body);

}  // namespace plait::cli
