#pragma once
// Element offsets: strides, broadcasting, and loops over several operands.
#include <array>
#include <vector>

#include "core/exec/kernel.h"

namespace plait::reference {

/// Row-major element strides.
inline Shape strides_of(const Shape& shape) {
  Shape out = shape;
  int64_t step = 1;
  for (int i = shape.rank(); i-- > 0;) {
    out[i] = step;
    step *= shape[i];
  }
  return out;
}

/// The strides of a `shape`, aligned right, read as `target` (NumPy's broadcasting): 0 for repeated dims.
inline Shape broadcast_strides(const Shape& shape, const Shape& target) {
  Shape out = target, own = strides_of(shape);
  int lead = target.rank() - shape.rank();
  for (int i = 0; i < target.rank(); ++i) out[i] = i < lead || shape[i - lead] == 1 ? 0 : own[i - lead];
  return out;
}

/// A row-major loop nest over `sizes` with one set of element strides for each of K operands. Dimensions that are
/// contiguous in all operands are merged, to make rows as long as possible.
template <size_t K>
class Nest {
 public:
  Nest(const Shape& sizes, const std::array<Shape, K>& strides) {
    for (int i = 0; i < sizes.rank(); ++i) {
      if (sizes[i] == 1) continue;
      bool seamless = sizes_.rank() > 0;
      for (size_t k = 0; k < K && seamless; ++k)
        seamless = strides_[k].back(1) == strides[k][i] * sizes[i];
      if (seamless) {
        sizes_[sizes_.rank() - 1] *= sizes[i];
        for (size_t k = 0; k < K; ++k) strides_[k][sizes_.rank() - 1] = strides[k][i];
      } else {
        sizes_.push_back(sizes[i]);
        for (size_t k = 0; k < K; ++k) strides_[k].push_back(strides[k][i]);
      }
    }
    if (sizes_.rank() == 0) {
      sizes_.push_back(1);
      for (Shape& own : strides_) own.push_back(0);
    }
  }

  int64_t row() const { return sizes_.back(1); }
  /// Whether it has no other.
  bool is_row() const { return sizes_.rank() == 1; }
  /// Stride of operand k inside a row.
  int64_t step(size_t k) const { return strides_[k].back(1); }

  /// Calls f(offsets) with each operand's element offset at the start of each row, in order.
  template <class F>
  void rows(F f) const {
    if (sizes_.elements() == 0) return;
    std::array<int64_t, K> offsets{};
    Shape index = sizes_;
    for (int i = 0; i < index.rank(); ++i) index[i] = 0;
    for (;;) {
      f(offsets);
      int axis = sizes_.rank() - 2;
      for (; axis >= 0; --axis) {
        for (size_t k = 0; k < K; ++k) offsets[k] += strides_[k][axis];
        if (++index[axis] < sizes_[axis]) break;
        for (size_t k = 0; k < K; ++k) offsets[k] -= strides_[k][axis] * sizes_[axis];
        index[axis] = 0;
      }
      if (axis < 0) return;
    }
  }

 private:
  Shape sizes_;
  std::array<Shape, K> strides_;
};

/// The offsets of all positions of a nest of `sizes` with `strides`, in row-major order.
inline std::vector<int64_t> offsets_of(const Shape& sizes, const Shape& strides) {
  std::vector<int64_t> out;
  out.reserve(static_cast<size_t>(sizes.elements()));
  Nest<1> nest(sizes, {strides});
  nest.rows([&](const std::array<int64_t, 1>& offset) {
    for (int64_t i = 0; i < nest.row(); ++i) out.push_back(offset[0] + i * nest.step(0));
  });
  return out;
}

}  // namespace plait::reference
