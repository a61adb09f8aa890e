#include "tests/unit/text/allocation_count.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIT_OWN_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define PLAIT_OWN_MALLOC 0
#endif
#endif
#ifndef PLAIT_OWN_MALLOC
#define PLAIT_OWN_MALLOC 1
#endif

namespace {

std::atomic<int64_t> held{0}, peak{0};

#if PLAIT_OWN_MALLOC
void add(void* memory) {
  int64_t now = held += static_cast<int64_t>(malloc_usable_size(memory));
  int64_t most = peak;
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
}

void subtract(void* memory) { held -= static_cast<int64_t>(malloc_usable_size(memory)); }
#endif

}  // namespace

#if PLAIT_OWN_MALLOC
// The program's own malloc, which the dynamic linker prefers; the work is glibc's.
extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t size) {
  void* out = __libc_malloc(size);
  add(out);
  return out;
}

void* calloc(size_t count, size_t size) {
  void* out = __libc_calloc(count, size);
  add(out);
  return out;
}

void* realloc(void* memory, size_t size) {
  subtract(memory);
  void* out = __libc_realloc(memory, size);
  add(out ? out : size ? memory : nullptr);
  return out;
}

void* memalign(size_t alignment, size_t size) {
  void* out = __libc_memalign(alignment, size);
  add(out);
  return out;
}

void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void** out, size_t alignment, size_t size) {
  *out = memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

void free(void* memory) {
  subtract(memory);
  __libc_free(memory);
}

}  // extern "C"
#endif

namespace plait::text_test {

bool counts_allocations() { return PLAIT_OWN_MALLOC; }

void reset_allocation_peak() {
  held = 0;
  peak = 0;
}

int64_t allocation_peak() { return peak; }

}  // namespace plait::text_test
