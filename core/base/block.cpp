#include "core/base/block.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace plait {
namespace {

/// Calls copy(address in whole, address in part, bytes) for each run contiguous in both.
template <class Copy>
void each_run(const TensorView& whole, const Shape& begin, const TensorView& part, Copy copy) {
  const int rank = whole.shape.rank();
  PLAIT_ASSERT(dtype_bits(whole.dtype) % 8 == 0 && whole.dtype == part.dtype && part.shape.rank() == rank);
  int last = -1;  // the last dim that is cut
  for (int dim = 0; dim < rank; ++dim) {
    PLAIT_ASSERT(begin[dim] >= 0 && begin[dim] + part.shape[dim] <= whole.shape[dim]);
    if (part.shape[dim] != whole.shape[dim]) last = dim;
  }
  const int64_t width = dtype_bits(whole.dtype) / 8;
  const int64_t run = part.shape.elements(std::max(last, 0), rank) * width;
  if (run == 0) return;
  for (int64_t i = 0, runs = part.shape.elements(0, std::max(last, 0)); i < runs; ++i) {
    int64_t rest = i, at = 0, stride = whole.shape.elements(std::max(last, 0), rank);
    if (last >= 0) at = begin[last] * whole.shape.elements(last + 1, rank);
    for (int dim = last - 1; dim >= 0; --dim) {
      at += (begin[dim] + rest % part.shape[dim]) * stride;
      rest /= part.shape[dim];
      stride *= whole.shape[dim];
    }
    copy(whole.data + at * width, part.data + i * run, static_cast<size_t>(run));
  }
}

Shape begin_of(const TensorView& whole, int dim, int64_t begin) {
  Shape out;
  for (int d = 0; d < whole.shape.rank(); ++d) out.push_back(d == dim ? begin : 0);
  return out;
}

}  // namespace

void take_block(const TensorView& whole, const Shape& begin, const TensorView& part) {
  each_run(whole, begin, part,
           [](const std::byte* from, std::byte* to, size_t bytes) { std::memcpy(to, from, bytes); });
}

void put_block(const TensorView& whole, const Shape& begin, const TensorView& part) {
  each_run(whole, begin, part,
           [](std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); });
}

void take_block(const TensorView& whole, int dim, int64_t begin, const TensorView& part) {
  take_block(whole, begin_of(whole, dim, begin), part);
}

void put_block(const TensorView& whole, int dim, int64_t begin, const TensorView& part) {
  put_block(whole, begin_of(whole, dim, begin), part);
}

}  // namespace plait
