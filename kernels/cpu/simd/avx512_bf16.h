#pragma once
// Functions between PLAIT_BEGIN_AVX512_BF16 and PLAIT_END_AVX512_BF16 may use AVX-512 and its BF16 instructions;
// callers must check the processor (isa.h). g++ 12's own header initialises "undefined" registers with themselves, so
// those warnings are disabled there.
#include <immintrin.h>

#define PLAIT_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define PLAIT_AVX512_BF16 target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")

// clang-format off
#ifdef __clang__
#define PLAIT_PUSH_TARGET(TARGET) PLAIT_PRAGMA(clang attribute push(__attribute__((TARGET)), apply_to = function))
#define PLAIT_BEGIN_AVX512_BF16 PLAIT_PUSH_TARGET(PLAIT_AVX512_BF16)
#define PLAIT_END_AVX512_BF16 PLAIT_PRAGMA(clang attribute pop)
#else
#define PLAIT_PUSH_TARGET(TARGET) PLAIT_PRAGMA(GCC push_options) PLAIT_PRAGMA(GCC TARGET)
#define PLAIT_BEGIN_AVX512_BF16 \
  PLAIT_PRAGMA(GCC diagnostic push) \
  PLAIT_PRAGMA(GCC diagnostic ignored "-Wuninitialized") \
  PLAIT_PRAGMA(GCC diagnostic ignored "-Wmaybe-uninitialized") \
  PLAIT_PUSH_TARGET(PLAIT_AVX512_BF16)
#define PLAIT_END_AVX512_BF16 \
  PLAIT_PRAGMA(GCC pop_options) \
  PLAIT_PRAGMA(GCC diagnostic pop)
#endif
// clang-format on
