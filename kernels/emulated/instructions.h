#pragma once
// What the instructions of kernels/cuda/kernels/ptx.h do (PTX ISA 9.0), where each is documented.
#include <chrono>
#include <string>
#include <thread>

#include "core/base/dtype.h"
#include "kernels/emulated/cuda_language.h"

struct Fragment {
  uint32_t r[4];
};
struct Sums {
  float c[4];
};

inline float bf16_low(uint32_t two) { return __uint_as_float(two << 16); }
inline float bf16_high(uint32_t two) { return __uint_as_float(two & 0xffff0000U); }
/// To the nearest, ties to even; not-a-number becomes the quiet one of cvt.
inline uint32_t round_bf16(float value) {
  if (value != value) return 0x7fff;
  const uint32_t bits = __float_as_uint(value);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline uint32_t pack_bf16(float low, float high) { return round_bf16(low) | round_bf16(high) << 16; }
inline float f16_to_float(uint16_t half) { return plait::to_float(plait::Float16{half}); }
inline uint32_t round_f16(float value) { return plait::to_float16(value).bits; }
inline float f16_low(uint32_t two) { return f16_to_float(static_cast<uint16_t>(two)); }
inline float f16_high(uint32_t two) { return f16_to_float(static_cast<uint16_t>(two >> 16)); }
inline uint32_t pack_f16(float low, float high) { return round_f16(low) | round_f16(high) << 16; }
inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> 4 * i & 7;
    out |= ((from < 4 ? a >> 8 * from : b >> 8 * (from - 4)) & 0xff) << 8 * i;
  }
  return out;
}
inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) { return (a & mask) | bits; }

namespace plait::emulated {

inline void require_aligned(const void* address, const char* what) {
  if (reinterpret_cast<uintptr_t>(address) % 16)
    fail(std::string(what) + " of an address that is not aligned to 16 bytes");
}

/// The product of a warp. As on the chip, sums of a k of 16 are exact up to f32's rounding, in an order of their own.
template <float (*low)(uint32_t), float (*high)(uint32_t)>
Sums mma(const char* name, const Where& where, const Sums& sums, const Fragment& a, uint32_t b0, uint32_t b1) {
  struct Operand {
    const Sums* sums;
    const Fragment* a;
    uint32_t b[2];
  };
  return meet_lanes<Sums>({name, where}, all_lanes, Operand{&sums, &a, {b0, b1}},
                          [](const auto& operand, const auto& result) {
                            alignas(32) float wide_a[16][16], wide_b[16][8];
                            for (int lane = 0; lane < warp_lanes; ++lane) {
                              const Operand& of = operand(lane);
                              const int g = lane / 4, t = lane % 4;
                              for (int i = 0; i < 4; ++i) {
                                float* const to = &wide_a[g + i % 2 * 8][2 * t + i / 2 * 8];
                                to[0] = low(of.a->r[i]), to[1] = high(of.a->r[i]);
                              }
                              for (int i = 0; i < 2; ++i)
                                wide_b[2 * t + 8 * i][g] = low(of.b[i]), wide_b[2 * t + 8 * i + 1][g] = high(of.b[i]);
                            }
                            using Row = float __attribute__((vector_size(32)));
                            for (int row = 0; row < 16; ++row) {
                              Row even{}, odd{};
                              for (int k = 0; k < 16; k += 2) {
                                even += wide_a[row][k] * *reinterpret_cast<const Row*>(wide_b[k]);
                                odd += wide_a[row][k + 1] * *reinterpret_cast<const Row*>(wide_b[k + 1]);
                              }
                              const Row sum = even + odd;
                              for (int column = 0; column < 8; ++column) {
                                const int lane = row % 8 * 4 + column / 2, i = row / 8 * 2 + column % 2;
                                result(lane)->c[i] = operand(lane).sums->c[i] + sum[column];
                              }
                            }
                          });
}

inline Fragment matrices(const char* name, const Where& where, const void* row, bool transposed) {
  require_aligned(row, name);
  return meet_lanes<Fragment>({name, where}, all_lanes, row, [transposed](const auto& operand, const auto& result) {
    for (int lane = 0; lane < warp_lanes; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix) {
        const int g = lane / 4, t = lane % 4;
        uint16_t two[2];
        for (int i = 0; i < 2; ++i) {
          const int from = transposed ? 2 * t + i : g, at = transposed ? g : 2 * t + i;
          memcpy(&two[i], static_cast<const uint16_t*>(operand(matrix * 8 + from)) + at, 2);
        }
        result(lane)->r[matrix] = two[0] | static_cast<uint32_t>(two[1]) << 16;
      }
  });
}

}  // namespace plait::emulated

inline uint4 load_once(const void* from) {
  plait::emulated::require_aligned(from, "a load of 16 bytes");
  uint4 out;
  memcpy(&out, from, sizeof out);
  return out;
}
inline void mma_bf16(Sums& sums, const Fragment& a, uint32_t b0, uint32_t b1,
                     plait::emulated::Where where = plait::emulated::Where::current()) {
  sums = plait::emulated::mma<bf16_low, bf16_high>("mma_bf16", where, sums, a, b0, b1);
}
inline void mma_f16(Sums& sums, const Fragment& a, uint32_t b0, uint32_t b1,
                    plait::emulated::Where where = plait::emulated::Where::current()) {
  sums = plait::emulated::mma<f16_low, f16_high>("mma_f16", where, sums, a, b0, b1);
}
inline Sums product_bf16(const Fragment& a, uint32_t b0, uint32_t b1,
                         plait::emulated::Where where = plait::emulated::Where::current()) {
  return plait::emulated::mma<bf16_low, bf16_high>("product_bf16", where, {{0, 0, 0, 0}}, a, b0, b1);
}
inline Sums product_f16(const Fragment& a, uint32_t b0, uint32_t b1,
                        plait::emulated::Where where = plait::emulated::Where::current()) {
  return plait::emulated::mma<f16_low, f16_high>("product_f16", where, {{0, 0, 0, 0}}, a, b0, b1);
}
inline Fragment load_matrices(const void* row, plait::emulated::Where where = plait::emulated::Where::current()) {
  return plait::emulated::matrices("load_matrices", where, row, false);
}
inline Fragment load_matrices_transposed(const void* row,
                                         plait::emulated::Where where = plait::emulated::Where::current()) {
  return plait::emulated::matrices("load_matrices_transposed", where, row, true);
}
inline void copy_async(void* to, const void* from, bool present) {
  plait::emulated::require_aligned(to, "cp.async");
  plait::emulated::require_aligned(from, "cp.async");
  plait::emulated::copy_async(to, from, present ? 16 : 0);
}
inline void copy_commit() { plait::emulated::copy_commit(); }
template <int left>
void copy_wait() {
  plait::emulated::copy_wait(left);
}
inline void store_flagged(uint64_t* to, uint32_t word, uint32_t flag) {
  __atomic_store_n(to, uint64_t{flag} << 32 | word, __ATOMIC_RELAXED);
}
namespace plait::emulated {
/// Waits as a kernel does for another device, which has a thread of its own, so that this one may keep its. False: stopped. A chip would
/// wait without a limit.
template <class There>
bool spin(const char* name, uint32_t flag, const int32_t* stop, const There& there) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (;;) {
    if (std::chrono::steady_clock::now() > end) fail(std::string(name) + " waits for flag " + std::to_string(flag));
    if (there()) return true;
    if (__atomic_load_n(stop, __ATOMIC_RELAXED)) return false;
    std::this_thread::yield();
  }
}
}  // namespace plait::emulated
inline bool spin_until(const uint64_t* at, uint32_t flag, const int32_t* stop, uint32_t& word) {
  return plait::emulated::spin("spin_until", flag, stop, [&] {
    const uint64_t pair = __atomic_load_n(at, __ATOMIC_RELAXED);
    word = static_cast<uint32_t>(pair);
    return pair >> 32 == flag;
  });
}
inline void raise_flag(uint32_t* at, uint32_t flag) { __atomic_store_n(at, flag, __ATOMIC_RELEASE); }
inline bool wait_for_flag(const uint32_t* at, uint32_t flag, const int32_t* stop) {
  return plait::emulated::spin("wait_for_flag", flag, stop,
                               [&] { return __atomic_load_n(at, __ATOMIC_ACQUIRE) == flag; });
}
