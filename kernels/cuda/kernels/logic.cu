// Functions of integers, comparisons and choices, by elements.
#include "kernels/cuda/kernels/logic.h"

#include "kernels/cuda/kernels/offsets.h"

namespace plait::cuda {
namespace {

/// Integers wrap.
template <class T>
PLAIT_DEVICE T apply(IntegerFunction function, T a, T b) {
  const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
  switch (function) {
    case IntegerFunction::add: return static_cast<T>(x + y);
    case IntegerFunction::sub: return static_cast<T>(x - y);
    case IntegerFunction::mul: return static_cast<T>(x * y);
    case IntegerFunction::minimum: return b < a ? b : a;
    case IntegerFunction::maximum: return a < b ? b : a;
    default: return static_cast<T>(uint64_t{0} - x);
  }
}

template <class T>
PLAIT_DEVICE bool compare(Comparison comparison, T a, T b) {
  switch (comparison) {
    case Comparison::equal: return a == b;
    case Comparison::less: return a < b;
    case Comparison::less_or_equal: return a <= b;
    case Comparison::both: return a && b;
    case Comparison::either: return a || b;
    default: return static_cast<bool>(a) != static_cast<bool>(b);
  }
}

template <class T>
PLAIT_DEVICE void integers(const PairOperands& o) {
  const int64_t i = element_of_thread();
  if (i >= o.nest.count) return;
  const Offsets at = offsets(o.nest, i);
  const T a = static_cast<const T*>(o.a)[at.of[0]], b = o.b ? static_cast<const T*>(o.b)[at.of[1]] : a;
  static_cast<T*>(o.y)[i] = apply(static_cast<IntegerFunction>(o.function), a, b);
}

/// Without b it is 1, so that `differ` is "not".
template <class T>
PLAIT_DEVICE void comparisons(const PairOperands& o) {
  const int64_t i = element_of_thread();
  if (i >= o.nest.count) return;
  const Offsets at = offsets(o.nest, i);
  const T a = static_cast<const T*>(o.a)[at.of[0]], b = o.b ? static_cast<const T*>(o.b)[at.of[1]] : 1;
  static_cast<uint8_t*>(o.y)[i] = compare(static_cast<Comparison>(o.function), a, b);
}

/// Exponents of type T.
template <class T>
PLAIT_DEVICE void powers(const PairOperands& o) {
  const int64_t i = element_of_thread();
  if (i >= o.nest.count) return;
  const Offsets at = offsets(o.nest, i);
  const float a = static_cast<const float*>(o.a)[at.of[0]], b = static_cast<float>(static_cast<const T*>(o.b)[at.of[1]]);
  static_cast<float*>(o.y)[i] = b == 2 ? a * a : powf(a, b);
}

template <class Word>
PLAIT_DEVICE void select(const SelectOperands& o) {
  const int64_t i = element_of_thread();
  if (i >= o.nest.count) return;
  const Offsets at = offsets(o.nest, i);
  if ((o.condition[at.of[0]] != 0) == (o.wanted != 0)) static_cast<Word*>(o.y)[i] = static_cast<const Word*>(o.x)[at.of[1]];
}

}  // namespace

PLAIT_KERNEL(integers_i32, map_threads, 4, (PairOperands operands)) { integers<int32_t>(operands); }
PLAIT_KERNEL(integers_i64, map_threads, 4, (PairOperands operands)) { integers<int64_t>(operands); }

PLAIT_KERNEL(power_f32, map_threads, 4, (PairOperands operands)) { powers<float>(operands); }
PLAIT_KERNEL(power_i32, map_threads, 4, (PairOperands operands)) { powers<int32_t>(operands); }
PLAIT_KERNEL(power_i64, map_threads, 4, (PairOperands operands)) { powers<int64_t>(operands); }

PLAIT_KERNEL(compare_f32, map_threads, 4, (PairOperands operands)) { comparisons<float>(operands); }
PLAIT_KERNEL(compare_i32, map_threads, 4, (PairOperands operands)) { comparisons<int32_t>(operands); }
PLAIT_KERNEL(compare_i64, map_threads, 4, (PairOperands operands)) { comparisons<int64_t>(operands); }
PLAIT_KERNEL(compare_bool, map_threads, 4, (PairOperands operands)) { comparisons<uint8_t>(operands); }

PLAIT_KERNEL(select_1, map_threads, 4, (SelectOperands operands)) { select<uint8_t>(operands); }
PLAIT_KERNEL(select_2, map_threads, 4, (SelectOperands operands)) { select<uint16_t>(operands); }
PLAIT_KERNEL(select_4, map_threads, 4, (SelectOperands operands)) { select<uint32_t>(operands); }
PLAIT_KERNEL(select_8, map_threads, 4, (SelectOperands operands)) { select<uint64_t>(operands); }

PLAIT_KERNEL(clip_f32, map_threads, 4, (ClipOperands o)) {
  const int64_t i = element_of_thread();
  if (i >= o.count) return;
  float y = o.x[i];
  if (o.low && y < *o.low) y = *o.low;
  if (o.high && y > *o.high) y = *o.high;
  o.y[i] = y;
}

}  // namespace plait::cuda
