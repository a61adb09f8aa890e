#include "kernels/cuda/launch/linear_pack.h"

#include <cstring>

#include "core/base/thread_pool.h"
#include "kernels/cuda/packed_arrays.h"

namespace plait::cuda {
namespace {

/// Calls work(strip) for each strip of 16 rows.
template <class Work>
void each_strip(int64_t n, ThreadPool* pool, const Work& work) {
  const int64_t strips = ceil_div(n, strip_rows);
  if (pool) return pool->for_each(strips, [&](int64_t strip, int) { work(strip); });
  for (int64_t strip = 0; strip < strips; ++strip) work(strip);
}

/// Calls put(half, lane, r, e, row, k) for each element of a unit.
template <class Put>
void each_element(const Put& put) {
  for (int half = 0; half < 2; ++half)
    for (int lane = 0; lane < lanes; ++lane)
      for (int r = 0; r < 4; ++r)
        for (int e = 0; e < 2; ++e) put(half, lane, r, e, row_of(lane, r), k_of(lane, half, r, e));
}

Tensor packed_like(const Tensor& plain, int64_t bytes) {
  return Tensor(plain.dtype(), plain.shape(), make_blob(bytes), 0);
}

/// [n, k] of 16 bits.
Tensor pack_plain(const Tensor& plain, ThreadPool* pool) {
  const int64_t n = plain.shape()[0], k = plain.shape()[1], units = units_of(k), unit_bytes = 2 * lanes * 16;
  Tensor out = packed_like(plain, packed_halves_bytes(plain.shape()));
  each_strip(n, pool, [&](int64_t strip) {
    for (int64_t unit = 0; unit < units; ++unit) {
      std::byte* const to = out.data() + (strip * units + unit) * unit_bytes;
      each_element([&](int half, int lane, int r, int e, int row, int at) {
        const int64_t i = strip * strip_rows + row, j = unit * unit_k + at;
        if (i < n && j < k)
          std::memcpy(to + (((half * lanes + lane) * 4 + r) * 2 + e) * 2, plain.data() + (i * k + j) * 2, 2);
      });
    }
  });
  return out;
}

/// Element `i` of codes of `bits`, low bits first, as the unsigned number of these bits.
uint32_t code_at(const std::byte* codes, int bits, int64_t i) {
  const auto byte = std::to_integer<uint32_t>(codes[i * bits / 8]);
  return byte >> (i * bits % 8) & ((1U << bits) - 1);
}

bool is_signed(DType dtype) { return dtype == DType::i8 || dtype == DType::i4 || dtype == DType::i2; }

/// [n, c, l] of `bits` as groups of 8 or of 4 bits: codes plus `shift`.
template <int bits, int to_bits, int shift>
Tensor pack_codes(const Tensor& plain, ThreadPool* pool) {
  constexpr bool bytes = to_bits == 8;
  constexpr uint32_t mask = (1U << to_bits) - 1, sign = 1U << (bits - 1);
  const int64_t n = plain.shape()[0], length = plain.shape()[2], k = plain.shape()[1] * length;
  const int64_t block_units = int64_t{1} << block_shift_of(length), units = plain.shape()[1] * block_units;
  const int64_t groups = bytes ? units : ceil_div(units, 2), group_bytes = lanes * 16;
  Tensor out = packed_like(plain, packed_codes_bytes(plain.shape(), to_bits));
  each_strip(n, pool, [&](int64_t strip) {
    for (int64_t unit = 0; unit < units; ++unit) {
      std::byte* const to = out.data() + (strip * groups + (bytes ? unit : unit / 2)) * group_bytes;
      each_element([&](int half, int lane, int r, int e, int row, int at) {
        const int64_t i = strip * strip_rows + row, within = unit % block_units * unit_k + at;
        if (i >= n || within >= length) return;
        uint32_t code = code_at(plain.data(), bits, i * k + unit / block_units * length + within);
        if (is_signed(plain.dtype())) code = (code ^ sign) - sign;  // extends the sign
        code = (code + static_cast<uint32_t>(shift)) & mask;
        const int64_t word = lane * 4 + (bytes ? half * 2 + r / 2 : unit % 2 * 2 + half);
        const int bit = bytes ? 8 * (r % 2) + 16 * e : 4 * r + 16 * e;
        uint32_t codes;
        std::memcpy(&codes, to + word * 4, 4);
        codes |= code << bit;
        std::memcpy(to + word * 4, &codes, 4);
      });
    }
  });
  return out;
}

float value_at(const Tensor& values, int64_t i) {
  switch (values.dtype()) {
    case DType::bf16: return to_float(reinterpret_cast<const BFloat16*>(values.data())[i]);
    case DType::f16: return to_float(reinterpret_cast<const Float16*>(values.data())[i]);
    case DType::u8: return static_cast<float>(std::to_integer<int>(values.data()[i]));
    case DType::i8: return static_cast<float>(static_cast<int8_t>(values.data()[i]));
    default: {
      float out;
      std::memcpy(&out, values.data() + i * 4, 4);
      return out;
    }
  }
}

/// [n, c] plus `shift` as float [strip][c][8][2].
template <int shift>
Tensor pack_of_blocks(const Tensor& plain, ThreadPool* pool) {
  const int64_t n = plain.shape()[0], c = plain.shape()[1];
  Tensor out = packed_like(plain, packed_blocks_bytes(plain.shape()));
  each_strip(n, pool, [&](int64_t strip) {
    for (int64_t block = 0; block < c; ++block)
      for (int row = 0; row < strip_rows && strip * strip_rows + row < n; ++row) {
        const float value = value_at(plain, (strip * strip_rows + row) * c + block) + shift;
        std::memcpy(out.data() + (((strip * c + block) * 8 + row % 8) * 2 + row / 8) * 4, &value, 4);
      }
  });
  return out;
}

}  // namespace

// Signed codes are moved to where unsigned ones are.
int code_shift(DType weights) {
  switch (weights) {
    case DType::i4: return 8;
    case DType::i2: return 2;
    case DType::i8: return 128;
    default: return 0;
  }
}

const PackedLayout* weight_layout(DType dtype) {
  static const PackedLayout plain{halves_name, pack_plain}, u8{"mma u8", pack_codes<8, 8, 0>},
      i8{"mma i8", pack_codes<8, 8, 128>}, u4{"mma u4", pack_codes<4, 4, 0>}, i4{"mma i4", pack_codes<4, 4, 8>},
      u2{"mma u2", pack_codes<2, 4, 0>}, i2{"mma i2", pack_codes<2, 4, 2>};
  switch (dtype) {
    case DType::bf16:
    case DType::f16: return &plain;
    case DType::u8: return &u8;
    case DType::i8: return &i8;
    case DType::u4: return &u4;
    case DType::i4: return &i4;
    case DType::u2: return &u2;
    case DType::i2: return &i2;
    default: return nullptr;
  }
}

const PackedLayout* scale_layout() {
  static const PackedLayout scales{scales_name, pack_of_blocks<0>};
  return &scales;
}

const PackedLayout* zero_layout(DType weights) {
  static const PackedLayout zeros[] = {{zeros_name, pack_of_blocks<0>},
                                       {"mma zeros + 8", pack_of_blocks<8>},
                                       {"mma zeros + 2", pack_of_blocks<2>},
                                       {"mma zeros + 128", pack_of_blocks<128>}};
  switch (code_shift(weights)) {
    case 8: return &zeros[1];
    case 2: return &zeros[2];
    case 128: return &zeros[3];
    default: return &zeros[0];
  }
}

}  // namespace plait::cuda
