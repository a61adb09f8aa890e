#pragma once
// Settings of Google Highway, to be included before any of its headers.
//
// A file of per-target code is compiled once for AVX2 and once for AVX-512 by Highway's foreach_target, under a
// target pragma, so that no file needs -march. Code between HWY_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE only uses
// plain pointers: an inline function of the standard library that is first used there could be emitted with AVX-512
// instructions and then be chosen by the linker for all callers.

// Highway's debug checks call its compiled part, which Plait does not link.
#define HWY_IS_DEBUG_BUILD 0
// Only AVX2 and AVX-512 (Highway's AVX3) are used; the static target (the compiler's baseline) is always compiled too
// and left empty.
//
// PLAIT_OF_ISA(isa, name): what a file defines under that name for AVX2, or for all higher instruction sets. PLAIT_ONLY_AVX2 (CMake's
// PLAIT_ISAS=native where there is no AVX-512) leaves out what is never called there.
#ifdef PLAIT_ONLY_AVX2
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_AVX3)
#define PLAIT_OF_ISA(isa, name) (static_cast<void>(isa), N_AVX2::name)
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#define PLAIT_OF_ISA(isa, name) (isa == Isa::avx2 ? N_AVX2::name : N_AVX3::name)
#endif

/// Guards per-target code.
#define PLAIT_SIMD (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
