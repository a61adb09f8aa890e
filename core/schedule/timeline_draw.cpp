// Drawings of timelines: text and SVG.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/base/text.h"
#include "core/schedule/timeline.h"

namespace plait {
namespace {

using Kind = Action::Kind;

char sign_of(const Action& action) {
  switch (action.kind) {
    case Kind::forward: return static_cast<char>('0' + action.micro_batch % 10);
    case Kind::backward: return static_cast<char>('A' + action.micro_batch % 26);
    case Kind::input_gradient: return static_cast<char>('a' + action.micro_batch % 26);
    case Kind::weight_gradient: return '+';
    case Kind::update: return '*';
  }
  return '?';
}

/// Fill of a box: hue by kind, lighter for each further stage of the rank.
std::string colour_of(const Action& action, int32_t turn) {
  constexpr int hues[] = {210, 25, 25, 130, 280};
  constexpr int saturations[] = {70, 80, 50, 40, 50};
  const auto kind = static_cast<size_t>(action.kind);
  return cat("hsl(", hues[kind], ',', saturations[kind], "%,", 60 + 8 * (turn % 4), "%)");
}

std::string fixed(double number) {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.2f", number);
  return digits;
}

std::string significant(double number) {
  char digits[40];
  std::snprintf(digits, sizeof digits, "%.4g", number);
  return digits;
}

constexpr double row_height = 22, box_height = 18, left = 60, top = 8, width = 1200;

std::string box_of(const TimelineSpan& span, double scale, int32_t turn) {
  const double x = left + span.begin_s * scale, w = (span.end_s - span.begin_s) * scale;
  const double y = top + row_height * span.rank;
  std::string out = cat("<g><title>", span.action.text(), " rank ", span.rank, ": ", significant(span.begin_s), " to ",
                        significant(span.end_s),
                        " s</title><rect x=\"", fixed(x), "\" y=\"", fixed(y), "\" width=\"", fixed(w),
                        "\" height=\"", fixed(box_height), "\" fill=\"", colour_of(span.action, turn),
                        "\" stroke=\"#fff\" ", "stroke-width=\"0.5\"/>");
  const std::string label = cat(span.action.micro_batch);
  if (w >= 7.0 * static_cast<double>(label.size()))
    append(out, cat("<text x=\"", fixed(x + w / 2), "\" y=\"", fixed(y + 13), "\" text-anchor=\"middle\">", label,
                    "</text>"));
  append(out, "</g>\n");
  return out;
}

}  // namespace

std::string timeline_text(const Timeline& timeline, const DrawOptions& options) {
  const int64_t most = std::max(options.columns, 1);
  const double slot = options.slot_s > 0 ? options.slot_s : timeline.makespan_s / static_cast<double>(most);
  // A slot that a measured time all but fills is not another column.
  const double wanted = slot > 0 ? std::ceil(timeline.makespan_s / slot - 1e-6) : 0;
  const auto columns = static_cast<size_t>(std::clamp(wanted, 0.0, 1e5));
  std::vector<std::string> rows(timeline.ranks.size(), std::string(columns, '.'));
  for (const TimelineSpan& span : timeline.spans) {
    // Columns whose middle lies in the span.
    const auto begin = std::clamp(std::ceil(span.begin_s / slot - 0.5), 0.0, static_cast<double>(columns));
    const auto end = std::clamp(std::ceil(span.end_s / slot - 0.5), begin, static_cast<double>(columns));
    auto& row = rows[static_cast<size_t>(span.rank)];
    std::fill(row.begin() + static_cast<std::ptrdiff_t>(begin), row.begin() + static_cast<std::ptrdiff_t>(end),
              sign_of(span.action));
  }
  const size_t digits = std::to_string(rows.empty() ? 0 : rows.size() - 1).size();
  std::string out;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    const std::string number = std::to_string(rank);
    append(out, cat(std::string(digits - number.size(), ' '), number, " |", rows[rank], "|\n"));
  }
  return out;
}

std::string timeline_svg(const Timeline& timeline) {
  const double scale = timeline.makespan_s > 0 ? width / timeline.makespan_s : 0;
  const double height = 2 * top + row_height * static_cast<double>(timeline.ranks.size()) + 16;
  std::string out = cat("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"Timeline of ",
                        timeline.ranks.size(), " ranks\" width=\"", fixed(left + width + 10),
                        "\" height=\"", fixed(height), "\" viewBox=\"0 0 ", fixed(left + width + 10), " ",
                        fixed(height),
                        "\" font-family=\"sans-serif\" font-size=\"10\">\n");
  // Stages of a rank in the order of their first appearance: each has a shade.
  std::vector<std::vector<int32_t>> shades(timeline.ranks.size());
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank)
    append(out, cat("<text x=\"4\" y=\"", fixed(top + row_height * static_cast<double>(rank) + 13), "\">rank ", rank,
                    "</text>\n"));
  for (const TimelineSpan& span : timeline.spans) {
    auto& known = shades[static_cast<size_t>(span.rank)];
    auto found = std::find(known.begin(), known.end(), span.action.stage);
    if (found == known.end()) found = known.insert(known.end(), span.action.stage);
    append(out, box_of(span, scale, static_cast<int32_t>(found - known.begin())));
  }
  append(out, cat("<text x=\"", fixed(left), "\" y=\"", fixed(height - 6), "\">", significant(timeline.makespan_s), " s, ",
                  fixed(100 * timeline.bubble()), " % idle</text>\n</svg>\n"));
  return out;
}

}  // namespace plait
