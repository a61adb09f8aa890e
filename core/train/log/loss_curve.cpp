#include "core/train/log/loss_curve.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/base/text.h"

namespace plait {
namespace {

constexpr double width = 840, height = 460;                                      // of the image, in pixels
constexpr double left = 68, right = width - 28, top = 64, bottom = height - 56;  // of the plot in it
constexpr size_t most_points = 800;                                              // about one per pixel

struct Point {
  double step = 0, loss = 0;
};
using Curve = std::vector<Point>;

struct Range {
  double from = 0, to = 1;
};

std::string number(double value, const char* format = "%.1f") {
  char out[32];
  std::snprintf(out, sizeof out, format, value);
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (char letter : text) out += letter == '<' ? "&lt;" : letter == '&' ? "&amp;" : std::string(1, letter);
  return out;
}

Curve curve_of(std::span<const StepReport> reports, double StepReport::*loss) {
  Curve out;
  for (const StepReport& report : reports)
    if (std::isfinite(report.*loss)) out.push_back({static_cast<double>(report.step), report.*loss});
  std::stable_sort(out.begin(), out.end(), [](const Point& a, const Point& b) { return a.step < b.step; });
  return out;
}

/// Downsamples: each run of points becomes its minimum and maximum if `extreme`, otherwise its mean.
Curve thinned(const Curve& curve, bool extreme) {
  if (curve.size() <= most_points) return curve;
  Curve out;
  for (size_t bin = 0; bin < most_points; ++bin) {
    const auto begin = curve.begin() + static_cast<std::ptrdiff_t>(bin * curve.size() / most_points);
    const auto end = curve.begin() + static_cast<std::ptrdiff_t>((bin + 1) * curve.size() / most_points);
    auto below = [](const Point& a, const Point& b) { return a.loss < b.loss; };
    if (extreme) {
      out.push_back({begin->step, std::min_element(begin, end, below)->loss});
      out.push_back({begin->step, std::max_element(begin, end, below)->loss});
      continue;
    }
    Point mean;
    for (auto point = begin; point != end; ++point) mean.step += point->step, mean.loss += point->loss;
    const auto count = static_cast<double>(end - begin);
    out.push_back({mean.step / count, mean.loss / count});
  }
  return out;
}

/// Symmetric Gaussian smoothing over an eightieth of the run: no lag.
Curve smoothed(const Curve& curve) {
  const double deviation = std::max(static_cast<double>(curve.size()) / 80, 1.0);
  const auto reach = static_cast<std::ptrdiff_t>(3 * deviation), count = std::ssize(curve);
  Curve out = curve;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    double sum = 0, weights = 0;
    for (std::ptrdiff_t j = std::max<std::ptrdiff_t>(i - reach, 0); j < std::min(i + reach + 1, count); ++j) {
      const double distance = static_cast<double>(i - j) / deviation, weight = std::exp(-distance * distance / 2);
      sum += weight * curve[static_cast<size_t>(j)].loss;
      weights += weight;
    }
    out[static_cast<size_t>(i)].loss = sum / weights;
  }
  return out;
}

/// Range of the losses with a margin, without the outermost percentiles of single steps.
Range loss_range(const Curve& raw, const Curve& smooth, const Curve& evaluation) {
  std::vector<double> losses;
  for (const Point& point : raw) losses.push_back(point.loss);
  std::sort(losses.begin(), losses.end());
  if (const size_t cut = losses.size() / 100; cut) losses = {losses.begin() + cut, losses.end() - cut};
  for (const Curve* curve : {&smooth, &evaluation})
    for (const Point& point : *curve) losses.push_back(point.loss);
  if (losses.empty()) return {};
  const auto [least, most] = std::minmax_element(losses.begin(), losses.end());
  const double air = std::max((*most - *least) * 0.06, std::max(std::abs(*most), 1.0) * 1e-3);
  return {*least - air, *most + air};
}

/// About `count` round numbers in the range: multiples of 1, 2 or 5 times a power of ten.
std::vector<double> ticks(Range range, int count) {
  const double rough = (range.to - range.from) / count, power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough <= power ? 1 : rough <= 2 * power ? 2 : rough <= 5 * power ? 5 : 10);
  std::vector<double> out;
  for (double k = std::ceil(range.from / step - 1e-9); k * step <= range.to + 1e-9 * step; ++k)
    out.push_back(k == 0 ? 0 : k * step);  // avoids "-0"
  return out;
}

class Picture {
 public:
  Picture(Range steps, Range losses) : steps_(steps), losses_(losses) {}

  double x(double step) const { return left + (step - steps_.from) / (steps_.to - steps_.from) * (right - left); }
  double y(double loss) const {
    return bottom - (loss - losses_.from) / (losses_.to - losses_.from) * (bottom - top);
  }

  void text(double x, double y, std::string_view kind, std::string_view words) {
    append(out_, cat("<text class=\"", kind, "\" x=\"", number(x), "\" y=\"", number(y), "\">", escaped(words),
                     "</text>\n"));
  }
  void line(std::string_view kind, double x1, double y1, double x2, double y2) {
    append(out_, cat("<line class=\"", kind, "\" x1=\"", number(x1), "\" y1=\"", number(y1), "\" x2=\"", number(x2),
                     "\" y2=\"", number(y2), "\"/>\n"));
  }
  void curve(std::string_view kind, const Curve& points) {
    if (points.empty()) return;
    append(out_, cat("<polyline class=\"curve ", kind, "\" clip-path=\"url(#plot)\" points=\""));
    for (const Point& point : points) append(out_, cat(number(x(point.step)), ",", number(y(point.loss)), " "));
    append(out_, "\"/>\n");
  }
  void dot(std::string_view kind, double x, double y) {
    append(out_, cat("<circle class=\"dot ", kind, "\" cx=\"", number(x), "\" cy=\"", number(y), "\" r=\"3.5\"/>\n"));
  }
  void axes() {
    for (double loss : ticks(losses_, 8)) {
      line("grid", left, y(loss), right, y(loss));
      text(left - 10, y(loss) + 4, "tick end", number(loss, "%.6g"));
    }
    for (double step : ticks(steps_, 8)) {
      line("axis", x(step), bottom, x(step), bottom + 5);
      text(x(step), bottom + 21, "tick middle", number(step, "%.9g"));
    }
    line("axis", left, bottom, right, bottom);
    text((left + right) / 2, height - 14, "tick middle", "step");
  }
  std::string take() { return std::move(out_); }

 private:
  Range steps_, losses_;
  std::string out_;
};

// Colours are in the rules themselves, for viewers without CSS variables.
constexpr std::string_view style = R"(<style>
text { font: 12px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #6b7280; }
.title { font-size: 17px; font-weight: 600; fill: #1f2430; } .legend { fill: #1f2430; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.back { fill: #ffffff; } .grid { stroke: #e6e8ec; } .axis { stroke: #9aa3b2; }
.curve { fill: none; stroke-linejoin: round; stroke-width: 2.4; }
.train, .raw { stroke: #2563eb; } .raw { stroke-width: 1.2; stroke-opacity: 0.35; }
.evaluation { stroke: #d9480f; } .dot { fill: #ffffff; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
text { fill: #9aa3b2; } .title, .legend { fill: #e8eaf0; } .back, .dot { fill: #14171d; } .grid { stroke: #2a2f3a; }
.train, .raw { stroke: #6ea8fe; } .raw { stroke-opacity: 0.4; } .evaluation { stroke: #ff9f5a; } }
</style>
)";

}  // namespace

std::string loss_curve_svg(std::span<const StepReport> reports, std::string_view title) {
  const Curve all = curve_of(reports, &StepReport::loss), raw = thinned(all, true),
              smooth = smoothed(thinned(all, false)),
              evaluation = thinned(curve_of(reports, &StepReport::evaluation_loss), false);
  Range steps{0, 1};
  for (const Curve* curve : {&all, &evaluation})
    if (!curve->empty()) steps.to = std::max(steps.to, curve->back().step);
  Picture picture(steps, loss_range(all, smooth, evaluation));
  picture.axes();
  picture.curve("raw", raw);
  picture.curve("train", smooth);
  picture.curve("evaluation", evaluation);
  if (evaluation.size() <= 60)
    for (const Point& point : evaluation) picture.dot("evaluation", picture.x(point.step), picture.y(point.loss));
  picture.text(left, 32, "title", title);
  double x = left;
  auto legend = [&](std::string_view kind, std::string_view name, const Curve& curve) {
    if (curve.empty()) return;
    const std::string words = cat(name, " ", number(curve.back().loss, "%.4g"));
    picture.line(cat("curve ", kind), x, 47, x + 22, 47);
    picture.text(x + 29, 51, "legend", words);
    x += 60 + 7 * static_cast<double>(words.size());
  };
  legend("train", "training", smooth);
  legend("raw", "each step", raw);
  legend("evaluation", "evaluation", evaluation);
  return cat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", number(width, "%.0f"), " ",
             number(height, "%.0f"), "\" width=\"", number(width, "%.0f"), "\" height=\"", number(height, "%.0f"),
             "\" role=\"img\">\n<title>", escaped(title), "</title>\n", style,
             "<rect class=\"back\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n", "<clipPath id=\"plot\"><rect x=\"",
             number(left), "\" y=\"", number(top), "\" width=\"", number(right - left), "\" height=\"",
             number(bottom - top), "\"/></clipPath>\n", picture.take(), "</svg>\n");
}

}  // namespace plait
