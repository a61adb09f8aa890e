// A model as a page: what was recognised, its inputs, outputs and ops.
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/page.h"
#include "bindings/cli/plan.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::vector<std::string>>;

std::string cell(const Json& value) { return value.is_string() ? text_of(value) : escaped(value.dump()); }

std::string pairs_of(const Json& object) {
  std::string out;
  for (const auto& [name, value] : object.items()) out += (out.empty() ? "" : ", ") + escaped(name) + " " + cell(value);
  return out;
}

std::string operands(const char* caption, const Json& list) {
  Cells rows;
  for (const Json& one : list)
    rows.push_back({"<code>" + text_of(one.at("name")) + "</code>", "<code class=\"t\">" + text_of(one.at("type")) + "</code>"});
  return table(caption, {{"Name"}, {"Type"}}, rows);
}

/// Findings: node and what was found there.
std::string findings(const char* caption, const Json& list, const char* what) {
  Cells rows;
  for (const Json& one : list) rows.push_back({cell(one.at(what)), "<code>" + cell(one.at("node")) + "</code>"});
  return rows.empty() ? "" : "<details><summary>" + std::string(caption) + "</summary>\n" +
                                 table(caption, {{"What"}, {"Node"}}, rows) + "</details>\n";
}

std::string model_facts(const Json& info) {
  std::string out = "<dl class=\"facts\">\n";
  const auto parameters = info.at("parameters").get<double>();
  out += fact("Parameters", rounded(parameters, ""), bytes_of(info.at("weight_bytes")) + " of weights");
  if (!info.at("recognised").get<bool>()) {
    out += fact("Recognised", "no", text_of(info.at("why_not")) + "; it runs op by op, as written");
    return out + "</dl>\n";
  }
  const Json& kinds = info.at("layer_kinds");
  out += fact("Layers", cell(info.at("layers")), kinds.size() > 1 ? pairs_of(kinds) : "of a decoder");
  out += fact("Attention", cell(info.at("heads")) + " heads",
              cell(info.at("kv_heads")) + " of keys and values, of size " + cell(info.at("head_size")));
  out += fact("Vocabulary", cell(info.at("vocabulary")), "hidden size " + cell(info.at("hidden")));
  out += fact("Context", cell(info.at("context")), "tokens");
  out += fact("Cache per token", bytes_of(info.at("cache_bytes_per_token")),
              info.at("states") > 0 ? bytes_of(info.at("state_bytes_per_sequence")) + " of states per sequence" : "");
  return out + "</dl>\n";
}

std::string ops(const Json& info) {
  Cells rows;
  for (const auto& [name, count] : info.at("ops").items()) rows.push_back({escaped(name), cell(count)});
  return table("Nodes by op", {{"Op"}, {"Nodes", true}}, rows);
}

}  // namespace

std::string model_page(const Json& info, const std::string& model) {
  std::string out = model_facts(info);
  out += "<p class=\"soft\">" + cell(info.at("file")) + ", made by " + cell(info.at("producer")) + ", opsets " +
         pairs_of(info.at("opsets")) + "</p>\n";
  out += "<section>\n<h2>Interface</h2>\n" + operands("Inputs", info.at("inputs")) + operands("Outputs", info.at("outputs")) +
         "</section>\n<section>\n<h2>Graph</h2>\n" + ops(info);
  if (info.at("recognised").get<bool>())
    out += findings("Recognised patterns", info.at("found"), "pattern") + findings("Nodes as written", info.at("plain"), "op");
  return page(escaped(model), out + "</section>\n");
}

}  // namespace plait::cli
