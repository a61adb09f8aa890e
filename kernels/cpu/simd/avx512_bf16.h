#pragma once
// Functions between PLAIT_BEGIN_AVX512_BF16 and PLAIT_END_AVX512_BF16 may use AVX-512 and its BF16 instructions, between
// PLAIT_BEGIN_AVX512_VNNI and PLAIT_END_AVX512_VNNI those of VNNI, which every processor with BF16 has, too;
// callers must check the processor (isa.h). g++ 12's own header initialises "undefined" registers with themselves, so
// those warnings are disabled there.
#include <immintrin.h>

#define PLAIT_PRAGMA(...) _Pragma(#__VA_ARGS__)
#define PLAIT_AVX512_BF16 target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")
#define PLAIT_AVX512_VNNI target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")

// clang-format off
#ifdef __clang__
#define PLAIT_PUSH_TARGET(TARGET) PLAIT_PRAGMA(clang attribute push(__attribute__((TARGET)), apply_to = function))
#define PLAIT_BEGIN_AVX512(TARGET) PLAIT_PUSH_TARGET(TARGET)
#define PLAIT_END_AVX512 PLAIT_PRAGMA(clang attribute pop)
#else
#define PLAIT_PUSH_TARGET(TARGET) PLAIT_PRAGMA(GCC push_options) PLAIT_PRAGMA(GCC TARGET)
#define PLAIT_BEGIN_AVX512(TARGET) \
  PLAIT_PRAGMA(GCC diagnostic push) \
  PLAIT_PRAGMA(GCC diagnostic ignored "-Wuninitialized") \
  PLAIT_PRAGMA(GCC diagnostic ignored "-Wmaybe-uninitialized") \
  PLAIT_PUSH_TARGET(TARGET)
#define PLAIT_END_AVX512 \
  PLAIT_PRAGMA(GCC pop_options) \
  PLAIT_PRAGMA(GCC diagnostic pop)
#endif
#define PLAIT_BEGIN_AVX512_BF16 PLAIT_BEGIN_AVX512(PLAIT_AVX512_BF16)
#define PLAIT_END_AVX512_BF16 PLAIT_END_AVX512
#define PLAIT_BEGIN_AVX512_VNNI PLAIT_BEGIN_AVX512(PLAIT_AVX512_VNNI)
#define PLAIT_END_AVX512_VNNI PLAIT_END_AVX512
// clang-format on
