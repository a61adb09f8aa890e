// The C++ allocator of our shared libraries and programs: the system's, and a small reserve where that refuses.
//
// Some code of the C++ library and of others takes memory where it may not fail: a JSON value takes some to be destroyed, a directory's
// iterator to advance, and a process ends there by std::terminate. Small pieces are lent from a block of this module for as long as the
// system has none; what is large fails as ever, with std::bad_alloc, which is an error of the call. The operators are hidden: a host's are
// its own.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace {

constexpr size_t block_bytes = 1 << 20, most_lent = 16 << 10, line = alignof(std::max_align_t);

alignas(line) std::byte block[block_bytes];
// Bytes that are given away, and how many pieces of them are in use: with the last one all are free again.
std::atomic<size_t> used{0}, lent{0};

bool lends(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(block) < block_bytes;
}

void give_back() noexcept {
  size_t one = 1, before = used.load();
  if (lent.load() == 1 && lent.compare_exchange_strong(one, 0)) used.compare_exchange_strong(before, 0);
  else lent.fetch_sub(1);
}

void* lend(size_t size) noexcept {
  size = (size + line - 1) / line * line;
  lent.fetch_add(1);
  for (size_t begin = used.load(); size <= most_lent && begin + size <= block_bytes;)
    if (used.compare_exchange_weak(begin, begin + size)) return block + begin;
  give_back();
  return nullptr;
}

void* take(size_t size) noexcept {
  if (size == 0) size = 1;
  void* const out = std::malloc(size);
  return out ? out : lend(size);
}

void* taken(size_t size) {
  for (;;) {
    if (void* const out = take(size)) return out;
    const std::new_handler handler = std::get_new_handler();
    if (!handler) throw std::bad_alloc();
    handler();
  }
}

void give(void* pointer) noexcept {
  if (lends(pointer)) give_back();
  else std::free(pointer);
}

}  // namespace

void* operator new(size_t size) { return taken(size); }
void* operator new[](size_t size) { return taken(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return take(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return take(size); }
void operator delete(void* pointer) noexcept { give(pointer); }
void operator delete[](void* pointer) noexcept { give(pointer); }
void operator delete(void* pointer, size_t) noexcept { give(pointer); }
void operator delete[](void* pointer, size_t) noexcept { give(pointer); }
void operator delete(void* pointer, const std::nothrow_t&) noexcept { give(pointer); }
void operator delete[](void* pointer, const std::nothrow_t&) noexcept { give(pointer); }
