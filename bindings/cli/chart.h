#pragma once
// Charts of pages, as SVG: curves and dots over two linear axes.
#include <functional>
#include <string>
#include <vector>

namespace plait::cli {

struct ChartAxis {
  std::string name;
  double most = 0;                          ///< axes begin at 0
  std::function<std::string(double)> text;  ///< a value with its unit
};

struct ChartCurve {
  std::string name;
  std::vector<double> values;  ///< over equal parts of the axis x
};

struct ChartDot {
  double x = 0, y = 0;
  std::string name;
  bool chosen = false;  ///< larger, in a colour of its own, with its name written
};

struct Chart {
  std::string name;  ///< for who does not see it
  ChartAxis x, y;
  std::vector<ChartCurve> curves = {};
  std::vector<ChartDot> dots = {};
  double limit = 0;  ///< a line across at this y; 0: none
  std::string limit_name = {};
};

/// Names are escaped; each curve and dot has its own as a tooltip.
std::string chart_svg(const Chart& chart);

}  // namespace plait::cli
