#pragma once
// How windows walk over space: for convolution, pooling and their transposes.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/attributes.h"
#include "core/base/shape.h"

namespace plait {

struct WindowAttributes {
  explicit WindowAttributes(const Attributes& attributes)
      : group(attributes.integer("group", 1)),
        kernel(attributes.integers("kernel_shape")),
        strides(attributes.integers("strides")),
        dilations(attributes.integers("dilations")),
        pads(attributes.integers("pads")),
        auto_pad(attributes.string("auto_pad", "NOTSET")) {}
  int64_t group;
  std::vector<int64_t> kernel, strides, dilations, pads;  ///< empty: the weight's, ones, ones, zeros
  std::string auto_pad;
};

/// How one space dim is walked: input position = window * stride + tap * dilation - before.
struct WindowAxis {
  int64_t in, out, kernel, stride, dilation, before, after;
};

/// The axes of windows over `in` [..., space], one for each position of `out` [..., space]. SAME_* pads as much as the
/// windows of `out` need. `out` may be smaller than what fits.
inline std::vector<WindowAxis> window_axes(const Shape& in, const Shape& out, const std::vector<int64_t>& kernel,
                                           const WindowAttributes& attributes) {
  std::vector<WindowAxis> axes;
  const size_t space = kernel.size();
  for (size_t k = 0; k < space; ++k) {
    auto at = [&](const std::vector<int64_t>& list, size_t i, int64_t fallback) {
      return i < list.size() ? list[i] : fallback;
    };
    const int dim = in.rank() - static_cast<int>(space - k);
    WindowAxis axis{in[dim],
                    out[dim],
                    kernel[k],
                    at(attributes.strides, k, 1),
                    at(attributes.dilations, k, 1),
                    at(attributes.pads, k, 0),
                    at(attributes.pads, k + space, 0)};
    if (attributes.auto_pad != "NOTSET") axis.before = axis.after = 0;
    if (attributes.auto_pad.starts_with("SAME")) {
      const int64_t reach = (axis.kernel - 1) * axis.dilation + 1;
      const int64_t total = std::max<int64_t>(0, (axis.out - 1) * axis.stride + reach - axis.in);
      axis.before = attributes.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
      axis.after = total - axis.before;
    }
    axes.push_back(axis);
  }
  return axes;
}

/// The sizes of dims [from, rank).
inline std::vector<int64_t> sizes_from(const Shape& shape, int from) { return {shape.begin() + from, shape.end()}; }

struct TransposedWindowAttributes : WindowAttributes {
  explicit TransposedWindowAttributes(const Attributes& attributes)
      : WindowAttributes(attributes),
        output_padding(attributes.integers("output_padding")),
        sized(!attributes.integers("output_shape").empty()) {}
  std::vector<int64_t> output_padding;
  bool sized;  ///< by output_shape: pads follow from it
};

/// The axes of a ConvTranspose of x by w [c, m, kernel...] to y as those of the Conv that it transposes: windows, one for each
/// position of x, read y.
inline std::vector<WindowAxis> transposed_window_axes(const Shape& x, const Shape& w, const Shape& y,
                                                      const TransposedWindowAttributes& attributes) {
  std::vector<WindowAxis> axes = window_axes(y, x, sizes_from(w, 2), attributes);
  const bool same = attributes.auto_pad.starts_with("SAME");
  for (size_t k = 0; k < axes.size() && (attributes.sized || same); ++k) {
    WindowAxis& axis = axes[k];
    const int64_t extra = k < attributes.output_padding.size() ? attributes.output_padding[k] : 0;
    const int64_t full = (axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation + 1 + extra;
    const int64_t total = std::max<int64_t>(0, full - axis.in);
    axis.before = attributes.auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
  }
  return axes;
}

/// The flat input position that window `to` reads under kernel position `tap` (both flat); -1: padding.
inline int64_t window_source(const std::vector<WindowAxis>& axes, int64_t to, int64_t tap) {
  int64_t position = 0, pitch = 1;
  for (size_t i = axes.size(); i-- > 0;) {
    const WindowAxis& axis = axes[i];
    const int64_t at = to % axis.out * axis.stride + tap % axis.kernel * axis.dilation - axis.before;
    if (at < 0 || at >= axis.in) return -1;
    position += at * pitch;
    pitch *= axis.in;
    to /= axis.out;
    tap /= axis.kernel;
  }
  return position;
}

/// Whether the position is within the padded input, which reaches less far than the last window if sizes are rounded up.
inline bool window_within_padding(const std::vector<WindowAxis>& axes, int64_t to, int64_t tap) {
  for (size_t i = axes.size(); i-- > 0;) {
    const WindowAxis& axis = axes[i];
    if (to % axis.out * axis.stride + tap % axis.kernel * axis.dilation - axis.before >= axis.in + axis.after)
      return false;
    to /= axis.out;
    tap /= axis.kernel;
  }
  return true;
}

}  // namespace plait
