#include "core/base/constant.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"

namespace plait {
namespace {

using Kind = RecipeStep::Kind;

Shape apply(const RecipeStep& step, const Shape& shape) {
  Shape out;
  switch (step.kind) {
    case Kind::transpose:
      PLAIT_ASSERT(static_cast<int>(step.numbers.size()) == shape.rank());
      for (int64_t axis : step.numbers) out.push_back(shape[static_cast<int>(axis)]);
      return out;
    case Kind::slice:
      out = shape;
      out[static_cast<int>(step.numbers[0])] = step.numbers[2] - step.numbers[1];
      return out;
    case Kind::part:
      out = shape;
      out[static_cast<int>(step.numbers[0])] /= step.numbers[1];
      return out;
    case Kind::reshape: return Shape(step.numbers);
    case Kind::cast:
    case Kind::reinterpret: return shape;  // see `reinterpreted`
  }
  return shape;
}

/// The shape after a bit cast of `shape` elements from dtype `from` to dtype `to`.
Shape reinterpreted(const Shape& shape, DType from, DType to) {
  Shape out = shape;
  const int last = out.rank() - 1;
  out[last] = out[last] * dtype_bits(from) / dtype_bits(to);
  return out;
}

bool is_permutation(const std::vector<int64_t>& numbers, int rank) {
  std::vector<int64_t> sorted = numbers;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] != static_cast<int64_t>(i)) return false;
  return static_cast<int>(numbers.size()) == rank;
}

bool fits(const RecipeStep& step, const Shape& shape, DType dtype) {
  const std::vector<int64_t>& n = step.numbers;
  switch (step.kind) {
    case Kind::transpose: return is_permutation(n, shape.rank());
    case Kind::slice:
      return n.size() == 3 && n[0] >= 0 && n[0] < shape.rank() && n[1] >= 0 && n[1] <= n[2] &&
             n[2] <= shape[static_cast<int>(n[0])];
    case Kind::part: return false;  // only in graphs of ranks
    case Kind::reshape:
      if (n.size() > static_cast<size_t>(Shape::max_rank)) return false;
      for (int64_t size : n)
        if (size < 0) return false;
      return checked_elements({n.begin(), n.end()}, dtype_bits(dtype)) == shape.elements();
    case Kind::cast: return step.dtype != DType::none;
    case Kind::reinterpret:
      return step.dtype != DType::none && shape.rank() > 0 &&
             shape.back(1) * dtype_bits(dtype) % dtype_bits(step.dtype) == 0;
  }
  return false;
}

void for_each(ThreadPool* pool, int64_t count, FunctionRef<void(int64_t, int)> task) {
  if (pool) return pool->for_each(count, task);
  for (int64_t item = 0; item < count; ++item) task(item, 0);
}

/// A square of `side` x `side` words, transposed; `in` and `out` have rows of `in_pitch` and `out_pitch` words.
template <class Word>
struct Square {
  static constexpr int64_t side = 1;
  static void transpose(const Word* in, int64_t, Word* out, int64_t) { *out = *in; }
};

#if defined(__SSE2__)
inline __m128i load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
inline void store(void* to, __m128i value) { _mm_storeu_si128(static_cast<__m128i*>(to), value); }

// A register of words at a time: 3 (2) rounds of interleaving rows i and i + side / 2 transpose the square.
template <>
struct Square<uint16_t> {
  static constexpr int64_t side = 8;
  static void transpose(const uint16_t* in, int64_t in_pitch, uint16_t* out, int64_t out_pitch) {
    __m128i rows[8], next[8];
    for (int i = 0; i < 8; ++i) rows[i] = load(in + i * in_pitch);
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 4; ++i) {
        next[2 * i] = _mm_unpacklo_epi16(rows[i], rows[i + 4]);
        next[2 * i + 1] = _mm_unpackhi_epi16(rows[i], rows[i + 4]);
      }
      std::copy(next, next + 8, rows);
    }
    for (int i = 0; i < 8; ++i) store(out + i * out_pitch, rows[i]);
  }
};

template <>
struct Square<uint32_t> {
  static constexpr int64_t side = 4;
  static void transpose(const uint32_t* in, int64_t in_pitch, uint32_t* out, int64_t out_pitch) {
    __m128i rows[4], next[4];
    for (int i = 0; i < 4; ++i) rows[i] = load(in + i * in_pitch);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 2; ++i) {
        next[2 * i] = _mm_unpacklo_epi32(rows[i], rows[i + 2]);
        next[2 * i + 1] = _mm_unpackhi_epi32(rows[i], rows[i + 2]);
      }
      std::copy(next, next + 4, rows);
    }
    for (int i = 0; i < 4; ++i) store(out + i * out_pitch, rows[i]);
  }
};
#endif

/// out[c][r] = in[r][c], for `planes` matrices. Bands of 32 columns: cache lines are written whole while the rows
/// read are still in cache.
template <class Word>
void transpose_matrices(const Word* in, Word* out, int64_t planes, int64_t rows, int64_t columns, ThreadPool* pool) {
  constexpr int64_t band = 32, side = Square<Word>::side;
  int64_t bands = (columns + band - 1) / band;
  for_each(pool, planes * bands, [&](int64_t item, int) {
    int64_t plane = item / bands, c0 = item % bands * band, c1 = std::min(c0 + band, columns);
    const Word* from = in + plane * rows * columns;
    Word* to = out + plane * rows * columns;
    int64_t square_rows = rows / side * side, square_columns = c0 + (c1 - c0) / side * side;
    for (int64_t r = 0; r < square_rows; r += side)
      for (int64_t c = c0; c < square_columns; c += side)
        Square<Word>::transpose(from + r * columns + c, columns, to + c * rows + r, rows);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = r < square_rows ? square_columns : c0; c < c1; ++c) to[c * rows + r] = from[r * columns + c];
  });
}

/// Any permutation, in output order.
template <class Word>
void permute(const Word* in, Word* out, const Shape& shape, const std::vector<int64_t>& order) {
  Shape strides = shape, index = shape, stride_of, size_of;
  for (int i = shape.rank(), step = 1; i-- > 0;)
    strides[i] = i + 1 < shape.rank() ? strides[i + 1] * shape[i + 1] : step;
  for (int64_t axis : order) {
    stride_of.push_back(strides[static_cast<int>(axis)]);
    size_of.push_back(shape[static_cast<int>(axis)]);
  }
  for (int i = 0; i < index.rank(); ++i) index[i] = 0;
  int64_t from = 0;
  for (int64_t i = 0, n = shape.elements(); i < n; ++i) {
    out[i] = in[from];
    for (int axis = shape.rank(); axis-- > 0;) {
      from += stride_of[axis];
      if (++index[axis] < size_of[axis]) break;
      from -= stride_of[axis] * size_of[axis];
      index[axis] = 0;
    }
  }
}

template <class Word>
void transpose_words(const Tensor& in, const Tensor& out, const std::vector<int64_t>& order, ThreadPool* pool) {
  int rank = in.shape().rank();
  bool last_two = rank >= 2 && order[static_cast<size_t>(rank) - 1] == rank - 2 &&
                  order[static_cast<size_t>(rank) - 2] == rank - 1;
  for (int i = 0; i + 2 < rank; ++i) last_two = last_two && order[static_cast<size_t>(i)] == i;
  // The source may be unaligned in its file; x86-64, the only platform, allows that.
  if (last_two)
    transpose_matrices(in.as<Word>(), out.as<Word>(), in.shape().elements(0, rank - 2), in.shape().back(2),
                       in.shape().back(1), pool);
  else permute(in.as<Word>(), out.as<Word>(), in.shape(), order);
}

/// Reads element i of packed elements; the other writes it into zeroed bytes.
unsigned packed_bits(const std::byte* data, int64_t i, int bits) {
  const int64_t at = i * bits;
  return std::to_integer<unsigned>(data[at / 8]) >> (at % 8) & ((1u << bits) - 1);
}
void put_packed_bits(std::byte* data, int64_t i, int bits, unsigned value) {
  const int64_t at = i * bits;
  data[at / 8] |= static_cast<std::byte>(value << (at % 8));
}

/// Transposes sub-byte elements. 4 bits with even sizes: 2 x 2 squares, from two bytes to two.
void transpose_packed(const Tensor& in, const Tensor& out, ThreadPool* pool) {
  const int bits = dtype_bits(in.dtype());
  const int64_t rows = in.shape()[0], columns = in.shape()[1];
  const auto* from = in.as<uint8_t>();
  auto* to = out.as<uint8_t>();
  if (bits != 4 || rows % 2 || columns % 2) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        put_packed_bits(out.data(), c * rows + r, bits, packed_bits(in.data(), r * columns + c, bits));
    return;
  }
  constexpr int64_t band = 64;  // a cache line of bytes
  const int64_t pitch = columns / 2, height = rows / 2;
  for_each(pool, (pitch + band - 1) / band, [&](int64_t item, int) {
    for (int64_t r = 0; r < height; ++r)
      for (int64_t c = item * band, end = std::min(c + band, pitch); c < end; ++c) {
        const uint8_t a = from[2 * r * pitch + c], b = from[(2 * r + 1) * pitch + c];
        to[2 * c * height + r] = static_cast<uint8_t>((a & 15) | (b & 15) << 4);
        to[(2 * c + 1) * height + r] = static_cast<uint8_t>(a >> 4 | (b & 0xF0));
      }
  });
}

Tensor transposed(const Tensor& in, const RecipeStep& step, ThreadPool* pool) {
  Tensor out(in.dtype(), apply(step, in.shape()));
  if (dtype_bits(in.dtype()) < 8 && in.shape().rank() == 2 && step.numbers[0] == 1) {
    transpose_packed(in, out, pool);
    return out;
  }
  switch (dtype_bits(in.dtype())) {
    case 8: transpose_words<uint8_t>(in, out, step.numbers, pool); break;
    case 16: transpose_words<uint16_t>(in, out, step.numbers, pool); break;
    case 32: transpose_words<uint32_t>(in, out, step.numbers, pool); break;
    case 64: transpose_words<uint64_t>(in, out, step.numbers, pool); break;
    default: throw Error(Code::unsupported, cat("cannot transpose a constant of dtype ", dtype_name(in.dtype())));
  }
  return out;
}

Tensor sliced(const Tensor& in, const RecipeStep& step) {
  int axis = static_cast<int>(step.numbers[0]);
  int bits = dtype_bits(in.dtype());
  int64_t inner = in.shape().elements(axis + 1, in.shape().rank());
  if (inner * bits % 8) throw Error(Code::unsupported, "a slice of packed elements does not start at a byte");
  int64_t row = inner * bits / 8, begin = step.numbers[1] * row, size = (step.numbers[2] - step.numbers[1]) * row;
  int64_t outer = in.shape().elements(0, axis), pitch = in.shape()[axis] * row;
  if (outer == 1) return Tensor(in.dtype(), apply(step, in.shape()), in.blob(), in.offset() + begin);
  Tensor out(in.dtype(), apply(step, in.shape()));
  for (int64_t i = 0; i < outer; ++i)
    std::memcpy(out.data() + i * size, in.data() + i * pitch + begin, static_cast<size_t>(size));
  return out;
}

/// Reads any number type as double: exact for all but 64-bit integers beyond 2^53.
double element(const Tensor& tensor, int64_t i) {
  auto read = [&]<class T>(T value) {
    std::memcpy(&value, tensor.data() + i * static_cast<int64_t>(sizeof value), sizeof value);
    return value;
  };
  switch (tensor.dtype()) {
    case DType::f32: return read(float{});
    case DType::f64: return read(double{});
    case DType::f16: return to_float(read(Float16{}));
    case DType::bf16: return to_float(read(BFloat16{}));
    case DType::i64: return static_cast<double>(read(int64_t{}));
    case DType::i32: return read(int32_t{});
    case DType::i16: return read(int16_t{});
    case DType::i8: return read(int8_t{});
    case DType::u16: return read(uint16_t{});
    case DType::u8:
    case DType::boolean: return read(uint8_t{});
    case DType::u4: return packed_bits(tensor.data(), i, 4);
    case DType::u2: return packed_bits(tensor.data(), i, 2);
    case DType::i4: return static_cast<int>(packed_bits(tensor.data(), i, 4) ^ 8) - 8;
    case DType::i2: return static_cast<int>(packed_bits(tensor.data(), i, 2) ^ 2) - 2;
    default: throw Error(Code::unsupported, cat("cannot cast a constant of dtype ", dtype_name(tensor.dtype())));
  }
}

/// Calls `visit` with a number of the float type, if it is one.
template <class Visit>
void with_float(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::f32: return visit(float{});
    case DType::f64: return visit(double{});
    case DType::f16: return visit(Float16{});
    case DType::bf16: return visit(BFloat16{});
    default: return;
  }
}

template <class T>
double widened(T value) {
  if constexpr (std::is_floating_point_v<T>) return value;
  else return to_float(value);
}

template <class T>
T narrowed(double value) {
  if constexpr (std::is_same_v<T, Float16>) return to_float16(static_cast<float>(value));
  else if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(static_cast<float>(value));
  else return static_cast<T>(value);
}

/// Casts elements [begin, end) between float types: one loop per pair of types, since whole models are cast.
void convert_floats(const Tensor& in, Tensor& out, int64_t begin, int64_t end) {
  with_float(in.dtype(), [&]<class From>(From) {
    with_float(out.dtype(), [&]<class To>(To) {
      const std::byte* from = in.data();
      To* to = out.as<To>();
      for (int64_t i = begin; i < end; ++i) {
        From value;  // a file's bytes may be unaligned
        std::memcpy(&value, from + i * static_cast<int64_t>(sizeof value), sizeof value);
        to[i] = narrowed<To>(widened(value));
      }
    });
  });
}

Tensor converted(const Tensor& in, DType dtype, ThreadPool* pool) {
  Tensor out(dtype, in.shape());
  constexpr int64_t chunk = 1 << 16;
  int64_t count = in.elements();
  if (count) element(in, 0);  // throws for a bad dtype before threads start
  for_each(pool, (count + chunk - 1) / chunk, [&](int64_t item, int) {
    const int64_t begin = item * chunk, end = std::min(begin + chunk, count);
    if (is_float(in.dtype()) && is_float(dtype)) return convert_floats(in, out, begin, end);
    for (int64_t i = begin; i < end; ++i) {
      double value = element(in, i);
      switch (dtype) {
        case DType::f32: out.as<float>()[i] = static_cast<float>(value); break;
        case DType::f64: out.as<double>()[i] = value; break;
        case DType::f16: out.as<Float16>()[i] = to_float16(static_cast<float>(value)); break;
        case DType::bf16: out.as<BFloat16>()[i] = to_bfloat16(static_cast<float>(value)); break;
        case DType::u8: out.as<uint8_t>()[i] = static_cast<uint8_t>(static_cast<int64_t>(value)); break;
        case DType::i8: out.as<int8_t>()[i] = static_cast<int8_t>(static_cast<int64_t>(value)); break;
        default: throw Error(Code::unsupported, cat("cannot cast a constant to dtype ", dtype_name(dtype)));
      }
    }
  });
  return out;
}

}  // namespace

namespace {

/// The input of the first step.
DType first_dtype(const Constant& constant) {
  return constant.parts.empty() ? constant.source.dtype() : constant.parts[0].dtype();
}
Shape first_shape(const Constant& constant) {
  if (constant.parts.empty()) return constant.source.shape();
  Shape out{static_cast<int64_t>(constant.parts.size())};
  for (int64_t size : constant.parts[0].shape()) out.push_back(size);
  return out;
}

Tensor stacked(const std::vector<Constant>& parts, const Shape& shape, ThreadPool* pool) {
  Tensor out(parts[0].dtype(), shape);
  const int64_t each = out.bytes() / static_cast<int64_t>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor part = materialize(parts[i], pool);
    if (part.dtype() != out.dtype() || part.bytes() != each)
      throw Error(Code::internal, "the parts of a stacked constant are not alike");
    if (each) std::memcpy(out.data() + static_cast<int64_t>(i) * each, part.data(), static_cast<size_t>(each));
    parts[i].drop_source();
  }
  return out;
}

}  // namespace

DType Constant::dtype() const {
  DType out = first_dtype(*this);
  for (const RecipeStep& step : steps)
    if (step.kind == Kind::cast || step.kind == Kind::reinterpret) out = step.dtype;
  return out;
}

Shape Constant::shape() const {
  Shape out = first_shape(*this);
  DType dtype = first_dtype(*this);
  for (const RecipeStep& step : steps) {
    out = step.kind == Kind::reinterpret ? reinterpreted(out, dtype, step.dtype) : apply(step, out);
    if (step.dtype != DType::none) dtype = step.dtype;
  }
  return out;
}

int64_t Constant::source_bytes() const {
  int64_t out = source.bytes();
  for (const Constant& part : parts) out += part.source_bytes();
  return out;
}

void Constant::drop_source() const {
  if (parts.empty()) source.drop();
  for (const Constant& part : parts) part.drop_source();
}

void Constant::check_source() const {
  if (parts.empty() && source.blob()) source.blob()->check();
  for (const Constant& part : parts) part.check_source();
}

void check_steps(const Constant& constant) {
  Constant so_far{{}, constant.source, {}, constant.parts};
  for (const RecipeStep& step : constant.steps) {
    if (!fits(step, so_far.shape(), so_far.dtype()))
      throw Error(Code::invalid_argument, cat("step \"", text({step}), "\" does not fit ", dtype_name(so_far.dtype()),
                                              so_far.shape().text()));
    so_far.steps.push_back(step);
  }
}

Tensor materialize(const Constant& recipe, ThreadPool* pool) {
  recipe.check_source();
  const Constant constant = slices_first(recipe);
  Tensor out = constant.parts.empty() ? constant.source : stacked(constant.parts, first_shape(constant), pool);
  for (const RecipeStep& step : constant.steps) {
    switch (step.kind) {
      case Kind::transpose: out = transposed(out, step, pool); break;
      case Kind::slice: out = sliced(out, step); break;
      case Kind::part: throw Error(Code::internal, "a rank's part of a constant, of no rank");
      case Kind::reshape: out = out.reshaped(Shape(step.numbers)); break;
      case Kind::cast:
        if (step.dtype != out.dtype()) out = converted(out, step.dtype, pool);
        break;
      case Kind::reinterpret:
        out = Tensor(step.dtype, reinterpreted(out.shape(), out.dtype(), step.dtype), out.blob(), out.offset());
        break;
    }
  }
  return out;
}

std::string text(const std::vector<RecipeStep>& steps) {
  static constexpr std::string_view names[] = {"transpose", "slice", "part", "reshape", "cast", "reinterpret"};
  std::vector<std::string> parts;
  for (const RecipeStep& step : steps) {
    std::string part(names[static_cast<size_t>(step.kind)]);
    for (int64_t number : step.numbers) part += cat(" ", number);
    if (step.dtype != DType::none) part += cat(" ", dtype_name(step.dtype));
    parts.push_back(std::move(part));
  }
  return join(parts, "; ");
}

void add_step(Constant& constant, RecipeStep step) {
  using Kind = RecipeStep::Kind;
  if (!constant.steps.empty() && constant.steps.back().kind == step.kind) {
    RecipeStep& last = constant.steps.back();
    if (step.kind == Kind::reshape) {
      last = std::move(step);
      return;
    }
    if (step.kind == Kind::transpose) {
      std::vector<int64_t> composed;
      for (int64_t axis : step.numbers) composed.push_back(last.numbers[static_cast<size_t>(axis)]);
      bool identity = true;
      for (size_t i = 0; i < composed.size(); ++i) identity = identity && composed[i] == static_cast<int64_t>(i);
      if (identity) constant.steps.pop_back();
      else last.numbers = std::move(composed);
      return;
    }
  }
  constant.steps.push_back(std::move(step));
}

}  // namespace plait
