// Regions of interest: RoiAlign and MaxRoiPool, and their gradients.
#include <array>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/multiply.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/image/register.h"

namespace plait::reference {
namespace {

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

struct BoxTap {
  int64_t at;
  double weight;
};

/// The two elements that a place reads along an axis, and their weights; none if it is further than 1 outside.
std::array<BoxTap, 2> box_taps(double place, int64_t size) {
  if (place < -1 || place > static_cast<double>(size)) return {{{0, 0}, {0, 0}}};
  place = std::max(place, 0.0);
  const auto low = std::min(static_cast<int64_t>(place), size - 1), high = std::min(low + 1, size - 1);
  const double rest = low == size - 1 ? 0 : place - static_cast<double>(low);
  return {{{low, 1 - rest}, {high, rest}}};
}

/// The number of samples per part of a box of `length`, which has `parts` of them.
int64_t samples_of(double length, int64_t parts, int64_t ratio) {
  return ratio > 0 ? ratio
                   : std::max<int64_t>(0, static_cast<int64_t>(std::ceil(length / static_cast<double>(parts))));
}

/// Boxes of RoiAlign, x [b, c, h, w], rois [n, 4] as x1, y1, x2, y2, batch_indices [n], and the samples of their parts.
class AlignedBoxes {
 public:
  AlignedBoxes(const RoiAttributes& a, const TensorView& x, const TensorView& rois, const TensorView& images,
               const Shape& y)
      : a_(a),
        boxes_(rois),
        images_(to_ints(images)),
        height_(x.shape[2]),
        width_(x.shape[3]),
        ph_(y[2]),
        pw_(y[3]) {}

  /// As for RoiAlign; operands are numbered from that of x.
  KernelStatus check(const TensorView& x, const TensorView& rois, const Shape& y, int32_t first) const {
    if (rois.shape[1] != 4) return {KernelCode::bad_value, first + 1, rois.shape[1]};
    const auto images = static_cast<int64_t>(images_.size());
    if (images != rois.shape[0]) return {KernelCode::bad_value, first + 2, images};
    if (y[0] != rois.shape[0] || y[1] != x.shape[1]) return {KernelCode::bad_value, 0, y[0]};
    for (int64_t image : images_)
      if (image < 0 || image >= x.shape[0]) return {KernelCode::index_out_of_range, first + 2, image};
    if (height_ * width_ == 0 && y.elements() > 0) return {KernelCode::bad_value, first, 0};
    constexpr double most = 1 << 16;  // samples along an axis of a part: a box far larger than the image
    for (int64_t i = 0; i < rois.elements(); ++i)
      if (!(std::fabs(boxes_[i] * a_.scale) < most)) return {KernelCode::bad_value, first + 1, i};
    return {};
  }

  int64_t image(int64_t n) const { return images_[static_cast<size_t>(n)]; }

  /// Calls f(element of a plane, weight) for what part [i, j] of box n reads; returns the number of samples.
  template <class F>
  int64_t each_tap(int64_t n, int64_t i, int64_t j, F f) const {
    const double shift = a_.half_pixel ? 0.5 : 0;
    const double x1 = boxes_[n * 4] * a_.scale - shift, y1 = boxes_[n * 4 + 1] * a_.scale - shift;
    double w = boxes_[n * 4 + 2] * a_.scale - shift - x1, h = boxes_[n * 4 + 3] * a_.scale - shift - y1;
    if (!a_.half_pixel) w = std::max(w, 1.0), h = std::max(h, 1.0);
    const int64_t down = samples_of(h, ph_, a_.ratio), across = samples_of(w, pw_, a_.ratio);
    const double bin_h = h / static_cast<double>(ph_), bin_w = w / static_cast<double>(pw_);
    for (int64_t s = 0; s < down * across; ++s) {
      const auto v = static_cast<double>(s / across) + 0.5, u = static_cast<double>(s % across) + 0.5;
      const auto rows =
          box_taps(y1 + static_cast<double>(i) * bin_h + v * bin_h / static_cast<double>(down), height_);
      const auto columns =
          box_taps(x1 + static_cast<double>(j) * bin_w + u * bin_w / static_cast<double>(across), width_);
      for (const BoxTap& vertical : rows)
        for (const BoxTap& horizontal : columns)
          f(vertical.at * width_ + horizontal.at, vertical.weight * horizontal.weight);
    }
    return down * across;
  }

 private:
  const RoiAttributes& a_;
  Loaded<double> boxes_;
  std::vector<int64_t> images_;
  int64_t height_, width_, ph_, pw_;
};

/// RoiAlign -> [n, c, ph, pw]: means of samples, or the greatest of what they read.
KernelStatus roi_align(const KernelCall& call, const RoiAttributes& a) {
  const TensorView &x = call.inputs[0], &rois = call.inputs[1], &y = call.outputs[0];
  const AlignedBoxes boxes(a, x, rois, call.inputs[2], y.shape);
  if (const KernelStatus status = boxes.check(x, rois, y.shape, 0); status.code != KernelCode::ok) return status;
  const int64_t channels = x.shape[1], plane = x.shape[2] * x.shape[3], ph = y.shape[2], pw = y.shape[3];
  const Loaded<double> data(x);
  std::vector<double> result(static_cast<size_t>(y.elements()));
  share(call.pool, y.elements(), y.elements() * 16, [&](int64_t to) {
    const int64_t n = to / (channels * ph * pw), c = to / (ph * pw) % channels;
    const double* from = data.data() + (boxes.image(n) * channels + c) * plane;
    double sum = 0, best = 0;
    bool any = false;
    const int64_t samples = boxes.each_tap(n, to / pw % ph, to % pw, [&](int64_t at, double weight) {
      const double value = weight * from[at];
      sum += value;
      best = any ? std::max(best, value) : value;
      any = true;
    });
    result[static_cast<size_t>(to)] = a.greatest ? best : sum / static_cast<double>(std::max<int64_t>(samples, 1));
  });
  store_all(y, result);
  return {};
}

/// dy [n, c, ph, pw], x, rois, batch_indices -> dx.
KernelStatus roi_align_back(const KernelCall& call, const RoiAttributes& a) {
  const TensorView &dy = call.inputs[0], &x = call.inputs[1], &rois = call.inputs[2], &dx = call.outputs[0];
  const AlignedBoxes boxes(a, x, rois, call.inputs[3], dy.shape);
  if (const KernelStatus status = boxes.check(x, rois, dy.shape, 1); status.code != KernelCode::ok) return status;
  const int64_t channels = x.shape[1], plane = x.shape[2] * x.shape[3], ph = dy.shape[2], pw = dy.shape[3];
  const Loaded<double> data(x), gradient(dy);
  std::vector<double> result(static_cast<size_t>(dx.elements()));
  share(call.pool, channels, dy.elements() * 16, [&](int64_t c) {
    for (int64_t part = 0; part < dy.shape[0] * ph * pw; ++part) {
      const int64_t n = part / (ph * pw), first = (boxes.image(n) * channels + c) * plane;
      const double own = gradient[(n * channels + c) * ph * pw + part % (ph * pw)];
      double* to = result.data() + first;
      double best = 0, weight_of_best = 0;
      int64_t place = -1, samples = 1;
      auto each = [&](auto f) { return boxes.each_tap(n, part / pw % ph, part % pw, f); };
      if (!a.greatest) samples = each([](int64_t, double) {});
      each([&](int64_t at, double weight) {
        if (!a.greatest) {
          to[at] += own * weight / static_cast<double>(samples);
        } else if (const double value = weight * data[first + at]; place < 0 || value > best) {
          best = value, weight_of_best = weight, place = at;
        }
      });
      if (place >= 0) to[place] += own * weight_of_best;
    }
  });
  store_all(dx, result);
  return {};
}

// ---- MaxRoiPool ----

/// Of a part of a box: its image, and the elements from the first to before the last, by axis.
struct PooledPart {
  int64_t image, top, bottom, left, right;
};

/// rois [n, 5] as image, x1, y1, x2, y2. False if one is of no image, or without bounds; `fault` is then its number.
bool pooled_parts(const TensorView& x, const TensorView& rois, int64_t ph, int64_t pw, double scale,
                  std::vector<PooledPart>& out, int64_t& fault) {
  const Loaded<double> boxes(rois);
  for (int64_t n = 0; n < rois.shape[0]; ++n) {
    const double image = boxes[n * 5];
    int64_t corner[4];
    fault = n;
    if (!(image >= 0 && image < static_cast<double>(x.shape[0]))) return false;
    for (int k = 0; k < 4; ++k) {
      const double value = std::round(boxes[n * 5 + 1 + k] * scale);
      if (!(std::fabs(value) < 1e9)) return false;
      corner[k] = static_cast<int64_t>(value);
    }
    const double w = static_cast<double>(std::max<int64_t>(corner[2] - corner[0] + 1, 1)) / static_cast<double>(pw);
    const double h = static_cast<double>(std::max<int64_t>(corner[3] - corner[1] + 1, 1)) / static_cast<double>(ph);
    auto bound = [](double offset, int64_t start, int64_t size) {
      return std::clamp<int64_t>(static_cast<int64_t>(offset) + start, 0, size);
    };
    for (int64_t i = 0; i < ph * pw; ++i) {
      const auto row = static_cast<double>(i / pw), column = static_cast<double>(i % pw);
      out.push_back({static_cast<int64_t>(image), bound(std::floor(row * h), corner[1], x.shape[2]),
                     bound(std::ceil((row + 1) * h), corner[1], x.shape[2]),
                     bound(std::floor(column * w), corner[0], x.shape[3]),
                     bound(std::ceil((column + 1) * w), corner[0], x.shape[3])});
    }
  }
  return true;
}

/// The greatest element of a part of a plane; -1 for none.
int64_t greatest_of(const double* plane, const PooledPart& part, int64_t width) {
  int64_t best = -1;
  for (int64_t v = part.top; v < part.bottom; ++v)
    for (int64_t u = part.left; u < part.right; ++u)
      if (best < 0 || plane[v * width + u] > plane[best]) best = v * width + u;
  return best;
}

/// MaxRoiPool: the greatest of each of ph x pw parts of the box; 0 for none.
KernelStatus max_roi_pool(const KernelCall& call, const RoiAttributes& a) {
  const TensorView &x = call.inputs[0], &rois = call.inputs[1], &y = call.outputs[0];
  const int64_t channels = x.shape[1], plane = x.shape[2] * x.shape[3], each = y.shape[2] * y.shape[3];
  if (rois.shape[1] != 5) return {KernelCode::bad_value, 1, rois.shape[1]};
  std::vector<PooledPart> parts;
  if (int64_t fault = 0; !pooled_parts(x, rois, y.shape[2], y.shape[3], a.scale, parts, fault))
    return {KernelCode::bad_value, 1, fault};
  const Loaded<double> data(x);
  for (int64_t i = 0; i < y.elements(); ++i) {
    const int64_t n = i / (channels * each), c = i / each % channels;
    const PooledPart& part = parts[static_cast<size_t>(n * each + i % each)];
    const double* from = data.data() + (part.image * channels + c) * plane;
    const int64_t best = greatest_of(from, part, x.shape[3]);
    store_one(y, i, best < 0 ? 0 : from[best]);
  }
  return {};
}

/// dy [n, c, ph, pw], x, rois -> dx: to the greatest of each part.
KernelStatus max_roi_pool_back(const KernelCall& call, const RoiAttributes& a) {
  const TensorView &dy = call.inputs[0], &x = call.inputs[1], &rois = call.inputs[2], &dx = call.outputs[0];
  const int64_t channels = x.shape[1], plane = x.shape[2] * x.shape[3], each = dy.shape[2] * dy.shape[3];
  if (rois.shape[1] != 5 || dy.shape[0] != rois.shape[0]) return {KernelCode::bad_value, 2, rois.shape[1]};
  if (dy.shape[1] != channels) return {KernelCode::bad_value, 0, dy.shape[1]};
  std::vector<PooledPart> parts;
  if (int64_t fault = 0; !pooled_parts(x, rois, dy.shape[2], dy.shape[3], a.scale, parts, fault))
    return {KernelCode::bad_value, 2, fault};
  const Loaded<double> data(x), gradient(dy);
  std::vector<double> result(static_cast<size_t>(dx.elements()));
  for (int64_t i = 0; i < dy.elements(); ++i) {
    const int64_t n = i / (channels * each), c = i / each % channels;
    const PooledPart& part = parts[static_cast<size_t>(n * each + i % each)];
    const int64_t first = (part.image * channels + c) * plane;
    const int64_t best = greatest_of(data.data() + first, part, x.shape[3]);
    if (best >= 0) result[static_cast<size_t>(first + best)] += gradient[i];
  }
  store_all(dx, result);
  return {};
}

}  // namespace

void add_regions(KernelTable& table) {
  add<roi_align>(table, "RoiAlign", floats);
  add<roi_align_back>(table, "plait.RoiAlignBack", floats);
  add<max_roi_pool>(table, "MaxRoiPool", floats);
  add<max_roi_pool_back>(table, "plait.MaxRoiPoolBack", floats);
}

}  // namespace plait::reference
