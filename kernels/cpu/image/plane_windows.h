#pragma once
// Windows over images [b, height, width, c] or [b, width, c].
#include <vector>

#include "core/base/windows.h"
#include "kernels/cpu/image/channel_loops.h"

namespace plait::cpu {

/// The two space axes; an image [b, width, c] has a height of 1.
struct PlaneWindows {
  PlaneWindows(const Shape& x, const Shape& y, const std::vector<int64_t>& kernel, const WindowAttributes& attributes)
      : batch(x[0]), channels(x.back(1)) {
    std::vector<WindowAxis> axes = window_axes(first(x), first(y), kernel, attributes);
    if (axes.size() == 1) axes.insert(axes.begin(), {1, 1, 1, 1, 1, 0, 0});
    down = axes[0], across = axes[1];
  }
  static Shape first(const Shape& shape) {
    Shape out{shape[0], shape.back(1)};
    for (int i = 1; i + 1 < shape.rank(); ++i) out.push_back(shape[i]);
    return out;
  }
  int64_t in() const { return down.in * across.in; }
  int64_t out() const { return down.out * across.out; }
  int64_t taps() const { return down.kernel * across.kernel; }

  int64_t batch, channels;
  WindowAxis down{}, across{};
};

/// Taps [begin, end) of window `at` that are inside the image.
inline std::pair<int64_t, int64_t> taps_inside(const WindowAxis& axis, int64_t at) {
  const int64_t first = at * axis.stride - axis.before;
  const int64_t begin = first >= 0 ? 0 : std::min(axis.kernel, (-first + axis.dilation - 1) / axis.dilation);
  const int64_t end =
      axis.in - first <= 0 ? 0 : std::min(axis.kernel, (axis.in - first + axis.dilation - 1) / axis.dilation);
  return {begin, std::max(begin, end)};
}

/// Calls run(WindowRun) for the parts of row `row` (flat over batch and height) of the results, of `y` [b, out, c]. `counts` of means:
/// with the padding, or only of the taps inside.
template <class F>
void window_runs(const PlaneWindows& n, const float* x, const float* weights, float* y, int64_t row,
                 bool with_padding, std::vector<const float*>& from, std::vector<const float*>& by, F run) {
  const int64_t top = row % n.down.out, c = n.channels, width = n.across.out;
  const float* image = x + row / n.down.out * n.in() * c;
  const auto [down0, down1] = taps_inside(n.down, top);
  auto counted = [](const WindowAxis& axis, int64_t at) {
    int64_t out = 0;
    for (int64_t tap = 0; tap < axis.kernel; ++tap)
      out += at * axis.stride + tap * axis.dilation - axis.before < axis.in + axis.after;
    return out;
  };
  for (int64_t at = 0; at < width;) {
    const auto inside = taps_inside(n.across, at);
    int64_t end = at + 1;
    if (inside.first == 0 && inside.second == n.across.kernel)  // until a window reaches beyond the right edge
      while (end < width && taps_inside(n.across, end) == inside) ++end;
    from.clear(), by.clear();
    for (int64_t i = down0; i < down1; ++i)
      for (int64_t j = inside.first; j < inside.second; ++j) {
        const int64_t line = top * n.down.stride + i * n.down.dilation - n.down.before,
                      column = at * n.across.stride + j * n.across.dilation - n.across.before;
        from.push_back(image + (line * n.across.in + column) * c);
        if (weights) by.push_back(weights + (i * n.across.kernel + j) * c);
      }
    const auto taps = static_cast<int64_t>(from.size());
    // The padding that a mean counts differs from window to window only where the windows leave the image.
    const int64_t count = with_padding ? counted(n.down, top) * counted(n.across, at) : taps;
    run(WindowRun{from.data(), by.data(), taps, n.across.stride * c, end - at, c,
                  count ? 1 / static_cast<float>(count) : 0, y + (row * width + at) * c});
    at = end;
  }
}

}  // namespace plait::cpu
