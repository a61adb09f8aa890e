#pragma once
// Elements of any dtype as one of four number types, so that an op is written once: double for every float, int64_t
// for the integers (wrapping; bool as 0 and 1) but uint64_t for u64, and float where a contraction is defined in f32.
#include <type_traits>
#include <vector>

#include "core/exec/kernel.h"

namespace plait::reference {

/// Elements [begin, begin + count) of `tensor`, converted. Packed and 8-bit dtypes included.
template <class N>
void load(const TensorView& tensor, int64_t begin, int64_t count, N* out);

/// The inverse. Floats are rounded to nearest even (8-bit ones saturate), integers keep their low bits; a double
/// becomes an integer by truncation, saturating, NaN giving 0.
template <class N>
void store(const TensorView& tensor, int64_t begin, int64_t count, const N* values);

template <class N>
N load_one(const TensorView& tensor, int64_t i) {
  N out;
  load(tensor, i, 1, &out);
  return out;
}

template <class N>
void store_one(const TensorView& tensor, int64_t i, N value) {
  store(tensor, i, 1, &value);
}

template <class N>
std::vector<N> load_all(const TensorView& tensor) {
  std::vector<N> out(static_cast<size_t>(tensor.elements()));
  load(tensor, 0, tensor.elements(), out.data());
  return out;
}

template <class N>
void store_all(const TensorView& tensor, const std::vector<N>& values) {
  store(tensor, 0, tensor.elements(), values.data());
}

/// The tensor as N: its own memory if it has that type, otherwise a converted copy.
template <class N>
class Loaded {
 public:
  explicit Loaded(const TensorView& tensor) {
    constexpr DType own = std::is_same_v<N, float> ? DType::f32 : std::is_same_v<N, double> ? DType::f64
                          : std::is_same_v<N, int64_t> ? DType::i64 : DType::u64;
    if (tensor.dtype == own && reinterpret_cast<uintptr_t>(tensor.data) % alignof(N) == 0) {
      data_ = tensor.as<N>();
    } else {
      copy_ = load_all<N>(tensor);
      data_ = copy_.data();
    }
  }
  const N* data() const { return data_; }
  const N& operator[](int64_t i) const { return data_[i]; }

 private:
  const N* data_;
  std::vector<N> copy_;
};

/// Calls f(N{}) with the number type in which an op on `dtype` is computed. Strings are the numbers of their texts, so that they can be
/// moved and compared for equality.
template <class F>
auto with_number(DType dtype, F f) {
  if (dtype == DType::u64 || dtype == DType::string) return f(uint64_t{});
  if (is_integer(dtype) || dtype == DType::boolean || dtype == DType::i4 || dtype == DType::u4 ||
      dtype == DType::i2 || dtype == DType::u2)
    return f(int64_t{});
  return f(double{});
}

/// As with_number for contractions: float for every float but f64, and integers as words, whose products wrap.
template <class F>
auto with_accumulator(DType dtype, F f) {
  if (dtype == DType::f64) return f(double{});
  if (is_float(dtype)) return f(float{});
  return f(uint64_t{});
}

/// Calls f(N{}) with the type in which products of floats with weights are summed: double for f64, otherwise float.
template <class F>
auto with_precision(DType dtype, F f) {
  if (dtype == DType::f64) return f(double{});
  return f(float{});
}

/// Calls f(Word{}) with an unsigned type of `bits` bits (8, 16, 32 or 64).
template <class F>
auto with_word(int bits, F f) {
  switch (bits) {
    case 8: return f(uint8_t{});
    case 16: return f(uint16_t{});
    case 32: return f(uint32_t{});
    default: return f(uint64_t{});
  }
}

/// The bits of element `i`, whatever the dtype (1 to 64 bits).
uint64_t get_bits(const TensorView& tensor, int64_t i);
/// Overwrites only element `i`; two threads must not write to one byte.
void put_bits(const TensorView& tensor, int64_t i, uint64_t bits);
/// Copies `count` consecutive elements between tensors of one dtype.
void copy_elements(const TensorView& from, int64_t from_begin, const TensorView& to, int64_t to_begin, int64_t count);

}  // namespace plait::reference
