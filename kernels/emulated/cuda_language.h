#pragma once
// CUDA's language for the host's compiler: what kernels use of its words, types and functions. Included by
// kernels/cuda/kernels/device.h; nothing else may use it.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/emulated/kernel_list.h"

// NOLINTBEGIN: these are CUDA's names
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

#define threadIdx (plait::emulated::here().thread)
#define blockIdx  (plait::emulated::here().block)
#define blockDim  (plait::emulated::here().block_size)
#define gridDim   (plait::emulated::here().grid)
#define __restrict__
#define PLAIT_DEVICE inline
/// extern "C" void kernel parameters, which kernels() lists.
#define PLAIT_KERNEL(kernel, threads, blocks, parameters) \
  extern "C" void kernel parameters;                      \
  PLAIT_LIST_KERNEL(kernel, threads)                      \
  extern "C" void kernel parameters
#define PLAIT_SHARED(T, name, count)    \
  static const char name##_is_here = 0; \
  T* const name = static_cast<T*>(plait::emulated::shared_array(&name##_is_here, sizeof(T) * (count)))
#define PLAIT_DYNAMIC_SHARED(T, name) T* const name = static_cast<T*>(plait::emulated::dynamic_shared())

namespace plait::emulated {

template <class T, class From>
T shuffle(const char* name, const Where& where, uint32_t mask, T value, const From& from) {
  return meet_lanes<T>({name, where}, mask, value, [&](const auto& operand, const auto& result) {
    for (int lane = 0; lane < warp_lanes; ++lane)
      if (mask >> lane & 1) *result(lane) = operand(from(lane));
  });
}
}  // namespace plait::emulated

inline void __syncthreads(plait::emulated::Where where = plait::emulated::Where::current()) {
  plait::emulated::meet_block({"__syncthreads", where});
}
inline void __syncwarp(plait::emulated::Where where = plait::emulated::Where::current()) {
  plait::emulated::meet_warp({"__syncwarp", where}, plait::emulated::all_lanes, nullptr, nullptr, true,
                             [](const void* const*, void* const*) {});
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int by, plait::emulated::Where where = plait::emulated::Where::current()) {
  return plait::emulated::shuffle("__shfl_xor_sync", where, mask, value, [by](int lane) { return lane ^ by; });
}
/// `from` is each lane's own.
template <class T>
T __shfl_sync(uint32_t mask, T value, int from, plait::emulated::Where where = plait::emulated::Where::current()) {
  struct Operand {
    T value;
    int from;
  };
  return plait::emulated::meet_lanes<T>({"__shfl_sync", where}, mask, Operand{value, from},
                                        [mask](const auto& operand, const auto& result) {
                                          for (int lane = 0; lane < plait::emulated::warp_lanes; ++lane)
                                            if (mask >> lane & 1)
                                              *result(lane) = operand(operand(lane).from & 31).value;
                                        });
}
inline uint32_t __ballot_sync(uint32_t mask, bool vote,
                              plait::emulated::Where where = plait::emulated::Where::current()) {
  return plait::emulated::meet_lanes<uint32_t>({"__ballot_sync", where}, mask, vote,
                                               [mask](const auto& operand, const auto& result) {
                                                 uint32_t votes = 0;
                                                 for (int lane = 0; lane < plait::emulated::warp_lanes; ++lane)
                                                   if (mask >> lane & 1) votes |= uint32_t{operand(lane)} << lane;
                                                 for (int lane = 0; lane < plait::emulated::warp_lanes; ++lane)
                                                   if (mask >> lane & 1) *result(lane) = votes;
                                               });
}

template <class T>
T atomicAdd(T* at, T value) {
  return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
inline int atomicCAS(int* at, int expected, int value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
inline void __threadfence() { plait::emulated::fence(); }

template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
inline float sinpif(float x) { return static_cast<float>(std::sin(3.14159265358979323846 * static_cast<double>(x))); }
inline float cospif(float x) { return static_cast<float>(std::cos(3.14159265358979323846 * static_cast<double>(x))); }
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __uint_as_float(uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t out;
  memcpy(&out, &value, sizeof out);
  return out;
}
// NOLINTEND
