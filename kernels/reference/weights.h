#pragma once
// The weight of a Linear or an Embedding, whole or quantised in blocks (core/ops/plait_ops.cpp), row by row.
#include <type_traits>
#include <vector>

#include "kernels/reference/base/numbers.h"

namespace plait::reference {

struct Weights {
  const TensorView& tensor;  ///< [n, k], or [n, c, l] with scales [n, c] and optional zeros [n, c]
  TensorView scales, zeros;
  int64_t zero = 0;  ///< of blocks without `zeros`

  bool blocked() const { return tensor.shape.rank() == 3; }
  /// Whether rows have k elements and the operands fit.
  bool fits(int64_t k) const {
    if (!blocked()) return tensor.shape.rank() == 2 && tensor.shape[1] == k;
    const int64_t n = tensor.shape[0], b = tensor.shape[1];
    auto of_blocks = [&](const TensorView& view) {
      return view.shape.rank() == 2 && view.shape[0] == n && view.shape[1] == b;
    };
    return k <= b * tensor.shape[2] && of_blocks(scales) && (!zeros.present() || of_blocks(zeros));
  }
  /// The first k elements of row i as N (float or double), in `buffer` if they are not in memory in that form. Blocks
  /// are dequantised in f32 by definition.
  template <class N>
  const N* row(int64_t i, int64_t k, std::vector<N>& buffer) const {
    constexpr DType own = std::is_same_v<N, float> ? DType::f32 : DType::f64;
    if (tensor.dtype == own && reinterpret_cast<uintptr_t>(tensor.data) % alignof(N) == 0)
      return tensor.as<N>() + i * k;
    buffer.resize(static_cast<size_t>(k));
    if (!blocked()) {
      load(tensor, i * k, k, buffer.data());
      return buffer.data();
    }
    const int64_t b = tensor.shape[1], l = tensor.shape[2];
    std::vector<double> codes(static_cast<size_t>(k));
    load(tensor, i * b * l, k, codes.data());
    for (int64_t j = 0; j < k; ++j) {
      const int64_t block = i * b + j / l;
      const double shift = zeros.present() ? load_one<double>(zeros, block) : static_cast<double>(zero);
      const auto at = static_cast<size_t>(j);
      buffer[at] = static_cast<float>(codes[at] - shift) * load_one<float>(scales, block);
    }
    return buffer.data();
  }
};

}  // namespace plait::reference
