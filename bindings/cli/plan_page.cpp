// The plan of a mesh as a page: each kind of layer as a drawing, with its weights as blocks in which rank 0's part is
// filled, and the collectives between them; also as tables. Self-contained, without scripts.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/page.h"
#include "bindings/cli/plan.h"
#include "bindings/cli/plan_kinds.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string number(double value) {
  std::string out = std::to_string(std::round(value * 10) / 10);
  return out.substr(0, out.find('.') + 2);
}

/// How a weight is sharded; one colour each.
struct Cut {
  const char* name;
  const char* words;
};
constexpr Cut cuts[] = {{"rows", "by outputs"},
                        {"columns", "by inputs"},
                        {"stack", "by experts"},
                        {"mixed", "by two dims"},
                        {"whole", "replicated"}};

const Cut& cut_of(const Json& weight) {
  const Json& parts = weight.at("parts");
  const auto several = std::count_if(parts.begin(), parts.end(), [](const Json& one) { return one > 1; });
  if (several != 1) return cuts[several ? 3 : 4];
  for (size_t d = 0; d + 2 < parts.size(); ++d)
    if (parts[d] > 1) return cuts[2];
  return cuts[parts.back() > 1 ? 1 : 0];
}

/// A block, roughly as wide as it has inputs and as high as it has outputs; rank 0's part is filled.
std::string block(const Json& weight) {
  const Json &dims = weight.at("dims"), &parts = weight.at("parts");
  const size_t last = dims.size() - 1;
  auto side = [](const Json& size) {
    return std::clamp(14 * std::log2(std::max(size.get<double>(), 1.0)) - 40, 18.0, 104.0);
  };
  const double width = side(dims[last]), height = side(dims[last - 1]);
  int64_t before = 1, piles = 1;
  for (size_t d = 0; d + 1 < last; ++d) before *= dims[d].get<int64_t>(), piles *= parts[d].get<int64_t>();
  const double shift = before > 1 ? 5 : 0;  // a stack: further layers behind
  const Cut& cut = cut_of(weight);
  const std::string words = text_of(weight.at("type")) + ", " + cut.words;
  std::string out = std::string("<svg class=\"") + cut.name + "\" role=\"img\" aria-label=\"" + words +
                    "\" width=\"" + number(width + 2 * shift + 2) + "\" height=\"" + number(height + 2 * shift + 2) +
                    "\">";
  auto rect = [&](double x, double y, double w, double h, bool own) {
    out += std::string("<rect class=\"") + (own ? "own" : "other") + "\" x=\"" + number(x + 1) + "\" y=\"" +
           number(y + 1) + "\" width=\"" + number(w) + "\" height=\"" + number(h) + "\"/>";
  };
  const bool whole_pile = piles == 1;
  for (int behind = shift > 0 ? 2 : 0; behind > 0; --behind)
    rect(behind * shift, (2 - behind) * shift, width, height, whole_pile && parts[last] == 1 && parts[last - 1] == 1);
  const double rows = parts[last - 1].get<double>(), columns = parts[last].get<double>();
  // More than eight lines are not drawn.
  const double drawn_rows = std::min(rows, 8.0), drawn_columns = std::min(columns, 8.0);
  for (int row = 0; row < drawn_rows; ++row)
    for (int column = 0; column < drawn_columns; ++column)
      rect(width / drawn_columns * column, 2 * shift + height / drawn_rows * row, width / drawn_columns,
           height / drawn_rows, row == 0 && column == 0);
  return out + "</svg>";
}

/// Vectors follow the matrices, and are only in the tables.
bool is_matrix(const Json& weight) {
  const Json& dims = weight.at("dims");
  return std::count_if(dims.begin(), dims.end(), [](const Json& size) { return size > 1; }) > 1;
}

/// The last component of a name: "q_proj" of "model.layers.0.self_attn.q_proj.weight".
std::string short_name(const std::string& name) {
  const size_t last = name.rfind('.');
  const size_t before = last == std::string::npos || last == 0 ? std::string::npos : name.rfind('.', last - 1);
  if (last == std::string::npos || name.substr(last) != ".weight") return name.substr(before + 1);
  return name.substr(before + 1, last - before - 1);
}

std::string flow(const Json& part) {
  const Json &weights = part.at("weights"), &collectives = part.at("collectives");
  std::string out = "<ol class=\"flow\">\n";
  size_t said = 0;
  auto talk = [&](size_t read) {
    for (; said < collectives.size() && collectives[said].at("after") <= read; ++said) {
      const Json& one = collectives[said];
      out += "<li class=\"talk\"><b>" + text_of(one.at("kind")) + "</b> over " + text_of(one.at("axes")) + ", " +
             bytes_of(one.at("bytes")) + " per token <span class=\"soft\">" + text_of(one.at("what")) + ", for " +
             text_of(one.at("for")) + "</span></li>\n";
    }
  };
  for (size_t i = 0; i < weights.size(); ++i) {
    talk(i);
    if (is_matrix(weights[i]))
      out += "<li class=\"weight\">" + block(weights[i]) + "<b title=\"" + text_of(weights[i].at("name")) +
             ", read by " + text_of(weights[i].at("node")) + "\">" + escaped(short_name(weights[i].at("name"))) +
             "</b><span>" + text_of(weights[i].at("type")) + "</span><span>" + text_of(weights[i].at("cut")) +
             "</span></li>\n";
  }
  talk(weights.size());
  out += "</ol>\n";
  for (const Json& one : weights)
    if (one.at("whole") != "")
      out += "<p class=\"soft\">" + escaped(short_name(one.at("name"))) +
             " is not sharded by the whole axis tensor: " + text_of(one.at("whole")) + ".</p>\n";
  return out;
}

std::string part_tables(const Json& part) {
  std::vector<std::vector<std::string>> weights, moved, choices;
  for (const Json& one : part.at("weights"))
    weights.push_back({"<code>" + text_of(one.at("name")) + "</code>" +
                           (one.at("copy").get<bool>()     ? " (again)"
                            : one.at("shared").get<bool>() ? " (shared)"
                                                           : ""),
                       "<code class=\"t\">" + text_of(one.at("type")) + "</code>",
                       "<code class=\"t\">" + text_of(one.at("cut")) + "</code>", bytes_of(one.at("bytes")),
                       bytes_of(one.at("rank_bytes")), text_of(one.at("node"))});
  for (const Json& one : part.at("collectives"))
    moved.push_back({text_of(one.at("kind")) + " " + text_of(one.at("axes")), text_of(one.at("what")),
                     text_of(one.at("for")), "<code>" + text_of(one.at("held")) + "</code>",
                     bytes_of(one.at("bytes"))});
  for (const Json& choice : part.at("choices")) {
    std::string taken, others;
    for (const Json& way : choice.at("ways")) {
      const std::string words = text_of(way.at("cut")) + " (" + bytes_of(way.at("bytes")) + ")";
      if (way.at("chosen").get<bool>()) taken = words;
      else others += (others.empty() ? "" : "; ") + words;
    }
    choices.push_back({text_of(choice.at("node")), taken, others, text_of(choice.at("why"))});
  }
  return "<details><summary>In numbers</summary>\n" +
         table("Weights", {{"Name"}, {"Type"}, {"Cut"}, {"Bytes", true}, {"Per rank", true}, {"Read by"}}, weights) +
         table("Collectives", {{"Kind"}, {"Value"}, {"For"}, {"Held before"}, {"Per token", true}}, moved) +
         "</details>\n<details><summary>Alternatives</summary>\n" +
         table("Legal placements, with the bytes that they move",
               {{"Node"}, {"Chosen"}, {"Alternatives"}, {"Reason"}}, choices) +
         "</details>\n";
}

std::string facts(const Json& plan) {
  const Json& totals = plan.at("totals");
  auto bytes = [&](const std::string& key) { return bytes_of(totals.at(key)); };
  std::string out = "<dl class=\"facts\">\n";
  out += fact("Ranks", plan.at("ranks").dump(),
              text_of(plan.at("mesh")) + ", seeds " + escaped(joined(plan.at("seeds"), ", ")));
  out += fact("Weights per rank", bytes("rank_weight_bytes"),
              bytes("all_ranks_weight_bytes") + " in total, of " + bytes("weight_bytes"));
  out += fact("Sent per token", bytes("bytes_per_token"), plan_counts(plan));
  for (const auto& [name, key] : {std::pair("Cache per token and rank", "cache_bytes_per_token"),
                                  std::pair("States per sequence and rank", "state_bytes_per_sequence")})
    if (const std::string one = key; totals.at(one) != 0)
      out += fact(name, bytes("rank_" + one), bytes("all_ranks_" + one) + " in total, of " + bytes(one));
  if (plan.contains("stages"))
    for (const Json& one : plan.at("stages"))
      out += fact("Stage " + one.at("stage").dump(), bytes_of(one.at("rank_weight_bytes")),
                  one.at("layers").dump() + " layers; per token " + bytes_of(one.at("rank_cache_bytes_per_token")) +
                      " of cache, and " + bytes_of(one.at("rank_gives_bytes_per_token")) + " to the next");
  const Json& estimate = totals.at("estimate");
  double all = 0;
  for (const Json& part : estimate) all += part.get<double>();
  auto time = [](double seconds) { return number(seconds * 1e6) + " \u00b5s"; };
  out += fact("Estimate per token", time(all),
              "reading " + time(estimate.at("reading_s")) + ", moving " + time(estimate.at("moving_s")) +
                  ", waiting " + time(estimate.at("waiting_s")));
  return out + "</dl>\n";
}

std::string legend() {
  std::string out = "<ul class=\"legend\" aria-label=\"How blocks are drawn\">\n";
  for (const Cut& cut : cuts)
    out += std::string("<li><svg class=\"") + cut.name +
           "\" width=\"14\" height=\"14\" aria-hidden=\"true\"><rect class=\"own\" x=\"1\" y=\"1\" width=\"12\" "
           "height=\"12\"/></svg>" +
           cut.words + "</li>\n";
  return out + "</ul>\n";
}

}  // namespace

std::string plan_page(const Json& plan, const std::string& model) {
  const std::string title = escaped(model) + " on " + text_of(plan.at("mesh"));
  std::string out = facts(plan);
  out +=
      "<p class=\"soft\">A block is a weight: outputs downwards, inputs to the right, sides on a logarithmic scale. "
      "One "
      "rank's part is filled.</p>\n" +
      legend();
  for (const PlanKind& kind : plan_kinds(plan)) {
    std::string heading = kind.title;
    heading[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(heading[0])));
    out += "<section>\n<h2>" + heading + "</h2>\n" + flow(*kind.first) + part_tables(*kind.first) + "</section>\n";
  }
  if (const Json& unruled = plan.at("unruled"); !unruled.empty()) {
    out += "<section>\n<h2>Nodes with replicated operands</h2>\n<ul>\n";
    for (const Json& node : unruled) out += "<li>" + text_of(node) + "</li>\n";
    out += "</ul>\n</section>\n";
  }
  const Json& step = plan.at("priced_at");
  out += "<p class=\"soft\">Placements are priced for a step of " + step.at("tokens").dump() + " tokens, " +
         step.at("rows").dump() + " of them with logits; all other numbers are per token.</p>\n";
  return page(title, out);
}

}  // namespace plait::cli
