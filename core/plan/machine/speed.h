#pragma once
// How fast something is, by the size of what it works on.
#include <vector>

namespace plait {

/// One number, or numbers at sizes that were measured: between two sizes a power of the size, beyond the ends that of the nearest.
class Speed {
 public:
  struct Point {
    double size = 0, speed = 0;
  };

  Speed(double speed = 0) : points_{{1, speed}} {}  // NOLINT: a number is a speed
  /// Throws Error(invalid_argument) if there is no point, a number is not above 0, or sizes do not ascend.
  explicit Speed(std::vector<Point> points);

  double at(double size) const;
  double most() const;
  const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
};

}  // namespace plait
