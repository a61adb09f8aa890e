#pragma once
// Concrete tensor shapes. Symbolic sizes are in core/base/dim.h.
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace plait {

/// Trivially copyable, no allocation: shapes are evaluated at each run of a program. Row-major, last dimension
/// fastest; a size may be zero.
class Shape {
 public:
  static constexpr int max_rank = 8;  ///< importers reject more, naming the tensor

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const int64_t> sizes);  ///< throws Error(unsupported) above max_rank

  int rank() const { return rank_; }
  /// The size of an axis; 1 for an axis out of range: ranks come from files, reads must stay within the array, and
  /// the product of the sizes must remain the number of elements.
  int64_t operator[](int axis) const { return has(axis) ? sizes_[static_cast<size_t>(axis)] : 1; }
  /// `axis` must be in [0, max_rank).
  int64_t& operator[](int axis) { return sizes_[static_cast<size_t>(axis)]; }
  /// The size of an axis counted from the end: back(1) is the last; 1 if out of range.
  int64_t back(int from_end) const { return (*this)[rank_ - from_end]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }
  void push_back(int64_t size);

  /// Product of all sizes, 1 for a scalar. For trusted sizes; otherwise use `checked_elements`.
  int64_t elements() const;
  /// Product of sizes [begin, end).
  int64_t elements(int begin, int end) const;

  bool operator==(const Shape& other) const;
  std::string text() const;  ///< "[2, 3]"

 private:
  bool has(int axis) const { return static_cast<unsigned>(axis) < static_cast<unsigned>(rank_); }

  std::array<int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

/// Product of sizes from an untrusted source. Throws Error(bad_model) if a size is negative, or the product or the
/// bytes at `bits` per element exceed 63 bits.
int64_t checked_elements(std::span<const int64_t> sizes, int bits);

/// Bytes of `elements` packed elements of `bits` bits, rounded up.
inline int64_t packed_bytes(int64_t elements, int bits) { return (elements * bits + 7) / 8; }

}  // namespace plait
