// plait ops, plait options: what the library says of itself.
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Cells in columns as wide as their widest, the last one free.
std::string columns(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      out += i + 1 < row.size() ? row[i] + std::string(widths[i] - row[i].size() + 2, ' ') : row[i];
    out += '\n';
  }
  return out;
}

std::string joined(const Json& list, const char* member) {
  std::string out;
  for (const Json& item : list) {
    std::string text = member ? item.at(member).get<std::string>() : item.get<std::string>();
    out += (out.empty() ? "" : ", ") + text;
  }
  return out;
}

}  // namespace

int ops(bool json) {
  std::string text = plait_api::tensor([](plait_tensor** out) { return plait_ops(nullptr, out); }).text();
  if (json) {
    answer(text + "\n");
    return exit_ok;
  }
  std::vector<std::vector<std::string>> rows = {{"OP", "KERNELS", "GRADIENT", "DIMS RULE"}};
  for (const Json& op : Json::parse(text)) {
    rows.push_back({op.at("op"), op.at("kernels").empty() ? "(program)" : joined(op.at("kernels"), "isa"),
                    op.at("gradient").is_null() ? "-" : op.at("gradient"),
                    op.at("dims") == "" ? "(whole)" : op.at("dims").get<std::string>()});
  }
  answer(columns(rows));
  return exit_ok;
}

int options(bool json) {
  std::string text = plait_api::tensor(plait_options_describe).text();
  if (json) {
    answer(text + "\n");
    return exit_ok;
  }
  std::vector<std::vector<std::string>> rows = {{"KEY", "FOR", "DEFAULT", "MEANING"}};
  for (const Json& option : Json::parse(text)) {
    rows.push_back({option.at("key"), joined(option.at("for"), nullptr), option.at("default"), option.at("doc")});
  }
  answer(columns(rows));
  return exit_ok;
}

}  // namespace plait::cli
