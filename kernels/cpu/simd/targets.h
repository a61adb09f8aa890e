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
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)

/// Guards per-target code.
#define PLAIT_SIMD (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
