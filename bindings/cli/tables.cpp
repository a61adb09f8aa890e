// plait ops, plait options: the library's tables.
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string listed(const Json& list, const char* member) {
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
    rows.push_back({op.at("op"), op.at("kernels").empty() ? "(program)" : listed(op.at("kernels"), "isa"),
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
    rows.push_back({option.at("key"), listed(option.at("for"), nullptr), option.at("default"), option.at("doc")});
  }
  answer(columns(rows));
  return exit_ok;
}

}  // namespace plait::cli
