// What plait_plan found, as a page: the step's timeline, memory while it runs, and time against memory of all plans.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "bindings/cli/chart.h"
#include "bindings/cli/common.h"
#include "bindings/cli/page.h"
#include "bindings/cli/plan.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::vector<std::string>>;

std::string byte_text(double value) { return rounded(value, "B"); }
std::string percent(const Json& share) { return rounded(100 * share.get<double>(), "%"); }
std::string time_of(const Json& value) { return seconds_text(value.get<double>()); }

/// "pipeline=2,tensor=4, 1f1b, micro-batch 4096, zero 1, recompute off"
std::string words_of(const Json& options) {
  std::string out;
  for (const auto& [key, value] : options.items()) {
    if (key == "batch" || key == "seq" || key == "lora" || key == "stages") continue;
    std::string name = key;
    std::replace(name.begin(), name.end(), '_', '-');
    std::string text = value.is_string() ? value.get<std::string>() : value.is_array() ? "" : value.dump();
    if (value.is_array())
      for (const Json& one : value) text += (text.empty() ? "" : " ") + one.get<std::string>();
    out += (out.empty() ? "" : ", ") + (key == "mesh" || key == "pipeline" ? text : name + " " + text);
  }
  return out.empty() ? "one rank" : out;
}

std::string section(const std::string& title, const std::string& body) {
  return "<section>\n<h2>" + title + "</h2>\n" + body + "</section>\n";
}
std::string soft(const std::string& words) { return "<p class=\"soft\">" + words + "</p>\n"; }

std::string step_facts(const Json& found) {
  const Json& exposed = found.at("exposed");
  return "<dl class=\"facts\">\n" +
         fact("A step", time_of(found.at("step_seconds")),
              rounded(found.at("tokens_per_second").get<double>(), "") + " tokens a second") +
         fact("Of the peak", percent(found.at("mfu")), "recomputation not counted") +
         fact("Idle pipeline", percent(found.at("bubble")), found.at("micro_batches").dump() + " micro-batches") +
         fact("Waits for collectives", time_of(exposed.at("collectives")),
              "messages " + time_of(exposed.at("messages")) + ", reduction of gradients " +
                  time_of(exposed.at("reduction"))) +
         fact("Memory", bytes_of(found.at("most_bytes")),
              "on the rank that takes most, of " + bytes_of(found.at("limit_bytes"))) +
         fact("Plans tried", found.at("tried").dump(), found.at("simulated").dump() + " of them simulated") +
         "</dl>\n";
}

std::string timeline(const Json& found) {
  const bool whole = found.at("picture_seconds") == found.at("pipeline_seconds");
  return section("A step of the pipeline", soft((whole ? std::string()
                                                       : "The first " + time_of(found.at("picture_seconds")) +
                                                             " of " + time_of(found.at("pipeline_seconds")) + ". ") +
                                                "By work: forward blue, backward orange, weight gradients green.") +
                                               "<div class=\"timeline\">" + found.at("picture").get<std::string>() +
                                               "</div>\n");
}

std::string memory(const Json& found) {
  Chart chart{"Memory of each pipeline rank over a step",
              {"seconds of the step", found.at("pipeline_seconds"), seconds_text},
              {"memory of a rank", 0, byte_text}};
  double most = 0;
  for (const Json& one : found.at("memory_over_time")) {
    ChartCurve& curve = chart.curves.emplace_back();
    curve.name = "pipeline rank " + std::to_string(chart.curves.size() - 1);
    curve.values = one.get<std::vector<double>>();
    for (const double bytes : curve.values) most = std::max(most, bytes);
  }
  const auto limit = found.at("limit_bytes").get<double>();
  chart.y.most = 1.1 * (limit < 4 * most ? std::max(limit, most) : most);
  chart.limit = limit;
  chart.limit_name = "what a rank has: " + byte_text(limit);
  Cells rows;
  for (const Json& one : found.at("memory")) {
    std::vector<std::string>& row = rows.emplace_back(1, one.at("pipeline").dump());
    for (const char* kind : {"weights", "gradients", "optimizer", "section", "slots", "messages", "total"})
      row.push_back(bytes_of(one.at(kind)));
  }
  return section("Memory", soft("While a step runs: weights, gradients, optimizer and a section's values are always "
                                "there; micro-batches in "
                                "flight come and go.") +
                               chart_svg(chart) +
                               table("Reserved, by pipeline rank",
                                     {{"Rank", true},
                                      {"Weights", true},
                                      {"Gradients", true},
                                      {"Optimizer", true},
                                      {"Section", true},
                                      {"Micro-batches in flight", true},
                                      {"Messages", true},
                                      {"Total", true}},
                                     rows));
}

/// A dot a plan.
std::string front(const Json& found) {
  Chart chart{"Time of a step against memory of all simulated plans",
              {"seconds of a step", 0, seconds_text},
              {"memory of the rank that takes most", 0, byte_text}};
  const auto add = [&](const Json& options, const Json& step_s, const Json& bytes, bool chosen) {
    chart.dots.push_back({step_s, bytes, words_of(options), chosen});
  };
  add(found.at("options"), found.at("step_seconds"), found.at("most_bytes"), true);
  for (const Json& one : found.at("others"))
    add(one.at("options"), one.at("step_seconds"), one.at("most_bytes"), false);
  for (const ChartDot& one : chart.dots) {
    // Far slower ones would leave no room for those that matter.
    chart.x.most = std::max(chart.x.most, std::min(1.1 * one.x, 4 * chart.dots.front().x));
    chart.y.most = std::max(chart.y.most, 1.1 * one.y);
  }
  std::erase_if(chart.dots, [&](const ChartDot& one) { return one.x > chart.x.most; });
  chart.limit = found.at("limit_bytes");
  chart.limit_name = "what a rank has";
  return section(
      "Time and memory",
      soft("Each dot is a plan that was simulated and fits; its options are its tooltip.") + chart_svg(chart));
}

std::string neighbours(const Json& found) {
  Cells rows;
  for (const Json& one : found.at("neighbours"))
    rows.push_back({text_of(one.at("changed")),
                    one.at("step_seconds").is_null() ? "does not fit" : time_of(one.at("step_seconds")),
                    bytes_of(one.at("bytes")), text_of(one.at("lost"))});
  if (rows.empty()) return {};
  return section("What else could be chosen",
                 table("Plans that differ in one respect",
                       {{"Instead"}, {"A step", true}, {"Memory", true}, {"Why not"}}, rows));
}

/// Of generation: meshes by the time of a token.
std::string generation(const Json& found) {
  Chart chart{"Time of a token against tokens per second",
              {"seconds from a token of a sequence to its next", 0, seconds_text},
              {"tokens per second", 0, [](double value) { return rounded(value, ""); }}};
  Cells rows;
  const auto add = [&](const Json& one) {
    const std::string mesh = words_of(one.at("options"));
    const std::string name = mesh.empty() ? "one rank" : mesh;
    chart.dots.push_back({one.at("token_seconds"), one.at("tokens_per_second"), name, chart.dots.empty()});
    chart.x.most = std::max(chart.x.most, 1.1 * chart.dots.back().x);
    chart.y.most = std::max(chart.y.most, 1.1 * chart.dots.back().y);
    rows.push_back({escaped(name), time_of(one.at("token_seconds")), time_of(one.at("prompt_seconds")),
                    rounded(one.at("tokens_per_second").get<double>(), ""), time_of(one.at("exposed_seconds")),
                    one.at("groups").dump(), bytes_of(one.at("weight_bytes")), bytes_of(one.at("cache_bytes"))});
  };
  add(found);
  for (const Json& one : found.at("others")) add(one);
  return section("Meshes", chart_svg(chart) + table("By the time of a token",
                                                    {{"Mesh"},
                                                     {"Token", true},
                                                     {"Prompt", true},
                                                     {"Tokens a second", true},
                                                     {"Waits", true},
                                                     {"Groups", true},
                                                     {"Weights of a rank", true},
                                                     {"Cache of a rank", true}},
                                                    rows));
}

}  // namespace

std::string best_plan_page(const Json& found, const std::string& model, const std::string& command) {
  const std::string parameters = rounded(found.at("parameters").get<double>(), "") + " parameters";
  const std::string what =
      (model.empty() ? "A decoder of " + parameters : escaped(model)) + " on " + text_of(found.at("machine"));
  const std::string told = "<p><code>" + escaped(command) + "</code></p>\n";
  if (found.contains("token_seconds")) return page(what, told + generation(found));
  return page(what, told + step_facts(found) + timeline(found) + memory(found) + front(found) + neighbours(found));
}

}  // namespace plait::cli
