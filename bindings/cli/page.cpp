#include "bindings/cli/page.h"

#include "bindings/cli/common.h"

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
.flow rect, .legend rect { stroke: currentColor; stroke-width: 1; }
.timeline { background: #fff; border-radius: .5rem; overflow-x: auto; }
.timeline svg { width: 100%; min-width: 48rem; height: auto; margin: 0; }
.chart { width: 100%; height: auto; background: var(--card); border-radius: .5rem; font-size: 12px; }
.chart text { fill: var(--soft); } .chart .grid { stroke: var(--line); } .chart .limit { stroke: var(--columns); stroke-dasharray: 6 4; }
.chart .other { fill: var(--whole); fill-opacity: .55; } .chart .chosen { fill: var(--rows); }
details { margin: .6rem 0; } summary { cursor: pointer; color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .85rem; margin: .5rem 0; }
caption { text-align: left; color: var(--soft); padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; } td.n, th.n { text-align: right; white-space: nowrap; }
code { font-family: ui-monospace, monospace; font-size: .95em; } code.t { white-space: nowrap; }
)";

}  // namespace

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

std::string fact(const std::string& name, const std::string& value, const std::string& more) {
  return "<div><dt>" + name + "</dt><dd>" + value + "<small>" + more + "</small></dd></div>\n";
}

std::string page(const std::string& title, const std::string& body) {
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
         title + "</title>\n<style>" + style + "</style>\n</head>\n<body>\n<main>\n<h1>" + title + "</h1>\n" + body +
         "</main>\n</body>\n</html>\n";
}

}  // namespace plait::cli
