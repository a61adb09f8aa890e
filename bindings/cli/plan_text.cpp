// The plan of a mesh as text tables.
#include <cmath>
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

/// Of pipeline ranks.
std::string stages_text(const Json& plan) {
  Rows rows{{"STAGE", "LAYERS", "WEIGHTS PER RANK", "CACHE PER TOKEN", "GIVES PER TOKEN"}};
  for (const Json& one : plan.at("stages")) {
    const auto bytes = [&](const char* name) { return rounded(one.at(name).get<double>(), "B"); };
    rows.push_back({one.at("stage").dump(), one.at("layers").dump(), bytes("rank_weight_bytes"),
                    bytes("rank_cache_bytes_per_token"), bytes("rank_gives_bytes_per_token")});
  }
  return "\nstages; what is above and below is of all of them together\n" + indented(columns(rows));
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

std::string list_text(const Json& list) {
  std::string out;
  for (const Json& one : list) out += (out.empty() ? "" : ",") + one.dump();
  return out;
}

/// Stages, what crosses, memory by rank and the timeline of a step.
std::string pipeline_text(const Json& pipeline) {
  const auto bytes = [](const Json& of, const char* name) { return rounded(of.at(name).get<double>(), "B"); };
  const auto percent = [](const Json& share) {
    return std::to_string(static_cast<int>(std::lround(100 * share.get<double>()))) + " %";
  };
  Rows stages{{"STAGE", "LAYERS", "WEIGHTS", "TRAINED", "PIPELINE RANKS", "VERSIONS", "GIVES EACH MICRO-BATCH"}};
  for (const Json& one : pipeline.at("stages")) {
    std::string gives;
    for (const Json& message : one.at("gives"))
      gives += (gives.empty() ? "" : ", ") + bytes(message, "bytes") + " after " + message.at("after").get<std::string>() +
               " to " + message.at("to").dump();
    stages.push_back({one.at("stage").dump(), one.at("layers").dump(), bytes(one, "weight_bytes"),
                      rounded(one.at("trained_parameters").get<double>(), ""), list_text(one.at("seats")),
                      one.at("versions").dump(), gives.empty() ? "-" : gives});
  }
  Rows ranks{{"PIPELINE", "STAGES", "HELD", "SECTION", "SLOTS F-I", "F-W", "I-W", "OF AN ACTION", "VERSIONS", "TOTAL", "BUSY"}};
  for (const Json& one : pipeline.at("ranks")) {
    const auto pool = [&](const char* name) {
      const Json& slots = one.at("slots").at(name);
      const std::string sets = slots.at("sets").dump();
      return sets == "0" ? std::string("-") : bytes(slots, "bytes") + " (" + sets + ")";
    };
    ranks.push_back({one.at("pipeline").dump(), list_text(one.at("stages")), bytes(one, "held_bytes"),
                     bytes(one, "arena_bytes"), pool("forward_to_input"), pool("forward_to_weight"), pool("input_to_weight"),
                     pool("action"), bytes(one, "version_bytes"), bytes(one, "rank_bytes"), percent(one.at("busy"))});
  }
  std::string out = "\npipeline: " + pipeline.at("schedule").get<std::string>() + ", " + pipeline.at("micro_batches").dump() +
                    " micro-batches\n" + indented(columns(stages)) +
                    "\nmemory by pipeline rank (slots: bytes, and sets in use at once)\n" + indented(columns(ranks)) +
                    (pipeline.at("steps") == 1 ? "\na step" : "\na window of " + pipeline.at("steps").dump() + " steps") +
                    ", bubble " + percent(pipeline.at("bubble")) +
                    " (0-9 forward, A-Z backward, a-z input gradient, + weight gradient, * update, . idle)\n";
  for (const Json& line : pipeline.at("timeline")) out += "  " + line.get<std::string>() + "\n";
  return out;
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
  Rows trained{{"WEIGHT", "TYPE", "A RANK"}};
  for (const Json& one : plan.at("trained"))
    trained.push_back({one.at("name"), one.at("type"), rounded(one.at("rank_bytes").get<double>(), "B")});
  if (plan.contains("pipeline")) out += pipeline_text(plan.at("pipeline"));
  return out + "\nprograms of rank 0\n" + indented(columns(programs)) + "\ntrained\n" + indented(columns(trained));
}

std::string plan_text(const Json& plan) {
  std::string out = summary(plan);
  if (plan.contains("stages")) out += stages_text(plan);
  const std::vector<PlanKind> kinds = plan_kinds(plan);
  for (const PlanKind& kind : kinds) out += part_text(*kind.first, kind.title);
  out += whole_text(kinds);
  if (!plan.at("unruled").empty()) {
    out += "\nnodes with replicated operands\n";
    for (const Json& node : plan.at("unruled")) out += "  " + node.get<std::string>() + "\n";
  }
  if (const Json& islands = plan.at("islands"); !islands.empty()) {
    out += "\nops without a kernel of the device, which run on the host\n";
    for (const auto& [op, count] : islands.items()) out += "  " + std::to_string(count.get<int64_t>()) + " x " + op + "\n";
  }
  return out + choices_text(plan, kinds);
}

}  // namespace plait::cli
