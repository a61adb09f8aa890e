#include "kernels/emulated/context_switch.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "kernels/emulated/sanitizers.h"

// Stores the callee-saved registers of the System V ABI on the old stack and loads those of the new one.
// NOLINTNEXTLINE(hicpp-no-assembler)
asm(R"(
.text
.type plait_emulated_switch,@function
plait_emulated_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size plait_emulated_switch,.-plait_emulated_switch
)");
extern "C" void plait_emulated_switch(void** from, void* to);

namespace plait::emulated {
namespace {

constexpr size_t page = 4096, stack_size = (thread_sanitized || address_sanitized ? 256 : 64) << 10;
constexpr int saved_registers = 6;

}  // namespace

Context own_context() {
  Context out;
#if defined(PLAIT_THREAD_SANITIZED)
  out.thread_sanitizer = __tsan_get_current_fiber();
#endif
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes)) throw std::bad_alloc();
  void* stack = nullptr;
  pthread_attr_getstack(&attributes, &stack, &out.stack_bytes);
  pthread_attr_destroy(&attributes);
  out.stack = static_cast<std::byte*>(stack);
  return out;
}

void prepare(Context& context, void (*entry)()) {
  auto** top = reinterpret_cast<void**>(context.stack + context.stack_bytes);
  unpoison(top - page / sizeof *top, page);  // frames of what ran there before and never returned
  *--top = nullptr;                          // the entry's return address, which aligns its frame
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < saved_registers; ++i) *--top = nullptr;
  context.stack_pointer = top;
}

#if defined(PLAIT_THREAD_SANITIZED)
__attribute__((no_sanitize("thread")))
#endif
void switch_context(Context& from, Context& to, [[maybe_unused]] bool ends) {
#if defined(PLAIT_THREAD_SANITIZED)
  __tsan_switch_to_fiber(to.thread_sanitizer, 1);  // 1: without an order of memory
#elif defined(PLAIT_ADDRESS_SANITIZED)
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
  plait_emulated_switch(&from.stack_pointer, to.stack_pointer);
#if defined(PLAIT_ADDRESS_SANITIZED)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void entered() {
#if defined(PLAIT_ADDRESS_SANITIZED)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

Stacks::~Stacks() {
  if (!memory_) return;
  unpoison(memory_, bytes_);
  munmap(memory_, bytes_);
}

void Stacks::allocate(size_t count) {
  if (memory_) {
    unpoison(memory_, bytes_);
    munmap(memory_, bytes_);
    memory_ = nullptr;
  }
  bytes_ = count * (page + stack_size);
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  for (size_t i = 0; i < count; ++i)
    if (mprotect(memory_ + i * (page + stack_size), page, PROT_NONE)) throw std::bad_alloc();
}

void Stacks::put(size_t number, Context& context) const {
  context.stack = memory_ + number * (page + stack_size) + page;
  // Tops at one place of their pages would share a few sets of the cache.
  constexpr size_t places = 32, apart = page / places;
  context.stack_bytes = stack_size - number % places * apart;
}

}  // namespace plait::emulated
