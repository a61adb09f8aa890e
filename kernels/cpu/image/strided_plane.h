#pragma once
// A plane of an image with its padding, laid out so that what one tap of all windows reads is contiguous.
#include <cstdint>
#include <vector>

#include "core/base/windows.h"

namespace plait::cpu {

/// Windows [first, first + rows) of axis 0, and all of the others. Element i of a padded axis is element i / stride of part i % stride;
/// all parts of all axes have the same pitches. So windows, too, have places, with gaps where rows end, and a tap reads them all
/// from its own offset on.
class StridedPlane {
 public:
  StridedPlane(const std::vector<WindowAxis>& axes, int64_t first, int64_t rows) : axes_(axes) {
    axes_[0].before -= first * axes_[0].stride;
    axes_[0].out = rows;
    pitch_.resize(axes_.size());
    for (size_t a = axes_.size(); a-- > 0;) {
      const WindowAxis& axis = axes_[a];
      pitch_[a] = part_;
      places_ += (axis.out - 1) * part_;
      part_ *= length(axis);
      parts_ *= axis.stride;
    }
    place_rows();
    place_lines();
  }

  int64_t size() const { return part_ * parts_; }
  /// Places of windows.
  int64_t places() const { return places_; }
  /// Of the first window of each row.
  const std::vector<int64_t>& row_places() const { return row_places_; }
  int64_t row_length() const { return axes_.back().out; }
  /// Of each tap, from the place of a window to what it reads.
  std::vector<int64_t> tap_offsets() const {
    std::vector<int64_t> out{0};
    int64_t scale = parts_;
    for (size_t a = 0; a < axes_.size(); ++a) {
      const WindowAxis& axis = axes_[a];
      scale /= axis.stride;
      std::vector<int64_t> all;
      for (const int64_t offset : out)
        for (int64_t tap = 0; tap < axis.kernel; ++tap) {
          const int64_t at = tap * axis.dilation;
          all.push_back(offset + at / axis.stride * pitch_[a] + at % axis.stride * scale * part_);
        }
      out = std::move(all);
    }
    return out;
  }

  /// Fills `to` [size]: copy(from, step, count, to) writes elements from, from + step, ... of the image's plane, pad(count, to) padding.
  template <class T, class Copy, class Pad>
  void fill(T* to, const Copy& copy, const Pad& pad) const {
    const WindowAxis& inner = axes_.back();
    const int64_t count = length(inner);
    for (int64_t p = 0; p < inner.stride; ++p, to += part_) {
      const int64_t shift = inner.before - p, begin = std::clamp<int64_t>(divided(shift, inner.stride), 0, count);
      const int64_t end = std::clamp<int64_t>(divided(inner.in + shift, inner.stride), begin, count);
      for (const Line& line : lines_) {
        T* const own = to + line.place;
        if (line.from < 0 || begin == end) {
          pad(count, own);
          continue;
        }
        pad(begin, own);
        copy(line.from + begin * inner.stride - shift, inner.stride, end - begin, own + begin);
        pad(count - end, own + end);
      }
    }
  }

 private:
  struct Line {
    int64_t from;  ///< in the image; -1: padding
    int64_t place;
  };

  /// Rounded up.
  static int64_t divided(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }
  /// Elements of a part.
  static int64_t length(const WindowAxis& axis) {
    return ((axis.out - 1) * axis.stride + (axis.kernel - 1) * axis.dilation) / axis.stride + 1;
  }

  void place_rows() {
    row_places_ = {0};
    for (size_t a = 0; a + 1 < axes_.size(); ++a) {
      std::vector<int64_t> all;
      for (const int64_t place : row_places_)
        for (int64_t i = 0; i < axes_[a].out; ++i) all.push_back(place + i * pitch_[a]);
      row_places_ = std::move(all);
    }
  }

  /// Of all elements of the axes but the last.
  void place_lines() {
    lines_ = {{0, 0}};
    int64_t scale = parts_;
    for (size_t a = 0; a + 1 < axes_.size(); ++a) {
      const WindowAxis& axis = axes_[a];
      scale /= axis.stride;
      std::vector<Line> all;
      for (const Line& line : lines_)
        for (int64_t i = 0; i < length(axis) * axis.stride; ++i) {
          const int64_t at = i - axis.before;
          const bool inside = line.from >= 0 && at >= 0 && at < axis.in;
          all.push_back({inside ? line.from * axis.in + at : -1,
                         line.place + i / axis.stride * pitch_[a] + i % axis.stride * scale * part_});
        }
      lines_ = std::move(all);
    }
    for (Line& line : lines_)
      if (line.from >= 0) line.from *= axes_.back().in;
  }

  std::vector<WindowAxis> axes_;
  std::vector<int64_t> pitch_, row_places_;
  std::vector<Line> lines_;
  int64_t part_ = 1, parts_ = 1, places_ = 1;
};

}  // namespace plait::cpu
