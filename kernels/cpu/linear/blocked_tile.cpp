#include "kernels/cpu/linear/blocked_tile.h"

#include <type_traits>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear/blocked_tile.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/vec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plait::cpu {
namespace HWY_NAMESPACE {
#if PLAIT_SIMD

constexpr int64_t parts = code_group / L;  ///< vectors of a group

HWY_INLINE V broadcast(const float* p) {  // at any address
  float value;
  memcpy(&value, p, sizeof value);
  return hn::Set(df, value);
}

/// What is subtracted from codes: nothing, the zero point, or the zero point where zero * scale is exact, being a
/// power of two: then code * scale - zero * scale, rounded once by fma, equals (code - zero) * scale to the last bit.
enum class Zeros { none, any, exact };

template <Zeros zeros, class Scaled>
HWY_INLINE Scaled scale_and_zero(const float* scale, const float* zero) {
  const V s = broadcast(scale);
  if constexpr (zeros == Zeros::none) return {s, hn::Zero(df)};
  else if constexpr (zeros == Zeros::any) return {s, broadcast(zero)};
  else return {s, hn::Mul(s, broadcast(zero))};
}
template <Zeros zeros, class Scaled>
HWY_INLINE V value_of(V code, const Scaled& s) {
  if constexpr (zeros == Zeros::none) return hn::Mul(code, s.scale);
  else if constexpr (zeros == Zeros::any) return hn::Mul(hn::Sub(code, s.zero), s.scale);
  else return hn::MulSub(code, s.scale, s.zero);
}

// A format loads 16 codes. Of 4 bits, element 0 in the low nibble, 8 bytes are broadcast as pairs of words {codes
// 0..7, codes 8..15} and each lane shifts its own down: lane 2 i has code i, lane 2 i + 1 code 8 + i, which is the
// order of `arrange` for x. Others keep their order.
template <int bits>
struct Shifts {};
template <>
struct Shifts<4> {
  static HWY_INLINE hn::Vec<DI> words(const uint8_t* p) {
    int64_t both;
    memcpy(&both, p, sizeof both);
#if HWY_TARGET == HWY_AVX3
    return hn::Vec<DI>{_mm512_set1_epi64(both)};
#else
    return hn::Vec<DI>{_mm256_set1_epi64x(both)};
#endif
  }
  /// The lowest bit of lane i's code in its word.
  static HWY_INLINE hn::Vec<DI> down(int part) {
    return hn::Mul(hn::ShiftRight<1>(hn::Iota(di, static_cast<int>(part * L))), hn::Set(di, 4));
  }
};
template <>
struct Shifts<2> {
  static HWY_INLINE hn::Vec<DI> words(const uint8_t* p) {
    int32_t all;
    memcpy(&all, p, sizeof all);
    return hn::Set(di, all);
  }
  static HWY_INLINE hn::Vec<DI> down(int part) {
    return hn::Mul(hn::Iota(di, static_cast<int>(part * L)), hn::Set(di, 2));
  }
};

#if HWY_TARGET == HWY_AVX3
/// Codes of 2 or 4 bits look their value up in a table that has been multiplied by the block's scale: a shift and a
/// permutation make 16 weights.
template <int bits_, bool is_signed>
struct Packed {
  static constexpr int64_t bits = bits_;
  /// A zero point shared by all blocks is part of the table.
  static constexpr bool zero_in_values = true;
  struct Scaled {
    V table;
  };
  hn::Vec<DI> down;
  V values;
  explicit HWY_INLINE Packed(float zero) : down(Shifts<bits>::down(0)) {
    hn::Vec<DI> codes = hn::And(hn::Iota(di, 0), hn::Set(di, (1 << bits) - 1));
    if (is_signed) codes = hn::Sub(hn::Xor(codes, hn::Set(di, 1 << (bits - 1))), hn::Set(di, 1 << (bits - 1)));
    values = hn::Sub(hn::ConvertTo(df, codes), hn::Set(df, zero));
  }
  template <Zeros zeros>
  HWY_INLINE Scaled scaled(const float* scale, const float* zero) const {
    V table = values;
    if constexpr (zeros != Zeros::none) table = hn::Sub(table, broadcast(zero));
    return {hn::Mul(table, broadcast(scale))};
  }
  template <Zeros zeros>
  HWY_INLINE V load(const uint8_t* p, int, const Scaled& s) const {
    // The permutation reads 4 bits of an index: those above 2 choose among equal entries.
    return V{_mm512_permutexvar_ps(_mm512_srlv_epi32(Shifts<bits>::words(p).raw, down.raw), s.table.raw)};
  }
};
#else
/// Codes of 2 or 4 bits are shifted, masked (or their sign spread), converted and scaled.
template <int bits_, bool is_signed>
struct Packed {
  static constexpr int64_t bits = bits_;
  static constexpr bool zero_in_values = false;
  struct Scaled {
    V scale, zero;
  };
  hn::Vec<DI> shift[parts];
  explicit HWY_INLINE Packed(float) {
    for (int part = 0; part < parts; ++part) {
      shift[part] = Shifts<bits>::down(part);
      if (is_signed) shift[part] = hn::Sub(hn::Set(di, 32 - static_cast<int>(bits)), shift[part]);
    }
  }
  template <Zeros zeros>
  HWY_INLINE Scaled scaled(const float* scale, const float* zero) const {
    return scale_and_zero<zeros, Scaled>(scale, zero);
  }
  template <Zeros zeros>
  HWY_INLINE V load(const uint8_t* p, int part, const Scaled& s) const {
    const __m256i words = Shifts<bits>::words(p).raw;
    __m256i codes;
    if constexpr (is_signed) {
      codes = _mm256_srai_epi32(_mm256_sllv_epi32(words, shift[part].raw), 32 - bits);
    } else {
      codes = _mm256_and_si256(_mm256_srlv_epi32(words, shift[part].raw), _mm256_set1_epi32((1 << bits) - 1));
    }
    return value_of<zeros>(hn::ConvertTo(df, hn::Vec<DI>{codes}), s);
  }
};
#endif

template <bool is_signed>
struct Packed<8, is_signed> {
  static constexpr int64_t bits = 8;
  static constexpr bool zero_in_values = false;
  struct Scaled {
    V scale, zero;
  };
  explicit HWY_INLINE Packed(float) {}
  template <Zeros zeros>
  HWY_INLINE Scaled scaled(const float* scale, const float* zero) const {
    return scale_and_zero<zeros, Scaled>(scale, zero);
  }
  template <Zeros zeros>
  HWY_INLINE V load(const uint8_t* p, int part, const Scaled& s) const {
    using Code = std::conditional_t<is_signed, int8_t, uint8_t>;
    constexpr hn::Rebind<Code, D> d8{};
    const auto codes = hn::PromoteTo(di, hn::LoadU(d8, reinterpret_cast<const Code*>(p + part * L)));
    return value_of<zeros>(hn::ConvertTo(df, codes), s);
  }
};

/// `count` numbers widened by whole vectors: the last one overlaps its neighbour where it would exceed.
template <class T>
HWY_INLINE void widen(const uint8_t* from, int64_t count, float* to) {
  if (count < L) {
    AsF32::store(load_some<T>(from, count), bytes(to));  // see dot_scratch for the size
    return;
  }
  for (int64_t i = 0; i < count; i += L) {
    const int64_t at = std::min(i, count - L);
    AsF32::store(T::load(from + T::size * at), bytes(to + at));
  }
}

/// Scales or zero points, which are not f32, as f32.
void as_f32(const uint8_t* from, DType dtype, int64_t count, float* to) {
  if (dtype == DType::bf16) return widen<AsBF16>(from, count, to);
  if (dtype == DType::f16) return widen<AsF16>(from, count, to);
  if (dtype == DType::u8) {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<int8_t>(from[i]));
  }
}

int64_t element_bytes(DType dtype) {
  return dtype == DType::f32 ? 4 : dtype == DType::f16 || dtype == DType::bf16 ? 2 : 1;
}

/// The factors of some rows of w, `apart` rows from one to the next, as f32.
struct Factors {
  const float *scales, *zeros;
  int64_t scale_stride, zero_stride;  ///< from one of the rows to the next
  int64_t zero_step;                  ///< from one block to the next

  Factors(const BlockedWeight& w, int64_t row, int64_t apart, int64_t count, float* scratch) {
    auto rows = [&](const uint8_t* from, DType dtype, float* buffer, const float*& to, int64_t& stride) {
      const int64_t size = w.blocks * element_bytes(dtype);
      stride = dtype == DType::f32 ? apart * w.blocks : w.blocks;
      to = reinterpret_cast<const float*>(from + row * size);
      if (dtype == DType::f32) return;
      for (int64_t j = 0; j < count; ++j)
        as_f32(from + (row + j * apart) * size, dtype, w.blocks, buffer + j * w.blocks);
      to = buffer;
    };
    rows(w.scales, w.scale_dtype, scratch, scales, scale_stride);
    zeros = &w.zero, zero_stride = zero_step = 0;
    if (!w.zeros) return;
    rows(w.zeros, w.zero_dtype, scratch + dot_streams * w.blocks, zeros, zero_stride);
    zero_step = 1;
  }
};

/// Addresses of 4 rows that lie `stride` bytes apart, from few enough registers that no pointer is spilled.
struct Streams {
  const uint8_t *first, *fourth;
  int64_t stride;
  HWY_INLINE Streams(const void* at, int64_t apart)
      : first(static_cast<const uint8_t*>(at)), fourth(first + 3 * apart), stride(apart) {
    asm("" : "+r"(fourth));  // prevents the compiler from keeping a pointer for each row
  }
  HWY_INLINE const uint8_t* operator[](int j) const {
    return j == 0 ? first : j == 1 ? first + stride : j == 2 ? first + 2 * stride : fourth;
  }
  HWY_INLINE void advance(int64_t bytes) { first += bytes, fourth += bytes; }
};

struct Tile {
  const float* x;
  int64_t ldx;
  const uint8_t* codes;
  int64_t stride;  ///< bytes between rows of w
  const BlockedWeight* w;
  Factors factors;
  float* y;
  int64_t ldy;
  int64_t ahead;  ///< bytes from a row of codes to the next tile's, for prefetching; 0: none
};

template <class F, Zeros zeros, int ROWS>
HWY_INLINE void step(const F& format, const float* x, int64_t ldx, const Streams& codes, int64_t offset,
                     const typename F::Scaled (&scaled)[dot_streams], V (&sums)[ROWS][dot_streams]) {
#pragma GCC unroll 2
  for (int part = 0; part < parts; ++part) {
    V v[ROWS];
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) v[i] = hn::LoadU(df, x + i * ldx + part * L);
#pragma GCC unroll 8
    for (int j = 0; j < dot_streams; ++j) {
      const V w = format.template load<zeros>(codes[j] + offset, part, scaled[j]);
#pragma GCC unroll 4
      for (int i = 0; i < ROWS; ++i) sums[i][j] = hn::MulAdd(v[i], w, sums[i][j]);
    }
  }
}

/// GROUPS: per block; 0: any number.
template <class F, Zeros zeros, int ROWS, int GROUPS>
void run_tile(const Tile& tile) {
  const Tile t = tile;
  constexpr int64_t group_bytes = code_group * F::bits / 8;
  const int64_t groups = GROUPS ? GROUPS : t.w->length / code_group;
  const F format(zeros == Zeros::none ? t.w->zero : 0);
  V sums[ROWS][dot_streams];
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < dot_streams; ++j) sums[i][j] = hn::Zero(df);
  const float* x = t.x;
  Streams codes(t.codes, t.stride), ahead(t.codes + t.ahead, t.stride);
  Streams scales(t.factors.scales, 4 * t.factors.scale_stride), points(t.factors.zeros, 4 * t.factors.zero_stride);
  typename F::Scaled scaled[dot_streams];
  for (int64_t block = t.w->blocks; block > 0; --block) {
#pragma GCC unroll 8
    for (int j = 0; j < dot_streams; ++j)
      scaled[j] = format.template scaled<zeros>(reinterpret_cast<const float*>(scales[j]),
                                                reinterpret_cast<const float*>(points[j]));
    scales.advance(4);
    if constexpr (zeros == Zeros::any) points.advance(4 * t.factors.zero_step);
    if constexpr (GROUPS != 0) {
#pragma GCC unroll 8
      for (int j = 0; j < dot_streams; ++j) _mm_prefetch(reinterpret_cast<const char*>(ahead[j]), _MM_HINT_T1);
      ahead.advance(GROUPS * group_bytes);
#pragma GCC unroll 4
      for (int group = 0; group < GROUPS; ++group)
        step<F, zeros>(format, x + group * code_group, t.ldx, codes, group * group_bytes, scaled, sums);
      x += GROUPS * code_group;
      codes.advance(GROUPS * group_bytes);
    } else {
      for (int64_t group = 0; group < groups; ++group, x += code_group) {
#pragma GCC unroll 8
        for (int j = 0; j < dot_streams; ++j) _mm_prefetch(reinterpret_cast<const char*>(ahead[j]), _MM_HINT_T1);
        ahead.advance(group_bytes);
        step<F, zeros>(format, x, t.ldx, codes, 0, scaled, sums);
        codes.advance(group_bytes);
      }
    }
  }
  if (const int64_t rest = GROUPS ? 0 : t.w->length % code_group; rest) {  // of the only block: scaled by its scale
    alignas(64) uint8_t last[dot_streams * group_bytes] = {};
    for (int j = 0; j < dot_streams; ++j)
      memcpy(last + j * group_bytes, codes[j], static_cast<size_t>(rest * F::bits / 8));
    step<F, zeros>(format, x, t.ldx, Streams(last, group_bytes), 0, scaled, sums);
  }
#pragma GCC unroll 8
  for (int i = 0; i < ROWS; ++i) {
    static_assert(dot_streams == 4);
    _mm_storeu_ps(t.y + i * t.ldy, sum_lanes(sums[i][0], sums[i][1], sums[i][2], sums[i][3]));
  }
}

/// Scales are too short a stream for the prefetcher to see.
HWY_INLINE void fetch_scales(const BlockedWeight& w, int64_t row) {
  const int64_t size = w.blocks * element_bytes(w.scale_dtype);
  for (int64_t byte = 0; byte < size; byte += 64)
    _mm_prefetch(reinterpret_cast<const char*>(w.scales + row * size + byte), _MM_HINT_T0);
}

/// Rows of w in flight are far apart, as in linear_tile.cpp: the prefetcher follows one stream per page.
template <class F, Zeros zeros, int ROWS>
void dot_rows(const BlockedDot& d) {
  const int64_t row = d.w.blocks * d.w.length * F::bits / 8, ldx = d.w.padded();
  float sums[ROWS * dot_streams];
  // Row `j` of w and further ones at a stride of `apart` rows; the next tile begins one row on.
  auto run = [&](int64_t j, int64_t apart, bool last) {
    const Factors factors(d.w, d.begin + j, apart, dot_streams, d.scratch);
    const Tile tile{d.x,         ldx,           d.w.codes + (d.begin + j) * row, apart * row, &d.w, factors, sums,
                    dot_streams, last ? 0 : row};
    if (ROWS == 1 && d.w.length == 2 * code_group) run_tile<F, zeros, ROWS, 2>(tile);
    else run_tile<F, zeros, ROWS, 0>(tile);
  };
  const int64_t apart = d.n / dot_streams;
  for (int64_t j = 0; j < apart; ++j) {
    for (int c = 0; c < dot_streams; ++c) fetch_scales(d.w, d.begin + j + c * apart + 2);
    run(j, apart, j + 1 == apart);
    for (int i = 0; i < ROWS; ++i)
      for (int c = 0; c < dot_streams; ++c) d.y[i * d.ldy + j + c * apart] = sums[i * dot_streams + c];
  }
  for (int64_t j = apart * dot_streams; j < d.n; ++j) {  // the rest: each stream reads the same row
    run(j, 0, true);
    for (int i = 0; i < ROWS; ++i) d.y[i * d.ldy + j] = sums[i * dot_streams];
  }
}

/// AVX-512: sums, tables and rows of x of 4 x 4 fill 25 of 32 registers; AVX2: of 2 x 4 10 of 16.
constexpr int64_t most_rows = HWY_TARGET == HWY_AVX3 ? 4 : 2;

template <class F, Zeros zeros>
void dot_of(const BlockedDot& d) {
  switch (d.m) {
    case 1: return dot_rows<F, zeros, 1>(d);
    case 2: return dot_rows<F, zeros, 2>(d);
#if HWY_TARGET == HWY_AVX3
    case 3: return dot_rows<F, zeros, 3>(d);
    case 4: return dot_rows<F, zeros, 4>(d);
#endif
  }
}

/// Calls f(format, zeros) for the type of the weight's codes, and what is subtracted from them.
template <class F, class Call>
HWY_INLINE void with_zeros(const BlockedWeight& w, Call call) {
  int exponent;
  if (w.zeros) call.template operator()<F, Zeros::any>();
  else if (w.zero == 0 || F::zero_in_values) call.template operator()<F, Zeros::none>();
  else if (frexpf(w.zero, &exponent) == 0.5f)
    call.template operator()<F, F::zero_in_values ? Zeros::none : Zeros::exact>();
  else call.template operator()<F, Zeros::any>();
}
template <class Call>
HWY_INLINE void with_format(const BlockedWeight& w, Call call) {
  switch (w.dtype) {
    case DType::u4: return with_zeros<Packed<4, false>>(w, call);
    case DType::i4: return with_zeros<Packed<4, true>>(w, call);
    case DType::u2: return with_zeros<Packed<2, false>>(w, call);
    case DType::i2: return with_zeros<Packed<2, true>>(w, call);
    case DType::i8: return with_zeros<Packed<8, true>>(w, call);
    default: return with_zeros<Packed<8, false>>(w, call);
  }
}

struct CallDot {
  const BlockedDot& dot;
  template <class F, Zeros zeros>
  void operator()() const {
    dot_of<F, zeros>(dot);
  }
};
void dot(const BlockedDot& d) { with_format(d.w, CallDot{d}); }

template <class F, Zeros zeros>
void unpack_row(const F& format, const BlockedWeight& w, int64_t row, float* to, float* scratch) {
  constexpr int64_t group_bytes = code_group * F::bits / 8;
  const Factors factors(w, row, 1, 1, scratch);
  const uint8_t* codes = w.codes + row * (w.blocks * w.length * F::bits / 8);
  typename F::Scaled scaled;
  for (int64_t block = 0; block < w.blocks; ++block) {
    scaled = format.template scaled<zeros>(factors.scales + block, factors.zeros + block * factors.zero_step);
    for (int64_t i = 0; i + code_group <= w.length; i += code_group, codes += group_bytes, to += code_group)
#pragma GCC unroll 2
      for (int part = 0; part < parts; ++part)
        hn::StoreU(format.template load<zeros>(codes, part, scaled), df, to + part * L);
  }
  if (const int64_t rest = w.length % code_group; rest) {
    alignas(64) uint8_t last[group_bytes] = {};
    memcpy(last, codes, static_cast<size_t>(rest * F::bits / 8));
    for (int part = 0; part < parts; ++part)
      hn::StoreU(format.template load<zeros>(last, part, scaled), df, to + part * L);
  }
}

struct CallUnpack {
  const BlockedWeight& w;
  int64_t begin, n;
  float *to, *scratch;
  template <class F, Zeros zeros>
  void operator()() const {
    const F format(zeros == Zeros::none ? w.zero : 0);
    for (int64_t j = 0; j < n; ++j) unpack_row<F, zeros>(format, w, begin + j, to + j * w.padded(), scratch);
  }
};

/// Rows that do not begin at bytes, or groups that span blocks.
void unpack_singly(const BlockedWeight& w, int64_t begin, int64_t n, float* to, float* scratch) {
  const int64_t k = w.blocks * w.length, bits = w.bits();
  const bool is_signed = w.dtype == DType::i8 || w.dtype == DType::i4 || w.dtype == DType::i2;
  const int half = is_signed ? 1 << (bits - 1) : 0;
  for (int64_t j = 0; j < n; ++j, to += w.padded()) {
    const Factors factors(w, begin + j, 1, 1, scratch);
    for (int64_t i = 0; i < w.padded(); ++i) {
      if (i >= k) {
        to[i] = 0;
        continue;
      }
      const int64_t at = ((begin + j) * k + i) * bits, block = i / w.length;
      const int code = (w.codes[at / 8] >> (at % 8) & ((1 << bits) - 1)) ^ half;
      float scale, zero;
      memcpy(&scale, factors.scales + block, sizeof scale);
      memcpy(&zero, factors.zeros + block * factors.zero_step, sizeof zero);
      to[i] = (static_cast<float>(code - half) - zero) * scale;
    }
  }
}

void unpack(const BlockedWeight& w, int64_t begin, int64_t n, float* to, float* scratch) {
  if (!w.grouped()) return unpack_singly(w, begin, n, to, scratch);
  with_format(w, CallUnpack{w, begin, n, to, scratch});
}

/// Place of element i of a group of 16 among its codes.
constexpr int64_t place(int64_t i) { return i < 8 ? 2 * i : 2 * (i - 8) + 1; }

void arrange(const float* x, int64_t k, const BlockedWeight& w, float* to) {
  const int64_t padded = w.padded();
  if (!w.interleaved()) {
    memcpy(to, x, static_cast<size_t>(k) * sizeof(float));
    memset(to + k, 0, static_cast<size_t>(padded - k) * sizeof(float));
    return;
  }
  int64_t i = 0;
  for (; i + code_group <= k; i += code_group)
#pragma GCC unroll 16
    for (int64_t c = 0; c < code_group; ++c) to[i + place(c)] = x[i + c];
  for (; i < padded; i += code_group)
    for (int64_t c = 0; c < code_group; ++c) to[i + place(c)] = i + c < k ? x[i + c] : 0;
}

void restore(const float* from, int64_t k, const BlockedWeight& w, float* x) {
  if (!w.interleaved()) {
    memcpy(x, from, static_cast<size_t>(k) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < k; ++i) x[i] = from[i / code_group * code_group + place(i % code_group)];
}

constexpr BlockedTiles tiles{most_rows, arrange, restore, dot, unpack};

#endif  // PLAIT_SIMD
}  // namespace HWY_NAMESPACE
}  // namespace plait::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plait::cpu {

const BlockedTiles& blocked_tiles(Isa isa) { return PLAIT_OF_ISA(isa, tiles); }

}  // namespace plait::cpu
#endif
