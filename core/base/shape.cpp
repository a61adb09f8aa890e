#include "core/base/shape.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

Shape::Shape(std::span<const int64_t> sizes) {
  for (int64_t size : sizes) push_back(size);
}

void Shape::push_back(int64_t size) {
  if (rank_ == max_rank) throw Error(Code::unsupported, cat("a tensor has more than ", max_rank, " dimensions"));
  sizes_[rank_++] = size;
}

int64_t Shape::elements() const { return elements(0, rank_); }

int64_t Shape::elements(int begin, int end) const {
  int64_t product = 1;
  for (int i = begin; i < end; ++i) product *= sizes_[i];
  return product;
}

bool Shape::operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

std::string Shape::text() const {
  std::string out = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i) out += ", ";
    append(out, sizes_[i]);
  }
  return out + "]";
}

int64_t checked_elements(std::span<const int64_t> sizes, int bits) {
  int64_t product = 1;
  bool zero = false;
  for (int64_t size : sizes) {
    if (size < 0) throw Error(Code::bad_model, cat("a dimension is negative: ", size));
    zero |= size == 0;
    // Zeros are excluded from the product so that [2^62, 2^62, 0] is rejected as well.
    if (__builtin_mul_overflow(product, size ? size : 1, &product))
      throw Error(Code::bad_model, "the product of a tensor's dimensions overflows");
  }
  int64_t total_bits;
  if (__builtin_mul_overflow(product, static_cast<int64_t>(bits ? bits : 8), &total_bits))
    throw Error(Code::bad_model, "the product of a tensor's dimensions overflows");
  return zero ? 0 : product;
}

}  // namespace plait
