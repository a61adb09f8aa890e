// Options as JSON: all there are, and those of an object.
#include <nlohmann/json.hpp>

#include "bindings/c/options.h"
#include "core/base/text.h"

namespace plait::c_api {

std::string describe_options() {
  auto out = nlohmann::ordered_json::array();
  for (const OptionRow& row : option_rows()) {
    auto takers = nlohmann::ordered_json::array();
    for (const auto& [scope, name] : scope_names) {
      if (row.scopes & scope) takers.push_back(name);
    }
    out.push_back({{"key", row.key},
                   {"for", takers},
                   {"type", type_text(row)},
                   {"default", row.default_text},
                   {"repeats", row.repeats},
                   {"doc", row.more ? cat(row.doc, row.more()) : std::string(row.doc)}});
  }
  return out.dump(1);
}

std::string option_values(const Settings& settings, std::string_view kind) {
  const Scope scope = scope_of(kind);
  auto out = nlohmann::ordered_json::object();
  for (const OptionRow& row : option_rows()) {
    if (!(row.scopes & scope) || row.type == OptionRow::Type::tensor) continue;
    auto& value = out[std::string(row.key)];
    const bool number = row.type == OptionRow::Type::integer || row.type == OptionRow::Type::bytes || row.type == OptionRow::Type::real;
    if (row.repeats) value = settings.texts(row.key);
    else if (number && settings.text(row.key).empty()) value = "";
    else if (row.type == OptionRow::Type::real) value = settings.real(row.key);
    else if (number) value = settings.integer(row.key);
    else if (row.type == OptionRow::Type::boolean) value = settings.boolean(row.key);
    else value = settings.text(row.key);
  }
  return out.dump(1);
}

}  // namespace plait::c_api
