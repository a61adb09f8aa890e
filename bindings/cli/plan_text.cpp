// The plan of a mesh as text tables.
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/plan.h"
#include "bindings/cli/plan_kinds.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::string indented(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin) + 1;
    out += "  " + text.substr(begin, end - begin);
    begin = end;
  }
  return out;
}

std::string summary(const Json& plan) {
  const Json& totals = plan.at("totals");
  auto bytes = [&](const std::string& name) { return rounded(totals.at(name).get<double>(), "B"); };
  Rows rows{{"mesh", plan_mesh(plan)},
            {"seeds", joined(plan.at("seeds"), ", ")},
            {"per token", plan_counts(plan) + "; each rank sends " + bytes("bytes_per_token")},
            {"weights", bytes("rank_weight_bytes") + " per rank, " + bytes("all_ranks_weight_bytes") + " in total, of " +
                            bytes("weight_bytes")}};
  for (const auto& [name, key] :
       {std::pair("cache", "cache_bytes_per_token"), std::pair("states", "state_bytes_per_sequence")}) {
    const std::string one = key;
    if (totals.at(one) == 0) continue;
    rows.push_back({name, bytes("rank_" + one) + " per rank, " + bytes("all_ranks_" + one) + " in total, of " +
                              bytes(one) + (one.front() == 'c' ? " per token" : " per sequence")});
  }
  return columns(rows);
}

std::string part_text(const Json& part, const std::string& title) {
  std::string out = "\n" + title + "\n";
  Rows weights{{"WEIGHT", "TYPE", "CUT", "PER RANK", "READ BY"}};
  for (const Json& one : part.at("weights"))
    weights.push_back({one.at("name").get<std::string>() + (one.at("copy").get<bool>()     ? " (again)"
                                                            : one.at("shared").get<bool>() ? " (shared)"
                                                                                           : ""),
                       one.at("type"), one.at("cut"), rounded(one.at("rank_bytes").get<double>(), "B"),
                       one.at("node")});
  if (weights.size() > 1) out += indented(columns(weights));
  Rows moved{{"COLLECTIVE", "HELD BEFORE", "PER TOKEN", "VALUE, AND ITS READER"}};
  for (const Json& one : part.at("collectives"))
    moved.push_back({one.at("kind").get<std::string>() + " " + one.at("axes").get<std::string>(), one.at("held"),
                     rounded(one.at("bytes").get<double>(), "B"),
                     one.at("what").get<std::string>() + ", for " + one.at("for").get<std::string>()});
  if (moved.size() > 1) out += indented(columns(moved));
  return out;
}

/// Reasons why weights are not sharded by the whole axis tensor.
std::string whole_text(const std::vector<PlanKind>& kinds) {
  Rows rows{{"WEIGHT", "TYPE", "BYTES", "WHY"}};
  for (const PlanKind& kind : kinds)
    for (const Json& one : kind.first->at("weights"))
      if (const std::string why = one.at("whole"); !why.empty() && !one.at("copy").get<bool>())
        rows.push_back({one.at("name"), one.at("type"), rounded(one.at("bytes").get<double>(), "B"), why});
  return rows.size() > 1 ? "\nnot sharded by the whole axis tensor\n" + indented(columns(rows)) : std::string();
}

/// Placements that move data, with their alternatives.
std::string choices_text(const Json& plan, const std::vector<PlanKind>& kinds) {
  Rows rows{{"NODE", "CUT", "BYTES", "ALTERNATIVES"}};
  for (const PlanKind& kind : kinds)
    for (const Json& choice : kind.first->at("choices")) {
      std::string cut, others;
      double bytes = 0;
      for (const Json& way : choice.at("ways")) {
        if (way.at("chosen").get<bool>()) {
          cut = way.at("cut");
          bytes = way.at("bytes");
        } else {
          others += (others.empty() ? "" : ", ") + way.at("cut").get<std::string>() + " " +
                    rounded(way.at("bytes").get<double>(), "B");
        }
      }
      if (bytes > 0) rows.push_back({choice.at("node"), cut, rounded(bytes, "B"), others});
    }
  if (rows.size() == 1) return {};
  const Json& step = plan.at("priced_at");
  return "\nplacements with alternatives (bytes moved in a step of " + step.at("tokens").dump() + " tokens, " +
         step.at("rows").dump() + " with logits)\n" + indented(columns(rows));
}

}  // namespace

std::string training_plan_text(const Json& plan) {
  const Json& totals = plan.at("totals");
  auto bytes = [&](const char* name) { return rounded(totals.at(name).get<double>(), "B"); };
  const std::string mesh = plan.at("mesh");
  std::string out =
      columns({{"mesh", mesh.empty() ? "one rank" : mesh},
               {"rows", plan.at("row_tokens").dump() + " tokens; recompute " +
                            plan.at("recompute").get<std::string>() + ", zero " + plan.at("zero").dump()},
               {"trained", rounded(totals.at("trained_parameters").get<double>(), "") + " parameters in " +
                               std::to_string(plan.at("trained").size()) + " weights"}});
  out += "\nmemory of rank 0\n" + indented(columns({{"frozen weights", bytes("rank_frozen_bytes")},
                                                    {"trained weights", bytes("rank_trained_bytes")},
                                                    {"gradients", bytes("rank_gradient_bytes")},
                                                    {"optimizer", bytes("rank_optimizer_bytes")},
                                                    {"micro-batch", bytes("rank_arena_bytes")},
                                                    {"total", bytes("rank_bytes")}}));
  Rows programs{{"PROGRAM", "INSTRUCTIONS", "MEMORY", "COLLECTIVES"}};
  for (const Json& one : plan.at("programs")) {
    std::string moved;
    for (const auto& [kind, count] : one.at("collectives").items())
      moved += (moved.empty() ? "" : ", ") + count.at("calls").dump() + " " + kind;
    programs.push_back({one.at("name"), one.at("instructions").dump(),
                        rounded(one.at("arena_bytes").get<double>(), "B"), moved.empty() ? "-" : moved});
  }
  Rows trained{{"WEIGHT", "TYPE", "RANK 0"}};
  for (const Json& one : plan.at("trained"))
    trained.push_back({one.at("name"), one.at("type"), rounded(one.at("rank_bytes").get<double>(), "B")});
  return out + "\nprograms\n" + indented(columns(programs)) + "\ntrained\n" + indented(columns(trained));
}

std::string plan_text(const Json& plan) {
  std::string out = summary(plan);
  const std::vector<PlanKind> kinds = plan_kinds(plan);
  for (const PlanKind& kind : kinds) out += part_text(*kind.first, kind.title);
  out += whole_text(kinds);
  if (!plan.at("unruled").empty()) {
    out += "\nnodes with replicated operands\n";
    for (const Json& node : plan.at("unruled")) out += "  " + node.get<std::string>() + "\n";
  }
  return out + choices_text(plan, kinds);
}

}  // namespace plait::cli
