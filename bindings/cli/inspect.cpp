// plait inspect: describes a model, what was recognised in it, and its plan on a mesh.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/plan.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string plain(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string line(const std::string& name, const std::string& value) {
  std::string out = name;
  out.resize(std::max<size_t>(out.size() + 2, 16), ' ');
  return out + value + "\n";
}

std::string pairs(const Json& object) {
  std::string out;
  for (const auto& [name, value] : object.items()) out += (out.empty() ? "" : ", ") + name + " " + plain(value);
  return out;
}

std::string operands(const Json& list, const std::string& noun) {
  std::string out;
  constexpr size_t most = 6;  // a language model has dozens of cache tensors
  for (size_t i = 0; i < list.size(); ++i) {
    if (i == most) return out + line("", "and " + std::to_string(list.size() - most) + " more (--json lists them)");
    out += line(i == 0 ? noun : "", plain(list[i].at("name")) + "  " + plain(list[i].at("type")));
  }
  return out;
}

/// Findings, a line per kind: its count and its first nodes.
std::string findings(const Json& list, const std::string& noun, const char* what) {
  constexpr size_t most = 3;
  std::map<std::string, std::vector<std::string>> kinds;
  for (const Json& one : list) kinds[plain(one.at(what))].push_back(plain(one.at("node")));
  std::string out;
  for (const auto& [kind, nodes] : kinds) {
    std::string places;
    for (size_t i = 0; i < std::min(most, nodes.size()); ++i)
      places += (i ? ", " : "") + (nodes[i].empty() ? "a node without a name" : nodes[i]);
    if (nodes.size() > most) places += ", ...";
    out += line(out.empty() ? noun : "", std::to_string(nodes.size()) + " x " + kind + "  " + places);
  }
  return out;
}

std::string facts_table(const Json& info) {
  std::string out = line("file", plain(info.at("file")));
  out += line("made by", plain(info.at("producer")) + ", opsets " + pairs(info.at("opsets")));
  out += operands(info.at("inputs"), "inputs") + operands(info.at("outputs"), "outputs");
  out += line("nodes", plain(info.at("nodes")) + ": " + pairs(info.at("ops")));
  out += line("parameters", rounded(info.at("parameters").get<double>(), ""));
  out += line("weights", rounded(info.at("weight_bytes").get<double>(), "B"));
  if (!info.at("recognised").get<bool>()) {
    out += line("recognised", "no: " + plain(info.at("why_not"))) + line("", "it runs op by op, as written");
    for (const Json& one : info.at("obstacles"))
      if (one != info.at("why_not")) out += line("stopped at", plain(one));
    return out;
  }
  out += line("recognised", "a decoder");
  const Json& kinds = info.at("layer_kinds");
  out += line("layers", plain(info.at("layers")) + (kinds.size() > 1 ? ": " + pairs(kinds) : ""));
  const std::pair<const char*, const char*> rows[] = {
      {"heads", "heads"},     {"kv heads", "kv_heads"},  {"head size", "head_size"},
      {"windows", "windows"}, {"hidden size", "hidden"}, {"vocabulary", "vocabulary"},
      {"context", "context"}, {"norm", "norm"},          {"activation", "activation"}};
  for (auto [name, key] : rows) {
    if (!info.at(key).is_null() && plain(info.at(key)) != "") out += line(name, plain(info.at(key)));
  }
  out += findings(info.at("found"), "found", "pattern") + findings(info.at("plain"), "stayed plain", "op");
  std::string cache = rounded(info.at("cache_bytes_per_token").get<double>(), "B") + " per token";
  if (info.at("states") > 0)
    cache += ", " + rounded(info.at("state_bytes_per_sequence").get<double>(), "B") + " of states per sequence";
  return out + line("cache", cache);
}

}  // namespace

int inspect(const InspectArguments& arguments) {
  const bool in_stages = arguments.mesh.find("pipeline") != std::string::npos;
  if (arguments.generates && !in_stages)
    throw UsageError("--generate describes pipeline stages: it needs --mesh", "for example --mesh pipeline=2");
  const bool trains = in_stages && !arguments.generates;
  OptionSets options = option_sets(arguments, trains ? "trainer" : "generator");
  options.model.set("tokenizer", "none");
  plait_api::Model model(arguments.model, options.model);
  if (trains) {
    answer_training_plan(model.plan_training(options.rest), arguments.model, arguments.html, arguments.json);
    return exit_ok;
  }
  if (!arguments.mesh.empty()) {
    const std::string plan = model.plan(options.rest);
    const Json report = Json::parse(plan);
    if (!arguments.html.empty()) write_file(arguments.html, plan_page(report, arguments.model));
    answer(arguments.json ? plan + "\n" : plan_text(report));
  } else if (!arguments.seeds.empty()) {
    throw UsageError("--seeds describes a plan: it needs --mesh", "for example --mesh tensor=2");
  } else if (!arguments.dump.empty()) {
    answer(model.dump(arguments.dump));
  } else {
    std::string info = model.info();
    print_log(model);
    if (!arguments.html.empty()) write_file(arguments.html, model_page(Json::parse(info), arguments.model));
    answer(arguments.json ? info + "\n" : facts_table(Json::parse(info)));
  }
  return exit_ok;
}

}  // namespace plait::cli
