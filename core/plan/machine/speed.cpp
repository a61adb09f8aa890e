#include "core/plan/machine/speed.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

Speed::Speed(std::vector<Point> points) : points_(std::move(points)) {
  if (points_.empty()) throw Error(Code::invalid_argument, "a speed by size has no size");
  for (size_t i = 0; i < points_.size(); ++i) {
    if (points_[i].size <= 0 || points_[i].speed <= 0)
      throw Error(Code::invalid_argument, cat("a speed of ", points_[i].speed, " at size ", points_[i].size),
                  "both must be more than 0");
    if (i && points_[i].size <= points_[i - 1].size)
      throw Error(Code::invalid_argument,
                  cat("sizes of a speed do not ascend: ", points_[i - 1].size, ", ", points_[i].size));
  }
}

double Speed::at(double size) const {
  const auto above =
      std::find_if(points_.begin(), points_.end(), [&](const Point& point) { return point.size >= size; });
  if (above == points_.begin()) return points_.front().speed;
  if (above == points_.end()) return points_.back().speed;
  const Point &a = *(above - 1), &b = *above;
  return a.speed * std::pow(b.speed / a.speed, std::log(size / a.size) / std::log(b.size / a.size));
}

double Speed::most() const {
  return std::max_element(points_.begin(), points_.end(),
                          [](const Point& a, const Point& b) { return a.speed < b.speed; })
      ->speed;
}

}  // namespace plait
