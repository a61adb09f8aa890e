#include "kernels/reference/base/numbers.h"

#include <limits>

#include "kernels/reference/base/minifloat.h"

namespace plait::reference {
namespace {

template <class T>
T peek(const std::byte* from) {  // elements may be unaligned
  T out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

template <class T>
void poke(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class N, class T>
N widen(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) return static_cast<N>(to_float(value));
  else return static_cast<N>(value);
}

/// A double beyond the range of T is undefined in ONNX and C++; it becomes the nearest number.
template <class T>
T truncate(double value) {
  if (std::isnan(value)) return 0;
  if (value >= std::ldexp(1.0, std::numeric_limits<T>::digits)) return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

template <class T, class N>
T narrow(N value) {
  if constexpr (std::is_same_v<T, Float16>) return to_float16(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, bool>) return value != 0;
  else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<N>) return truncate<T>(value);
  else return static_cast<T>(value);
}

/// Elements of fewer than 8 bits, and the small floats.
double load_small(const TensorView& tensor, int64_t i) {
  uint64_t bits = get_bits(tensor, i);
  if (is_minifloat(tensor.dtype)) return decode_minifloat(tensor.dtype, static_cast<uint8_t>(bits));
  if (tensor.dtype == DType::i4) return static_cast<double>(static_cast<int64_t>(bits ^ 8) - 8);
  if (tensor.dtype == DType::i2) return static_cast<double>(static_cast<int64_t>(bits ^ 2) - 2);
  return static_cast<double>(bits);
}

template <class N>
void store_small(const TensorView& tensor, int64_t i, N value) {
  if (is_minifloat(tensor.dtype))
    put_bits(tensor, i, encode_minifloat(tensor.dtype, static_cast<double>(value), true));
  else
    put_bits(tensor, i, static_cast<uint64_t>(narrow<int64_t>(value)));
}

/// Calls f(T{}) with the C++ type of a dtype of whole bytes; false for the others.
template <class F>
bool with_storage(DType dtype, F f) {
  switch (dtype) {
    case DType::f32: f(float{}); return true;
    case DType::f64: f(double{}); return true;
    case DType::f16: f(Float16{}); return true;
    case DType::bf16: f(BFloat16{}); return true;
    case DType::i8: f(int8_t{}); return true;
    case DType::i16: f(int16_t{}); return true;
    case DType::i32: f(int32_t{}); return true;
    case DType::i64: f(int64_t{}); return true;
    case DType::u8: f(uint8_t{}); return true;
    case DType::u16: f(uint16_t{}); return true;
    case DType::u32: f(uint32_t{}); return true;
    case DType::u64:
    case DType::string: f(uint64_t{}); return true;
    case DType::boolean: f(bool{}); return true;
    default: return false;
  }
}

}  // namespace

template <class N>
void load(const TensorView& tensor, int64_t begin, int64_t count, N* out) {
  bool whole = with_storage(tensor.dtype, [&]<class T>(T) {
    // A bool is read as its byte: bits other than 0 and 1 would be undefined.
    using Read = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    const std::byte* from = tensor.data + begin * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < count; ++i) {
      out[i] = widen<N>(peek<Read>(from + i * static_cast<int64_t>(sizeof(T))));
      if constexpr (std::is_same_v<T, bool>) out[i] = static_cast<N>(out[i] != 0);
    }
  });
  if (whole) return;
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<N>(load_small(tensor, begin + i));
}

template <class N>
void store(const TensorView& tensor, int64_t begin, int64_t count, const N* values) {
  bool whole = with_storage(tensor.dtype, [&]<class T>(T) {
    std::byte* to = tensor.data + begin * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < count; ++i) poke(to + i * static_cast<int64_t>(sizeof(T)), narrow<T>(values[i]));
  });
  if (whole) return;
  for (int64_t i = 0; i < count; ++i) store_small(tensor, begin + i, values[i]);
}

template void load(const TensorView&, int64_t, int64_t, float*);
template void load(const TensorView&, int64_t, int64_t, double*);
template void load(const TensorView&, int64_t, int64_t, int64_t*);
template void load(const TensorView&, int64_t, int64_t, uint64_t*);
template void store(const TensorView&, int64_t, int64_t, const float*);
template void store(const TensorView&, int64_t, int64_t, const double*);
template void store(const TensorView&, int64_t, int64_t, const int64_t*);
template void store(const TensorView&, int64_t, int64_t, const uint64_t*);

uint64_t get_bits(const TensorView& tensor, int64_t i) {
  int bits = dtype_bits(tensor.dtype);
  if (bits >= 8)
    return with_word(bits, [&]<class Word>(Word) -> uint64_t {
      return peek<Word>(tensor.data + i * static_cast<int64_t>(sizeof(Word)));
    });
  int64_t position = i * bits;
  return (static_cast<uint64_t>(tensor.data[position / 8]) >> (position % 8)) & ((1u << bits) - 1);
}

void put_bits(const TensorView& tensor, int64_t i, uint64_t value) {
  int bits = dtype_bits(tensor.dtype);
  if (bits >= 8)
    return with_word(bits, [&]<class Word>(Word) {
      poke(tensor.data + i * static_cast<int64_t>(sizeof(Word)), static_cast<Word>(value));
    });
  int64_t position = i * bits;
  int shift = static_cast<int>(position % 8);
  unsigned mask = ((1u << bits) - 1) << shift, byte = std::to_integer<unsigned>(tensor.data[position / 8]);
  byte = (byte & ~mask) | ((static_cast<unsigned>(value) << shift) & mask);
  // The unused bits after the last element of an odd count are zero.
  if (i + 1 == tensor.elements()) byte &= (1u << (shift + bits)) - 1;
  tensor.data[position / 8] = static_cast<std::byte>(byte);
}

void copy_elements(const TensorView& from, int64_t from_begin, const TensorView& to, int64_t to_begin,
                   int64_t count) {
  int bits = dtype_bits(from.dtype);
  if (bits % 8 == 0) {
    if (count)
      std::memcpy(to.data + to_begin * (bits / 8), from.data + from_begin * (bits / 8),
                  static_cast<size_t>(count * (bits / 8)));
    return;
  }
  for (int64_t i = 0; i < count; ++i) put_bits(to, to_begin + i, get_bits(from, from_begin + i));
}

}  // namespace plait::reference
