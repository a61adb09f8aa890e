// The plan of a trainer as a page: memory, and of a pipeline its stages, ranks and timeline.
#include <cmath>
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/page.h"
#include "bindings/cli/plan.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::vector<std::string>>;

std::string percent(const Json& share) {
  return std::to_string(static_cast<int>(std::lround(100 * share.get<double>()))) + " %";
}

std::string list_of(const Json& numbers) {
  std::string out;
  for (const Json& one : numbers) out += (out.empty() ? "" : ", ") + one.dump();
  return out;
}

std::string facts(const Json& plan) {
  const Json& totals = plan.at("totals");
  const auto bytes = [&](const char* name) { return bytes_of(totals.at(name)); };
  std::string out = "<dl class=\"facts\">\n";
  out += fact("Memory of rank 0", bytes("rank_bytes"),
              bytes("rank_frozen_bytes") + " frozen, " + bytes("rank_trained_bytes") + " trained, " +
                  bytes("rank_gradient_bytes") + " gradients, " + bytes("rank_optimizer_bytes") + " optimizer, " +
                  bytes("rank_arena_bytes") + " a micro-batch");
  out += fact("Trained", rounded(totals.at("trained_parameters").get<double>(), ""),
              "parameters in " + std::to_string(plan.at("trained").size()) + " weights");
  out += fact("Rows", plan.at("row_tokens").dump() + " tokens",
              "recompute " + text_of(plan.at("recompute")) + ", zero " + plan.at("zero").dump());
  if (plan.contains("pipeline")) {
    const Json& pipeline = plan.at("pipeline");
    out += fact("Bubble", percent(pipeline.at("bubble")),
                text_of(pipeline.at("schedule")) + ", " + pipeline.at("micro_batches").dump() + " micro-batches");
  }
  return out + "</dl>\n";
}

std::string stages(const Json& pipeline) {
  Cells rows;
  for (const Json& one : pipeline.at("stages")) {
    std::string gives;
    for (const Json& message : one.at("gives"))
      gives += (gives.empty() ? "" : ", ") + bytes_of(message.at("bytes")) + " after " + text_of(message.at("after")) + " to " +
               message.at("to").dump();
    rows.push_back({one.at("stage").dump(), one.at("layers").dump(), bytes_of(one.at("weight_bytes")),
                    rounded(one.at("trained_parameters").get<double>(), ""), list_of(one.at("seats")),
                    one.at("versions").dump(), gives.empty() ? "-" : gives});
  }
  return table("Stages, and what crosses with each micro-batch",
               {{"Stage", true}, {"Layers", true}, {"Weights", true}, {"Trained", true}, {"Pipeline ranks"},
                {"Versions", true}, {"Gives"}},
               rows);
}

std::string ranks(const Json& pipeline) {
  Cells rows;
  for (const Json& one : pipeline.at("ranks")) {
    std::vector<std::string> row{one.at("pipeline").dump(), list_of(one.at("stages")), bytes_of(one.at("held_bytes")),
                                 bytes_of(one.at("arena_bytes"))};
    for (const char* pool : {"forward_to_input", "forward_to_weight", "input_to_weight", "action"}) {
      const Json& slots = one.at("slots").at(pool);
      row.push_back(slots.at("sets") == 0 ? "-" : bytes_of(slots.at("bytes")) + " (" + slots.at("sets").dump() + ")");
    }
    row.insert(row.end(), {bytes_of(one.at("version_bytes")), bytes_of(one.at("rank_bytes")), percent(one.at("busy"))});
    rows.push_back(std::move(row));
  }
  return table("Memory by pipeline rank; slots: bytes, and sets in use at once",
               {{"Rank", true}, {"Stages"}, {"Held", true}, {"Section", true}, {"Slots F-I", true}, {"F-W", true},
                {"I-W", true}, {"Of an action", true}, {"Versions", true}, {"Total", true}, {"Busy", true}},
               rows);
}

std::string trained(const Json& plan) {
  Cells rows;
  for (const Json& one : plan.at("trained"))
    rows.push_back({"<code>" + text_of(one.at("name")) + "</code>", "<code class=\"t\">" + text_of(one.at("type")) + "</code>",
                    bytes_of(one.at("rank_bytes"))});
  return table("Trained weights", {{"Name"}, {"Type"}, {"Of rank 0", true}}, rows);
}

std::string programs(const Json& plan) {
  Cells rows;
  for (const Json& one : plan.at("programs")) {
    std::string moved;
    for (const auto& [kind, count] : one.at("collectives").items())
      moved += (moved.empty() ? "" : ", ") + count.at("calls").dump() + " " + escaped(kind);
    rows.push_back({text_of(one.at("name")), one.at("instructions").dump(), bytes_of(one.at("arena_bytes")),
                    moved.empty() ? "-" : moved});
  }
  return table("Programs of rank 0", {{"Program"}, {"Instructions", true}, {"Memory", true}, {"Collectives"}}, rows);
}

}  // namespace

std::string training_plan_page(const Json& plan, const std::string& model) {
  const std::string mesh = plan.at("mesh").get<std::string>();
  std::string out = facts(plan);
  if (plan.contains("pipeline")) {
    const Json& pipeline = plan.at("pipeline");
    out += "<section>\n<h2>Pipeline</h2>\n" + stages(pipeline) + ranks(pipeline) + "<p class=\"soft\">A step" +
           (pipeline.at("steps") == 1 ? "" : "s of a window") +
           ", by work: forward blue, backward orange, weight gradients green.</p>\n<div class=\"timeline\">" +
           pipeline.at("picture").get<std::string>() + "</div>\n</section>\n";
  }
  out += "<section>\n<h2>Programs and weights</h2>\n" + programs(plan) + trained(plan) + "</section>\n";
  return page(escaped(model) + " trained on " + (mesh.empty() ? "one rank" : escaped(mesh)), out);
}

}  // namespace plait::cli
