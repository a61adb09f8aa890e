// Ops that read an image at given places: GridSample, AffineGrid, RoiAlign, MaxRoiPool.
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"

namespace plait::reference {
namespace {

// ---- GridSample ----

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

/// x mirrored at the ends of [low, high] until it is inside.
double reflected(double x, double low, double high) {
  const double range = high - low;
  if (range <= 0) return low;
  const double rest = std::fmod(std::fabs(x - low), 2 * range);
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
};

/// What the place reads along one axis: 1, 2 or 4 elements.
std::vector<GridTap> taps_at(double normalized, int64_t size, const GridAttributes& a) {
  const auto n = static_cast<double>(size);
  double place = a.aligned ? (normalized + 1) / 2 * (n - 1) : ((normalized + 1) * n - 1) / 2;
  if (a.reach == 0) place = std::nearbyint(place);
  const double edge = a.aligned ? 0 : 0.5;
  if (place < -edge || place > n - 1 + edge) {
    // A cubic kernel reaches back inside: only its elements are moved to the border.
    if (a.padding == Padding::border && a.reach < 2) place = std::clamp(place, 0.0, n - 1);
    if (a.padding == Padding::reflection) place = reflected(place, -edge, n - 1 + edge);
  }
  if (a.reach == 0) return {{padded_index(place, size, a), 1}};
  std::vector<GridTap> out;
  const double floor = std::floor(place);
  for (int i = 1 - a.reach; i <= a.reach; ++i) {
    const double x = std::fabs(place - floor - i);
    constexpr double c = -0.75;
    double weight = 1 - x;
    if (a.reach == 2)
      weight = x < 1 ? ((c + 2) * x - (c + 3)) * x * x + 1 : ((c * x - 5 * c) * x + 8 * c) * x - 4 * c;
    out.push_back({padded_index(floor + i, size, a), weight});
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

// ---- Boxes ----

struct RoiAttributes {
  explicit RoiAttributes(const NodeInfo& node)
      : half_pixel(node.attributes.string("coordinate_transformation_mode", "half_pixel") == "half_pixel"),
        greatest(node.attributes.string("mode", "avg") == "max"),
        ratio(node.attributes.integer("sampling_ratio", 0)),
        scale(node.attributes.real("spatial_scale", 1)) {
    constexpr int64_t most = 1024;
    if (ratio < 0 || ratio > most)
      throw Error(Code::bad_model,
                  cat(node.op, ": attribute \"sampling_ratio\" is ", ratio, ", expected 0 to ", most));
  }
  bool half_pixel, greatest;
  int64_t ratio;
  double scale;
};

/// The two elements that a place reads along an axis, and their weights; none if it is further than 1 outside.
std::vector<GridTap> box_taps(double place, int64_t size) {
  if (place < -1 || place > static_cast<double>(size)) return {{0, 0}, {0, 0}};
  place = std::max(place, 0.0);
  const auto low = std::min(static_cast<int64_t>(place), size - 1), high = std::min(low + 1, size - 1);
  const double rest = low == size - 1 ? 0 : place - static_cast<double>(low);
  return {{low, 1 - rest}, {high, rest}};
}

/// The number of samples per part of a box of `length`, which has `parts` of them.
int64_t samples_of(double length, int64_t parts, int64_t ratio) {
  return ratio > 0 ? ratio
                   : std::max<int64_t>(0, static_cast<int64_t>(std::ceil(length / static_cast<double>(parts))));
}

/// RoiAlign: x [b, c, h, w], rois [n, 4] as x1, y1, x2, y2, batch_indices [n] -> [n, c, ph, pw].
KernelStatus roi_align(const KernelCall& call, const RoiAttributes& a) {
  const TensorView &x = call.inputs[0], &rois = call.inputs[1], &y = call.outputs[0];
  const int64_t channels = x.shape[1], height = x.shape[2], width = x.shape[3], ph = y.shape[2], pw = y.shape[3];
  const std::vector<int64_t> images = to_ints(call.inputs[2]);
  if (rois.shape[1] != 4) return {KernelCode::bad_value, 1, rois.shape[1]};
  if (static_cast<int64_t>(images.size()) != rois.shape[0])
    return {KernelCode::bad_value, 2, call.inputs[2].elements()};
  for (int64_t image : images)
    if (image < 0 || image >= x.shape[0]) return {KernelCode::index_out_of_range, 2, image};
  if (height * width == 0 && y.elements() > 0) return {KernelCode::bad_value, 0, 0};
  const Loaded<double> data(x), boxes(rois);
  const double shift = a.half_pixel ? 0.5 : 0, least = a.half_pixel ? 0 : 1;
  constexpr double most = 1 << 16;  // samples along an axis of a part: a box far larger than the image
  for (int64_t i = 0; i < rois.elements(); ++i)
    if (!(std::fabs(boxes[i] * a.scale) < most)) return {KernelCode::bad_value, 1, i};
  std::vector<double> result(static_cast<size_t>(y.elements()));
  share(call.pool, y.shape[0] * ph * pw, y.elements() * 16, [&](int64_t row) {
    const int64_t n = row / (ph * pw), i = row / pw % ph, j = row % pw;
    const double x1 = boxes[n * 4] * a.scale - shift, y1 = boxes[n * 4 + 1] * a.scale - shift;
    double w = boxes[n * 4 + 2] * a.scale - shift - x1, h = boxes[n * 4 + 3] * a.scale - shift - y1;
    if (least > 0) w = std::max(w, least), h = std::max(h, least);
    const int64_t down = samples_of(h, ph, a.ratio), across = samples_of(w, pw, a.ratio);
    const double bin_h = h / static_cast<double>(ph), bin_w = w / static_cast<double>(pw);
    for (int64_t c = 0; c < channels; ++c) {
      const double* plane = data.data() + (images[static_cast<size_t>(n)] * channels + c) * height * width;
      double sum = 0, best = 0;
      bool any = false;
      for (int64_t s = 0; s < down * across; ++s) {
        const auto v = static_cast<double>(s / across) + 0.5, u = static_cast<double>(s % across) + 0.5;
        const auto rows =
            box_taps(y1 + static_cast<double>(i) * bin_h + v * bin_h / static_cast<double>(down), height);
        const auto columns =
            box_taps(x1 + static_cast<double>(j) * bin_w + u * bin_w / static_cast<double>(across), width);
        for (const GridTap& vertical : rows)
          for (const GridTap& horizontal : columns) {
            const double value = vertical.weight * horizontal.weight * plane[vertical.at * width + horizontal.at];
            sum += value;
            best = any ? std::max(best, value) : value;
            any = true;
          }
      }
      const double mean = sum / static_cast<double>(std::max<int64_t>(down * across, 1));
      result[static_cast<size_t>(((n * channels + c) * ph + i) * pw + j)] = a.greatest ? best : mean;
    }
  });
  store_all(y, result);
  return {};
}

/// MaxRoiPool: rois [n, 5] as image, x1, y1, x2, y2 -> the greatest of each of ph x pw parts of the box; 0 for none.
KernelStatus max_roi_pool(const KernelCall& call, const RoiAttributes& a) {
  const TensorView &x = call.inputs[0], &rois = call.inputs[1], &y = call.outputs[0];
  const int64_t channels = x.shape[1], height = x.shape[2], width = x.shape[3], ph = y.shape[2], pw = y.shape[3];
  if (rois.shape[1] != 5) return {KernelCode::bad_value, 1, rois.shape[1]};
  const Loaded<double> data(x), boxes(rois);
  for (int64_t n = 0; n < rois.shape[0]; ++n) {
    const double image = boxes[n * 5];
    if (!(image >= 0 && image < static_cast<double>(x.shape[0]))) return {KernelCode::bad_value, 1, n};
    int64_t corner[4];
    for (int k = 0; k < 4; ++k) {
      const double value = std::round(boxes[n * 5 + 1 + k] * a.scale);
      if (!(std::fabs(value) < 1e9)) return {KernelCode::bad_value, 1, n};
      corner[k] = static_cast<int64_t>(value);
    }
    const double w = static_cast<double>(std::max<int64_t>(corner[2] - corner[0] + 1, 1)) / static_cast<double>(pw);
    const double h = static_cast<double>(std::max<int64_t>(corner[3] - corner[1] + 1, 1)) / static_cast<double>(ph);
    auto bound = [](double offset, int64_t start, int64_t size) {
      return std::clamp<int64_t>(static_cast<int64_t>(offset) + start, 0, size);
    };
    for (int64_t i = 0; i < channels * ph * pw; ++i) {
      const auto row = static_cast<double>(i / pw % ph), column = static_cast<double>(i % pw);
      const int64_t top = bound(std::floor(row * h), corner[1], height),
                    bottom = bound(std::ceil((row + 1) * h), corner[1], height);
      const int64_t left = bound(std::floor(column * w), corner[0], width),
                    right = bound(std::ceil((column + 1) * w), corner[0], width);
      const double* plane = data.data() + (static_cast<int64_t>(image) * channels + i / (ph * pw)) * height * width;
      double best = 0;
      for (int64_t v = top; v < bottom; ++v)
        for (int64_t u = left; u < right; ++u)
          best = v == top && u == left ? plane[v * width + u] : std::max(best, plane[v * width + u]);
      store_one(y, n * channels * ph * pw + i, best);
    }
  }
  return {};
}

}  // namespace

void add_sampling(KernelTable& table) {
  add<grid_sample>(table, "GridSample", numbers_and_bool);
  add<affine_grid>(table, "AffineGrid", floats);
  add<roi_align>(table, "RoiAlign", floats);
  add<max_roi_pool>(table, "MaxRoiPool", floats);
}

}  // namespace plait::reference
