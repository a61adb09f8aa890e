#pragma once
// Fibers as the sanitizers see them. Without sanitizers all of this is nothing.
#include <cstddef>

#if defined(__has_feature)  // clang
#if __has_feature(thread_sanitizer)
#define PLAIT_THREAD_SANITIZED
#elif __has_feature(address_sanitizer)
#define PLAIT_ADDRESS_SANITIZED
#endif
#elif defined(__SANITIZE_THREAD__)
#define PLAIT_THREAD_SANITIZED
#elif defined(__SANITIZE_ADDRESS__)
#define PLAIT_ADDRESS_SANITIZED
#endif

#if defined(PLAIT_THREAD_SANITIZED)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#elif defined(PLAIT_ADDRESS_SANITIZED)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace plait::emulated {

#if defined(PLAIT_THREAD_SANITIZED)
inline constexpr bool thread_sanitized = true;
/// The emulation's own accesses are not the kernel's. Must not be alive when fibers are switched.
struct Quiet {
  Quiet() { AnnotateIgnoreReadsBegin("", 0), AnnotateIgnoreWritesBegin("", 0); }
  ~Quiet() { AnnotateIgnoreReadsEnd("", 0), AnnotateIgnoreWritesEnd("", 0); }
};
inline void acquire(void* address) { __tsan_acquire(address); }
inline void release(void* address) { __tsan_release(address); }
#else
inline constexpr bool thread_sanitized = false;
struct Quiet {
  ~Quiet() {}  // otherwise unused
};
inline void acquire(void*) {}
inline void release(void*) {}
#endif

#if defined(PLAIT_ADDRESS_SANITIZED)
inline constexpr bool address_sanitized = true;
inline void poison(void* from, size_t bytes) { ASAN_POISON_MEMORY_REGION(from, bytes); }
inline void unpoison(void* from, size_t bytes) { ASAN_UNPOISON_MEMORY_REGION(from, bytes); }
#else
inline constexpr bool address_sanitized = false;
inline void poison(void*, size_t) {}
inline void unpoison(void*, size_t) {}
#endif

}  // namespace plait::emulated
