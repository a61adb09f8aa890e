#pragma once
// Functions that are compiled for several processors.

/// Before a function with a plain loop: it is compiled for AVX-512 and AVX2 as well, and the processor's is taken when the library is
/// loaded. All must give the same results: no sums or products of floats.
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__ELF__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define PLAIT_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PLAIT_CLONES
#endif
