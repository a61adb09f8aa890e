#include "bindings/cli/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bindings/cli/page.h"

namespace plait::cli {
namespace {

constexpr double width = 960, height = 320, left = 84, right = 940, top = 16, bottom = 276;

std::string fixed(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

/// 1, 2 or 5 times a power of ten, four to nine of which make the axis.
double tick_of(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 4)));
  for (const double times : {1.0, 2.0, 5.0})
    if (most / (times * power) <= 9) return times * power;
  return 10 * power;
}

class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {}

  std::string svg() {
    out_ = "<svg class=\"chart\" role=\"img\" aria-label=\"" + escaped(chart_.name) + "\" viewBox=\"0 0 " +
           fixed(width) + " " + fixed(height) + "\">\n";
    grid();
    for (size_t i = 0; i < chart_.curves.size(); ++i) curve(i);
    for (const bool chosen : {false, true})  // the chosen one above the others
      for (const ChartDot& one : chart_.dots)
        if (one.chosen == chosen) dot(one);
    limit();
    return out_ + "</svg>\n";
  }

 private:
  double x(double value) const { return left + (right - left) * value / chart_.x.most; }
  double y(double value) const { return bottom - (bottom - top) * value / chart_.y.most; }

  void text(double at_x, double at_y, const std::string& words, const char* anchor) {
    out_ += "<text x=\"" + fixed(at_x) + "\" y=\"" + fixed(at_y) + "\" text-anchor=\"" + anchor + "\">" +
            escaped(words) + "</text>\n";
  }
  void line(double x1, double y1, double x2, double y2, const char* kind) {
    out_ += std::string("<line class=\"") + kind + "\" x1=\"" + fixed(x1) + "\" y1=\"" + fixed(y1) + "\" x2=\"" +
            fixed(x2) + "\" y2=\"" + fixed(y2) + "\"/>\n";
  }

  void grid() {
    const double across = tick_of(chart_.x.most), up = tick_of(chart_.y.most);
    for (double value = 0; value <= chart_.y.most; value += up) {
      line(left, y(value), right, y(value), "grid");
      text(left - 8, y(value) + 4, chart_.y.text(value), "end");
    }
    for (double value = 0; value <= chart_.x.most; value += across) {
      line(x(value), bottom, x(value), bottom + 4, "grid");
      text(x(value), bottom + 18, chart_.x.text(value), "middle");
    }
    text((left + right) / 2, height - 8, chart_.x.name, "middle");
    text(left, top - 4, chart_.y.name, "start");
  }

  void curve(size_t number) {
    const ChartCurve& one = chart_.curves[number];
    const double cell = chart_.x.most / static_cast<double>(std::max<size_t>(one.values.size(), 1));
    std::string points;
    for (size_t i = 0; i < one.values.size(); ++i)
      for (const size_t end : {i, i + 1})
        points += fixed(x(cell * static_cast<double>(end))) + "," + fixed(y(one.values[i])) + " ";
    const double hue = 210 + 300 * static_cast<double>(number) / static_cast<double>(chart_.curves.size());
    out_ += "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"hsl(" + fixed(std::fmod(hue, 360)) +
            ",65%,50%)\" points=\"" + points + "\"><title>" + escaped(one.name) + "</title></polyline>\n";
  }

  void dot(const ChartDot& one) {
    out_ += std::string("<circle class=\"") + (one.chosen ? "chosen" : "other") + "\" cx=\"" + fixed(x(one.x)) +
            "\" cy=\"" + fixed(y(one.y)) + "\" r=\"" + (one.chosen ? "6" : "3.5") + "\"><title>" + escaped(one.name) +
            "</title></circle>\n";
    if (one.chosen)
      text(x(one.x) + (x(one.x) < width / 2 ? 10 : -10), y(one.y) - 8, one.name,
           x(one.x) < width / 2 ? "start" : "end");
  }

  void limit() {
    if (chart_.limit <= 0 || chart_.limit > chart_.y.most) return;
    line(left, y(chart_.limit), right, y(chart_.limit), "limit");
    text(right, y(chart_.limit) - 4, chart_.limit_name, "end");
  }

  const Chart& chart_;
  std::string out_;
};

}  // namespace

std::string chart_svg(const Chart& chart) { return Drawing(chart).svg(); }

}  // namespace plait::cli
