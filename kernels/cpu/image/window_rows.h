#pragma once
// Windows row by row: which part of a row of results reads inside the image.
#include <algorithm>
#include <vector>

#include "core/base/windows.h"

namespace plait::cpu {

/// Results [begin, end) of a row read elements at `from`, `from + step`, ... of a plane; the others read padding.
struct WindowRow {
  int64_t begin, end, from, step;
};

/// Row `row` (flat over all axes but the last) of the results, under tap `tap` (flat over all axes), restricted to its elements
/// [first, last).
inline WindowRow window_row(const std::vector<WindowAxis>& axes, int64_t row, int64_t tap, int64_t first,
                            int64_t last) {
  const WindowAxis& inner = axes.back();
  const int64_t shift = tap % inner.kernel * inner.dilation - inner.before;
  // The first and the last element whose place, element * stride + shift, is in [0, in).
  int64_t begin = shift >= 0 ? 0 : (-shift + inner.stride - 1) / inner.stride;
  int64_t end = inner.in - 1 - shift < 0 ? 0 : (inner.in - 1 - shift) / inner.stride + 1;
  begin = std::clamp(begin, first, last);
  end = std::clamp(end, begin, last);
  int64_t plane_row = 0, pitch = 1;
  tap /= inner.kernel;
  for (size_t i = axes.size() - 1; i-- > 0;) {
    const WindowAxis& axis = axes[i];
    const int64_t at = row % axis.out * axis.stride + tap % axis.kernel * axis.dilation - axis.before;
    if (at < 0 || at >= axis.in) return {first, first, 0, inner.stride};
    plane_row += at * pitch;
    pitch *= axis.in;
    row /= axis.out;
    tap /= axis.kernel;
  }
  return {begin, end, plane_row * inner.in + begin * inner.stride + shift, inner.stride};
}

}  // namespace plait::cpu
