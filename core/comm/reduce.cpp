#include "core/comm/reduce.h"

#include <algorithm>
#include <type_traits>

#include "core/base/error.h"

namespace plait {
namespace {

// The accumulator type. Integer sums wrap, so they are unsigned here; max and min are not.
template <class T>
auto widened(T x) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) return to_float(x);
  else return x;
}
template <class T, class Wide>
T narrowed(Wide x) {
  if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(x);
  else if constexpr (std::is_same_v<T, Float16>) return to_float16(x);
  else return x;
}

template <class T>
T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    // Narrow unsigned types are promoted to int, whose sums fit.
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return a + b;
  }
}
// Propagates NaN from either side.
template <class T>
T larger(T a, T b) {
  return b > a || b != b ? b : a;
}
template <class T>
T smaller(T a, T b) {
  return b < a || b != b ? b : a;
}

template <class T>
auto load(const std::byte* from, int64_t i) {
  T x;
  std::memcpy(&x, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return widened(x);
}

// 1024 elements at a time in a buffer that fits the L1 cache and overlaps nothing.
template <class T, class Combine>
void reduce_blocks(std::span<const std::byte* const> sources, int64_t count, std::byte* out, Combine combine) {
  constexpr int64_t block = 1024;
  using Wide = decltype(widened(T{}));
  alignas(64) Wide sums[block];
  alignas(64) T rounded[block];
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t n = std::min(block, count - begin), offset = begin * static_cast<int64_t>(sizeof(T));
    if (sources.size() == 1) {
      std::memmove(out + offset, sources[0] + offset, n * sizeof(T));
      continue;
    }
    const std::byte *first = sources[0] + offset, *second = sources[1] + offset;
    for (int64_t i = 0; i < n; ++i) sums[i] = combine(load<T>(first, i), load<T>(second, i));
    for (size_t k = 2; k < sources.size(); ++k) {
      const std::byte* next = sources[k] + offset;
      for (int64_t i = 0; i < n; ++i) sums[i] = combine(sums[i], load<T>(next, i));
    }
    if constexpr (std::is_same_v<T, Wide>) {
      std::memcpy(out + offset, sums, n * sizeof(T));
    } else {
      for (int64_t i = 0; i < n; ++i) rounded[i] = narrowed<T>(sums[i]);
      std::memcpy(out + offset, rounded, n * sizeof(T));
    }
  }
}

template <class T>
void reduce_of(Reduction reduction, std::span<const std::byte* const> sources, int64_t count, std::byte* out) {
  switch (reduction) {
    case Reduction::sum: return reduce_blocks<T>(sources, count, out, [](auto a, auto b) { return plus(a, b); });
    case Reduction::max: return reduce_blocks<T>(sources, count, out, [](auto a, auto b) { return larger(a, b); });
    case Reduction::min: return reduce_blocks<T>(sources, count, out, [](auto a, auto b) { return smaller(a, b); });
  }
}

}  // namespace

std::string_view reduction_name(Reduction reduction) {
  switch (reduction) {
    case Reduction::sum: return "sum";
    case Reduction::max: return "max";
    case Reduction::min: return "min";
  }
  return "unknown";
}

bool is_reducible(DType dtype) { return is_float(dtype) || is_integer(dtype); }

void reduce_in_order(DType dtype, Reduction reduction, std::span<const std::byte* const> sources, int64_t count,
                     std::byte* out) {
  switch (dtype) {
    case DType::f32: return reduce_of<float>(reduction, sources, count, out);
    case DType::f64: return reduce_of<double>(reduction, sources, count, out);
    case DType::f16: return reduce_of<Float16>(reduction, sources, count, out);
    case DType::bf16: return reduce_of<BFloat16>(reduction, sources, count, out);
    case DType::u8: return reduce_of<uint8_t>(reduction, sources, count, out);
    case DType::i8: return reduce_of<int8_t>(reduction, sources, count, out);
    case DType::u16: return reduce_of<uint16_t>(reduction, sources, count, out);
    case DType::i16: return reduce_of<int16_t>(reduction, sources, count, out);
    case DType::u32: return reduce_of<uint32_t>(reduction, sources, count, out);
    case DType::i32: return reduce_of<int32_t>(reduction, sources, count, out);
    case DType::u64: return reduce_of<uint64_t>(reduction, sources, count, out);
    case DType::i64: return reduce_of<int64_t>(reduction, sources, count, out);
    default: PLAIT_ASSERT(is_reducible(dtype));
  }
}

}  // namespace plait
