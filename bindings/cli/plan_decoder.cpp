// plait plan and plait machine: how to train a decoder on a machine that need not be at hand.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/plan.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::vector<std::string>>;

std::string percent(const Json& share) { return rounded(100 * share.get<double>(), "%"); }
std::string seconds(const Json& value) { return seconds_text(value.get<double>()); }
std::string bytes(const Json& value) { return rounded(value.get<double>(), "B"); }

/// What `plait train` is given. An option with a list is given once for each of its elements.
std::string flags_of(const Json& options) {
  std::string out;
  for (const auto& [key, value] : options.items()) {
    std::string flag = key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    for (const Json& one : value.is_array() ? value : Json::array({value}))
      out += " --" + flag + " " + (one.is_string() ? one.get<std::string>() : one.dump());
  }
  return out;
}

std::string facts_of(const Json& plan) {
  const Json& exposed = plan.at("exposed");
  return columns({{"step", seconds(plan.at("step_seconds")) + ", " +
                               rounded(plan.at("tokens_per_second").get<double>(), "") + "tokens a second"},
                  {"of the peak", percent(plan.at("mfu")) + ", recomputation not counted"},
                  {"idle pipeline", percent(plan.at("bubble")) + " of the time, " + plan.at("micro_batches").dump() +
                                        " micro-batches"},
                  {"waits", seconds(exposed.at("collectives")) + " collectives, " + seconds(exposed.at("messages")) +
                                " messages, " + seconds(exposed.at("reduction")) + " reduction of gradients, " +
                                seconds(exposed.at("control")) + " what ranks tell each other of the step"},
                  {"memory", bytes(plan.at("most_bytes")) + " on the rank that takes most"}});
}

std::string memory_of(const Json& plan) {
  Cells rows{{"PIPELINE", "WEIGHTS", "GRADIENTS", "OPTIMIZER", "SECTION", "SLOTS", "MESSAGES", "TOTAL"}};
  for (const Json& one : plan.at("memory")) {
    std::vector<std::string>& row = rows.emplace_back(1, one.at("pipeline").dump());
    for (const char* kind : {"weights", "gradients", "optimizer", "section", "slots", "messages", "total"})
      row.push_back(bytes(one.at(kind)));
  }
  return columns(rows);
}

std::string neighbours_of(const Json& plan) {
  Cells rows;
  for (const Json& one : plan.at("neighbours")) rows.push_back({one.at("changed"), one.at("lost")});
  return columns(rows);
}

std::string generation_of(const Json& found) {
  Cells rows{{"MESH", "TOKEN", "PROMPT", "TOKENS/S", "WAITS", "WEIGHTS", "CACHE"}};
  const auto add = [&](const Json& one) {
    const auto mesh = one.at("options").at("mesh").get<std::string>();
    rows.push_back({mesh.empty() ? "-" : mesh, seconds(one.at("token_seconds")), seconds(one.at("prompt_seconds")),
                    rounded(one.at("tokens_per_second").get<double>(), ""), seconds(one.at("exposed_seconds")),
                    bytes(one.at("weight_bytes")), bytes(one.at("cache_bytes"))});
  };
  add(found);
  for (const Json& one : found.at("others")) add(one);
  return columns(rows);
}

/// --train full or lora:16, as an option of a trainer.
void set_trained(plait_api::Options& options, const std::string& train) {
  if (train.empty() || train == "full") return;
  const std::string rank = train.rfind("lora:", 0) == 0 ? train.substr(5) : "";
  if (rank.empty() || rank.size() > 6 || rank.find_first_not_of("0123456789") != std::string::npos)
    throw UsageError("--train is \"" + train + "\"", "full, or lora: and a rank, as in lora:16");
  options.set("lora", rank);
}

std::string plan_json(const PlanArguments& arguments, plait_api::Options& options) {
  if (arguments.model.empty())
    return plait_api::tensor([&](plait_tensor** out) { return plait_plan(options.get(), out); }).text();
  for (const auto& [key, value] : arguments.run) set_option(options, key, value);
  plait_api::Options of_model;
  of_model.set("tokenizer", "none");
  plait_api::Model model(arguments.model, of_model);
  return model.best_plan(options);
}

/// Exports the model with the plan's mesh and stages.
void write_annotated(const PlanArguments& arguments, const Json& plan) {
  plait_api::Options of_model, of_export;
  of_model.set("tokenizer", "none");
  for (const char* key : {"mesh", "pipeline", "stages", "dtype"})
    if (auto found = plan.at("options").find(key); found != plan.at("options").end() && *found != Json(""))
      set_option(of_export, key, found->get<std::string>());
  // Annotations are a generator's, too, whose data ranks have all experts.
  for (const Json& seed : plan.at("options").value("seeds", Json::array()))
    if (const auto text = seed.get<std::string>(); text != "expert_data") set_option(of_export, "seeds", text);
  plait_api::Model(arguments.model, of_model).write(arguments.annotate, of_export);
  print_written(arguments.annotate);
}

}  // namespace

int plan(const PlanArguments& arguments) {
  plait_api::Options options;
  for (const auto& [key, value] : arguments.options) set_option(options, key, value);
  set_trained(options, arguments.train);
  if (!arguments.html.empty()) set_option(options, "drawings", "true");
  const std::string text = plan_json(arguments, options);
  const Json found = Json::parse(text);
  if (!arguments.annotate.empty()) write_annotated(arguments, found);
  const bool generates = found.contains("token_seconds");
  const std::string command = std::string(generates ? "plait generate " : "plait train ") +
                              (arguments.model.empty() ? "MODEL" : arguments.model) + flags_of(found.at("options"));
  if (!arguments.html.empty()) write_file(arguments.html, best_plan_page(found, arguments.model, command));
  if (arguments.json) return answer(text + "\n"), exit_ok;
  if (generates) return answer(generation_of(found)), exit_ok;
  answer(command + "\n\n" + facts_of(found) + "\nmemory by pipeline rank\n" + memory_of(found) +
         "\nwhat else was tried (" + found.at("tried").dump() + " plans, " + found.at("simulated").dump() +
         " simulated)\n" + neighbours_of(found));
  return exit_ok;
}

int machine(const MachineArguments& arguments) {
  plait_api::Options options;
  if (arguments.machine.empty() != arguments.measure)
    throw UsageError("either a machine's name or file, or --measure",
                     "plait machine h100, or plait machine --measure");
  set_option(options, "machine", arguments.measure ? "here" : arguments.machine);
  set_option(options, "ranks", std::to_string(arguments.ranks));
  set_option(options, "threads", std::to_string(arguments.threads));
  answer(plait_api::tensor([&](plait_tensor** out) { return plait_machine(options.get(), out); }).text() + "\n");
  return exit_ok;
}

}  // namespace plait::cli
