// The plan of a mesh as a page: each kind of layer as a drawing, with its weights as blocks in which rank 0's part is
// filled, and the collectives between them; also as tables. Self-contained, without scripts.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bindings/cli/common.h"
#include "bindings/cli/plan.h"
#include "bindings/cli/plan_kinds.h"

namespace plait::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* style = R"(
:root { color-scheme: light dark; --ink: #1c2128; --soft: #59636e; --line: #d4dae1; --ground: #ffffff; --card: #f4f6f8;
  --rows: #1f6feb; --columns: #c2570c; --stack: #1a7f37; --mixed: #8250df; --whole: #6e7781; --talk: #9a6700; --say: #fff3c4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9aa5b1; --line: #343b44; --ground: #0f1318;
  --card: #181d24; --rows: #4c9aff; --columns: #f0883e; --stack: #3fb950; --mixed: #b083f0; --whole: #8b949e;
  --talk: #e3b341; --say: #3a2f0b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 4rem; background: var(--ground); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; }
p { margin: .5rem 0; } .soft { color: var(--soft); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); gap: .75rem; margin: 1.25rem 0; padding: 0; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem 1rem; }
.facts dt { color: var(--soft); font-size: .85rem; } .facts dd { margin: 0; font-size: 1.25rem; font-weight: 600; }
.facts dd small { display: block; color: var(--soft); font-size: .85rem; font-weight: 400; }
.legend, .flow { list-style: none; padding: 0; margin: 0; display: flex; flex-wrap: wrap; gap: .6rem; }
.legend li { display: flex; align-items: center; gap: .4rem; margin-right: .75rem; font-size: .9rem; }
.flow { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem; align-items: stretch; }
.weight { width: 8.5rem; display: flex; flex-direction: column; align-items: center; justify-content: flex-end;
  text-align: center; font-size: .78rem; line-height: 1.3; }
.weight b { overflow-wrap: anywhere; font-weight: 600; } .weight span { color: var(--soft); overflow-wrap: anywhere; }
.talk { flex-basis: 100%; border-left: .35rem solid var(--talk); background: var(--say); border-radius: .25rem;
  padding: .4rem .75rem; font-size: .85rem; overflow-wrap: anywhere; }
.rows { color: var(--rows); } .columns { color: var(--columns); } .stack { color: var(--stack); }
.mixed { color: var(--mixed); } .whole { color: var(--whole); }
svg { display: block; margin-bottom: .35rem; flex: none; }
svg .own { fill: currentColor; } svg .other { fill: color-mix(in srgb, currentColor 16%, var(--card)); }
svg rect { stroke: currentColor; stroke-width: 1; }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .85rem; margin: .5rem 0; }
caption { text-align: left; color: var(--soft); padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; } td.n, th.n { text-align: right; white-space: nowrap; }
code { font-family: ui-monospace, monospace; font-size: .95em; } code.t { white-space: nowrap; }
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (char letter : text) {
    if (letter == '&') out += "&amp;";
    else if (letter == '<') out += "&lt;";
    else if (letter == '>') out += "&gt;";
    else if (letter == '"') out += "&quot;";
    else out += letter;
  }
  return out;
}
std::string text_of(const Json& value) { return escaped(value.get<std::string>()); }
std::string bytes_of(const Json& value) { return rounded(value.get<double>(), "B"); }
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

struct Column {
  const char* name;
  bool number = false;
};

std::string table(const std::string& caption, const std::vector<Column>& columns,
                  const std::vector<std::vector<std::string>>& rows) {
  if (rows.empty()) return {};
  std::string out = "<div class=\"scroll\"><table><caption>" + caption + "</caption><thead><tr>";
  for (const Column& one : columns)
    out += std::string("<th scope=\"col\"") + (one.number ? " class=\"n\">" : ">") + one.name + "</th>";
  out += "</tr></thead><tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      out += (columns[i].number ? "<td class=\"n\">" : "<td>") + row[i] + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
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

std::string fact(const std::string& name, const std::string& value, const std::string& more) {
  return "<div><dt>" + name + "</dt><dd>" + value + "<small>" + more + "</small></dd></div>\n";
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
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      title + "</title>\n<style>" + style + "</style>\n</head>\n<body>\n<main>\n<h1>" + title + "</h1>\n";
  out += facts(plan);
  out +=
      "<p class=\"soft\">A block is a weight: outputs downwards, inputs to the right, sides on a logarithmic scale. One "
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
  return out + "<p class=\"soft\">Placements are priced for a step of " + step.at("tokens").dump() + " tokens, " +
         step.at("rows").dump() + " of them with logits; all other numbers are per token.</p>\n</main>\n</body>\n</html>\n";
}

}  // namespace plait::cli
