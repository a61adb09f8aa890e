// Kernels that go by elements: functions of one or two operands, casts, copies to another order, and small products.
#include "kernels/cuda/kernels/elementwise.h"

#include "kernels/cuda/kernels/activations.h"
#include "kernels/cuda/kernels/elements.h"
#include "kernels/cuda/kernels/indices.h"
#include "kernels/cuda/kernels/offsets.h"
#include "kernels/cuda/kernels/peer_words.h"

namespace plait::cuda {
namespace {

/// Of an angle: in [-1, 1], by a reduction that needs no local memory, as CUDA's of large angles does.
PLAIT_DEVICE float half_turns(float angle) {
  const double turns = static_cast<double>(angle) * 0.15915494309189535;
  return static_cast<float>(2 * (turns - rint(turns)));
}

PLAIT_DEVICE float apply(MapFunction function, float a, float b) {
  switch (function) {
    case MapFunction::add: return a + b;
    case MapFunction::sub: return a - b;
    case MapFunction::mul: return a * b;
    case MapFunction::div: return a / b;
    // Of a number and NaN the result is NaN.
    case MapFunction::minimum: return a != a || a < b ? a : b;
    case MapFunction::maximum: return a != a || a > b ? a : b;
    case MapFunction::neg: return -a;
    case MapFunction::abs: return fabsf(a);
    case MapFunction::exp: return expf(a);
    case MapFunction::log: return logf(a);
    case MapFunction::sqrt: return sqrtf(a);
    case MapFunction::reciprocal: return 1 / a;
    case MapFunction::sin: return sinpif(half_turns(a));
    case MapFunction::cos: return cospif(half_turns(a));
    case MapFunction::tanh: return tanhf(a);
    case MapFunction::sigmoid: return sigmoid(a);
    case MapFunction::erf: return erff(a);
    case MapFunction::gelu: return gelu(a);
    case MapFunction::gelu_tanh: return gelu_tanh(a);
    case MapFunction::silu: return silu(a);
    case MapFunction::relu: return a < 0 ? 0 : a;
    default: return a;
  }
}

template <class Word>
PLAIT_DEVICE void copy(const CopyOperands& o) {
  const int64_t i = element_of_thread();
  if (i >= o.nest.count) return;
  const Offsets at = offsets(o.nest, i);
  static_cast<Word*>(o.y)[at.of[1]] = static_cast<const Word*>(o.x)[at.of[0]];
}

/// Element i of y, whose nest is not merged, is x at first + its place in y times the step, by dimension; those are operands.
template <class Word>
PLAIT_DEVICE void slice(const SliceOperands& o) {
  const int64_t i = element_of_thread();
  if (i >= o.count) return;
  int64_t rest = i, at = 0, step_of_x = 1;
  for (int dim = static_cast<int>(o.rank) - 1; dim >= 0; --dim) {
    const int64_t size = o.sizes_of_x[dim], place = rest % o.sizes[dim];
    rest /= o.sizes[dim];
    int64_t first = 0, step = 1;
    for (int j = 0; j < o.entries; ++j) {
      int64_t axis = o.axes.data ? load_index(o.axes, j) : j;
      if (axis < 0) axis += o.rank;
      if (axis != dim) continue;
      first = load_index(o.starts, j);
      if (first < 0) first = max(first, -size - 1) + size;
      if (o.steps.data) step = load_index(o.steps, j);
      first = max(static_cast<int64_t>(0), min(first, step < 0 ? size - 1 : size));
    }
    const int64_t element = first + place * step;
    if (element < 0 || element >= size) {
      report_index(o.report, 1, element);
      return;
    }
    at += element * step_of_x, step_of_x *= size;
  }
  static_cast<Word*>(o.y)[i] = static_cast<const Word*>(o.x)[at];
}

}  // namespace

PLAIT_KERNEL(slice_1, map_threads, 4, (SliceOperands operands)) { slice<uint8_t>(operands); }
PLAIT_KERNEL(slice_2, map_threads, 4, (SliceOperands operands)) { slice<uint16_t>(operands); }
PLAIT_KERNEL(slice_4, map_threads, 4, (SliceOperands operands)) { slice<uint32_t>(operands); }
PLAIT_KERNEL(slice_8, map_threads, 4, (SliceOperands operands)) { slice<uint64_t>(operands); }

PLAIT_KERNEL(map_f32, map_threads, 4, (MapOperands o)) {
  const int64_t i = element_of_thread();
  if (i >= o.nest.count) return;
  const uint32_t number = number_if_given(o.give);
  const Offsets at = o.same ? Offsets{{i, i}} : offsets(o.nest, i);
  const float y = apply(o.function, o.a[at.of[0]], o.b ? o.b[at.of[1]] : 0);
  o.y[i] = y;
  give(o.give, number, i, y);
}

PLAIT_KERNEL(copy_1, map_threads, 4, (CopyOperands operands)) { copy<uint8_t>(operands); }
PLAIT_KERNEL(copy_2, map_threads, 4, (CopyOperands operands)) { copy<uint16_t>(operands); }
PLAIT_KERNEL(copy_4, map_threads, 4, (CopyOperands operands)) { copy<uint32_t>(operands); }
PLAIT_KERNEL(copy_8, map_threads, 4, (CopyOperands operands)) { copy<uint64_t>(operands); }

/// Integers keep their low bits; floats are rounded to nearest even, and cut toward zero for integers; to bool: x != 0.
PLAIT_KERNEL(cast_elements, map_threads, 4, (CastOperands o)) {
  const int64_t i = element_of_thread();
  if (i >= o.count) return;
  float value = 0;
  int64_t whole = 0;
  switch (o.from) {
    case CastType::f32: value = static_cast<const float*>(o.x)[i]; break;
    case CastType::bf16: value = value_of(static_cast<const Bf16*>(o.x)[i]); break;
    case CastType::f16: value = value_of(static_cast<const F16*>(o.x)[i]); break;
    case CastType::i32: whole = static_cast<const int32_t*>(o.x)[i]; break;
    case CastType::i64: whole = static_cast<const int64_t*>(o.x)[i]; break;
    default: whole = static_cast<const uint8_t*>(o.x)[i] != 0;
  }
  const bool from_float = o.from == CastType::f32 || o.from == CastType::bf16 || o.from == CastType::f16;
  const bool nonzero = from_float ? value != 0 : whole != 0;
  if (from_float) whole = static_cast<int64_t>(value);
  else value = static_cast<float>(whole);
  switch (o.to) {
    case CastType::f32: static_cast<float*>(o.y)[i] = value; break;
    case CastType::bf16: store(static_cast<Bf16*>(o.y) + i, value); break;
    case CastType::f16: store(static_cast<F16*>(o.y) + i, value); break;
    case CastType::i32: static_cast<int32_t*>(o.y)[i] = static_cast<int32_t>(whole); break;
    case CastType::i64: static_cast<int64_t*>(o.y)[i] = whole; break;
    default: static_cast<uint8_t*>(o.y)[i] = nonzero;
  }
}

PLAIT_KERNEL(matmul_f32, map_threads, 4, (MatMulOperands o)) {
  const int64_t i = element_of_thread();
  if (i >= o.count) return;
  const int64_t size = static_cast<int64_t>(o.m) * o.n, batch = i / size, of_batch = i - batch * size;
  const float* a = o.a + batch * o.a_step + of_batch / o.n * o.k;
  const float* b = o.b + batch * o.b_step + of_batch % o.n;
  float sum = 0;
  for (int k = 0; k < o.k; ++k) sum += a[k] * b[static_cast<int64_t>(k) * o.n];
  o.y[i] = sum;
}

}  // namespace plait::cuda
