// Ops that read an image at the places of a grid: GridSample with its gradients, AffineGrid.
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"

namespace plait::reference {
namespace {

enum class Padding : uint8_t { zeros, border, reflection };

struct GridAttributes {
  explicit GridAttributes(const NodeInfo& node) : aligned(node.attributes.integer("align_corners", 0) != 0) {
    const std::string mode = node.attributes.string("mode", "linear");
    const std::string pad = node.attributes.string("padding_mode", "zeros");
    if (mode == "nearest") reach = 0;
    else if (mode == "linear" || mode == "bilinear") reach = 1;
    else if (mode == "cubic" || mode == "bicubic") reach = 2;
    else throw Error(Code::bad_model, cat("GridSample: attribute \"mode\" is ", quote(mode)));
    if (pad == "zeros") padding = Padding::zeros;
    else if (pad == "border") padding = Padding::border;
    else if (pad == "reflection") padding = Padding::reflection;
    else throw Error(Code::bad_model, cat("GridSample: attribute \"padding_mode\" is ", quote(pad)));
  }
  int reach = 1;  ///< elements read on each side along an axis; 0: the nearest one
  Padding padding = Padding::zeros;
  bool aligned;  ///< -1 and 1 are the centres of the outermost elements, not their outer edges
};

/// x mirrored at the ends of [low, high] until it is inside; `slope` is multiplied by the derivative.
double reflected(double x, double low, double high, double* slope = nullptr) {
  const double range = high - low;
  const double rest = range > 0 ? std::fmod(std::fabs(x - low), 2 * range) : 0;
  if (slope) *slope *= range > 0 ? (x < low) == (rest > range) ? 1 : -1 : 0;
  if (range <= 0) return low;
  return low + (rest > range ? 2 * range - rest : rest);
}

/// The element that stands for index `at` of an axis of `size`; -1: zero.
int64_t padded_index(double at, int64_t size, const GridAttributes& a) {
  const double last = static_cast<double>(size - 1);
  if (at >= 0 && at <= last) return static_cast<int64_t>(at);
  if (a.padding == Padding::zeros || !std::isfinite(at)) return -1;
  if (a.padding == Padding::border) return at < 0 ? 0 : size - 1;
  const double edge = a.aligned ? 0 : 0.5;
  return static_cast<int64_t>(std::clamp(reflected(at, -edge, last + edge), 0.0, last));
}

struct GridTap {
  int64_t at;
  double weight;
  double slope = 0;  ///< the derivative of the weight by the grid's number
};

/// What the place reads along one axis: 1, 2 or 4 elements.
std::vector<GridTap> taps_at(double normalized, int64_t size, const GridAttributes& a) {
  const auto n = static_cast<double>(size);
  double place = a.aligned ? (normalized + 1) / 2 * (n - 1) : ((normalized + 1) * n - 1) / 2;
  double slope = (a.aligned ? n - 1 : n) / 2;  // of the place
  if (a.reach == 0) place = std::nearbyint(place);
  const double edge = a.aligned ? 0 : 0.5;
  if (place < -edge || place > n - 1 + edge) {
    // A cubic kernel reaches back inside: only its elements are moved to the border.
    if (a.padding == Padding::border && a.reach < 2) place = std::clamp(place, 0.0, n - 1), slope = 0;
    if (a.padding == Padding::reflection) place = reflected(place, -edge, n - 1 + edge, &slope);
  }
  if (a.reach == 0) return {{padded_index(place, size, a), 1}};
  std::vector<GridTap> out;
  const double floor = std::floor(place);
  for (int i = 1 - a.reach; i <= a.reach; ++i) {
    const double x = std::fabs(place - floor - i), sign = place - floor < i ? -1 : 1;
    constexpr double c = -0.75;
    double weight = 1 - x, by_x = -1;
    if (a.reach == 2) {
      weight = x < 1 ? ((c + 2) * x - (c + 3)) * x * x + 1 : ((c * x - 5 * c) * x + 8 * c) * x - 4 * c;
      by_x = x < 1 ? (3 * (c + 2) * x - 2 * (c + 3)) * x : (3 * c * x - 10 * c) * x + 8 * c;
    }
    out.push_back({padded_index(floor + i, size, a), weight, by_x * sign * slope});
  }
  return out;
}

/// x [b, c, in...], grid [b, out..., n], the last dim of space first -> [b, c, out...].
KernelStatus grid_sample(const KernelCall& call, const GridAttributes& a) {
  const TensorView &x = call.inputs[0], &grid = call.inputs[1], &y = call.outputs[0];
  const int space = x.shape.rank() - 2;
  if (grid.shape.back(1) != space || grid.shape[0] != x.shape[0])
    return {KernelCode::bad_value, 1, grid.shape.back(1)};
  const int64_t channels = x.shape[1], in = x.shape.elements(2, x.shape.rank()),
                out = y.shape.elements(2, y.shape.rank());
  if (in == 0 && y.elements() > 0) return {KernelCode::bad_value, 0, 0};
  const Loaded<double> data(x), places(grid);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  share(call.pool, x.shape[0] * out, y.elements() << (2 * space), [&](int64_t row) {
    const int64_t b = row / out, to = row % out;
    std::vector<GridTap> taps{{0, 1}};  // of all axes so far
    for (int k = 0; k < space; ++k) {
      const int64_t size = x.shape[k + 2];
      std::vector<GridTap> next;
      for (const GridTap& tap : taps)
        for (const GridTap& own : taps_at(places[row * space + space - 1 - k], size, a))
          next.push_back({tap.at < 0 || own.at < 0 ? -1 : tap.at * size + own.at, tap.weight * own.weight});
      taps = std::move(next);
    }
    for (int64_t c = 0; c < channels; ++c) {
      double sum = 0;
      for (const GridTap& tap : taps)
        if (tap.at >= 0) sum += tap.weight * data[(b * channels + c) * in + tap.at];
      result[static_cast<size_t>((b * channels + c) * out + to)] = sum;
    }
  });
  store_all(y, result);
  return {};
}

/// The taps of all axes at one place of the output.
struct GridPlace {
  GridPlace(const Shape& x, const double* grid, const GridAttributes& a) {
    for (int k = 2; k < x.rank(); ++k) {
      axes.push_back(taps_at(grid[x.rank() - 1 - k], x[k], a));
      sizes.push_back(x[k]);
      count *= axes.back().size();
    }
  }
  /// The element that combination `i` of taps reads (-1: none), and the tap of each axis.
  int64_t tap(size_t i, std::vector<const GridTap*>& own) const {
    int64_t at = 0, pitch = 1;
    own.resize(axes.size());
    for (size_t k = axes.size(); k-- > 0; i /= axes[k].size()) {
      own[k] = &axes[k][i % axes[k].size()];
      at = own[k]->at < 0 || at < 0 ? -1 : at + own[k]->at * pitch;
      pitch *= sizes[k];
    }
    return at;
  }
  std::vector<std::vector<GridTap>> axes;
  std::vector<int64_t> sizes;
  size_t count = 1;
};

/// dy [b, c, out...], x [b, c, in...], grid [b, out..., n] -> dx?, dgrid?
KernelStatus grid_sample_back(const KernelCall& call, const GridAttributes& a) {
  const TensorView &dy = call.inputs[0], &x = call.inputs[1], &grid = call.inputs[2], dx = output(call, 0),
                   dgrid = output(call, 1);
  const int64_t space = x.shape.rank() - 2, channels = x.shape[1], batch = x.shape[0];
  const int64_t in = x.shape.elements(2, x.shape.rank()), out = dy.shape.elements(2, dy.shape.rank());
  if (grid.shape[0] != batch || grid.elements() != batch * out * space)
    return {KernelCode::bad_value, 2, grid.elements()};
  if (dy.shape[0] != batch || dy.shape[1] != channels) return {KernelCode::bad_value, 0, dy.elements()};
  if (in == 0 && dy.elements() > 0) return {KernelCode::bad_value, 1, 0};
  const Loaded<double> data(x), places(grid), gradient(dy);
  std::vector<double> of_x(static_cast<size_t>(x.elements())), of_grid(static_cast<size_t>(grid.elements()));
  share(call.pool, batch, dy.elements() << (2 * space), [&](int64_t b) {
    std::vector<const GridTap*> taps;
    for (int64_t to = 0; to < out; ++to) {
      const int64_t row = (b * out + to) * space;
      const GridPlace place(x.shape, places.data() + row, a);
      for (size_t i = 0; i < place.count; ++i) {
        const int64_t at = place.tap(i, taps);
        if (at < 0) continue;
        double weight = 1, sum = 0;
        for (const GridTap* tap : taps) weight *= tap->weight;
        for (int64_t c = 0; c < channels; ++c) {
          const double own = gradient[(b * channels + c) * out + to];
          of_x[static_cast<size_t>((b * channels + c) * in + at)] += weight * own;
          sum += own * data[(b * channels + c) * in + at];
        }
        for (int64_t k = 0; k < space; ++k) {
          double slope = 1;
          for (int64_t j = 0; j < space; ++j) {
            const GridTap& tap = *taps[static_cast<size_t>(j)];
            slope *= j == k ? tap.slope : tap.weight;
          }
          of_grid[static_cast<size_t>(row + space - 1 - k)] += slope * sum;
        }
      }
    }
  });
  if (dx.present()) store_all(dx, of_x);
  if (dgrid.present()) store_all(dgrid, of_grid);
  return {};
}

/// theta [b, n, n + 1], size -> [b, out..., n]: theta times (place, 1), the last dim of space first, in [-1, 1].
KernelStatus affine_grid(const KernelCall& call, const GridAttributes& a) {
  const TensorView &theta = call.inputs[0], &y = call.outputs[0];
  const auto space = static_cast<int64_t>(y.shape.rank() - 2);
  if (theta.shape[1] != space || theta.shape[2] != space + 1) return {KernelCode::bad_value, 0, theta.shape[1]};
  const std::vector<double> map = load_all<double>(theta);
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t row = i % space, b = i / space / y.shape.elements(1, y.shape.rank() - 1);
    const double* from = map.data() + (b * space + row) * (space + 1);
    double sum = from[space];
    int64_t rest = i / space;
    for (int64_t k = 0; k < space; ++k) {  // from the last dim on
      const int64_t size = y.shape[static_cast<int>(space - k)];
      const auto at = static_cast<double>(rest % size), n = static_cast<double>(size);
      rest /= size;
      sum += from[k] * (a.aligned ? (size > 1 ? 2 * at / (n - 1) - 1 : -1) : (2 * at + 1) / n - 1);
    }
    store_one(y, i, sum);
  }
  return {};
}

}  // namespace

void add_sampling(KernelTable& table) {
  add<grid_sample>(table, "GridSample", numbers_and_bool);
  add<grid_sample_back>(table, "plait.GridSampleBack", floats);
  add<affine_grid>(table, "AffineGrid", floats);
}

}  // namespace plait::reference
