#pragma once
// AMX's tiles of bf16 numbers and of 8-bit ones, and an emulation for tests on other processors.
#include <cstdint>
#include <cstring>

#include "core/base/dtype.h"

namespace plait::cpu {

constexpr int64_t tile_rows = 16, tile_depth = 32, tile_bytes = 1024;  ///< a tile is 16 rows of 64 bytes

/// The instructions, as inline assembly: g++ 12's intrinsics do not declare all the memory that they read.
struct AmxTiles {
  struct alignas(64) Config {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  };
  AmxTiles() {
    const Config config;
    __asm__ volatile("ldtilecfg %0" : : "m"(config) : "memory");
  }
  ~AmxTiles() { __asm__ volatile("tilerelease" : : : "memory"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  template <int T>
  void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(T));
  }
  template <int T>
  void load(const void* from, int64_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
  }
  template <int T>
  void store(void* to, int64_t stride = 64) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
  }
  template <int SUM, int A, int B>
  void dot() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUM), "i"(A), "i"(B));
  }
  /// Signed numbers of A by unsigned ones of B, four at a time.
  template <int SUM, int A, int B>
  void dot_codes() {
    __asm__ volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(SUM), "i"(A), "i"(B));
  }
};

/// Emulates the instructions (Intel's Software Developer's Manual, TDPBF16PS and TDPBSUD), except for flushing subnormals: even
/// and odd k are summed separately, added, and then added to the tile. (They use fma; a product of two bf16 numbers
/// is exact in f32, so a product and a sum are the same.)
struct EmulatedAmxTiles {
  alignas(64) uint8_t tiles[8][tile_bytes];

  template <int T>
  void zero() {
    memset(tiles[T], 0, tile_bytes);
  }
  template <int T>
  void load(const void* from, int64_t stride) {
    for (int64_t i = 0; i < tile_rows; ++i)
      memcpy(tiles[T] + i * 64, static_cast<const uint8_t*>(from) + i * stride, 64);
  }
  template <int T>
  void store(void* to, int64_t stride = 64) {
    for (int64_t i = 0; i < tile_rows; ++i) memcpy(static_cast<uint8_t*>(to) + i * stride, tiles[T] + i * 64, 64);
  }
  template <int SUM, int A, int B>
  void dot() {
    auto* sums = reinterpret_cast<float*>(tiles[SUM]);
    auto number = [&](int tile, int64_t i) {
      BFloat16 out;
      memcpy(&out, tiles[tile] + i * 2, sizeof out);
      return to_float(out);
    };
    for (int64_t i = 0; i < tile_rows; ++i)
      for (int64_t j = 0; j < 16; ++j) {
        float even = 0, odd = 0;
        for (int64_t k = 0; k < 16; ++k) {
          even += number(A, i * 32 + 2 * k) * number(B, k * 32 + 2 * j);
          odd += number(A, i * 32 + 2 * k + 1) * number(B, k * 32 + 2 * j + 1);
        }
        sums[i * 16 + j] += even + odd;
      }
  }
  template <int SUM, int A, int B>
  void dot_codes() {
    for (int64_t i = 0; i < tile_rows; ++i)
      for (int64_t j = 0; j < 16; ++j) {
        int32_t sum;
        memcpy(&sum, tiles[SUM] + i * 64 + j * 4, 4);
        for (int64_t k = 0; k < 64; ++k)
          sum += static_cast<int8_t>(tiles[A][i * 64 + k]) * tiles[B][k / 4 * 64 + j * 4 + k % 4];
        memcpy(tiles[SUM] + i * 64 + j * 4, &sum, 4);
      }
  }
};

}  // namespace plait::cpu
