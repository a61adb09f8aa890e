#pragma once
// Stacks of a host thread: its own and those of fibers.
#include <cstddef>

namespace plait::emulated {

/// A stack, and where it was left.
struct Context {
  void* stack_pointer = nullptr;
  std::byte* stack = nullptr;  ///< lowest byte
  size_t stack_bytes = 0;
  void* thread_sanitizer = nullptr;  ///< its fiber
  void* fake_stack = nullptr;        ///< AddressSanitizer's
};

/// The context of the calling thread.
Context own_context();

/// A context that calls `entry` once it is switched to; `entry` must not return.
void prepare(Context& context, void (*entry)());

/// Continues `to`; returns when something switches back to `from`. `ends`: nothing ever does.
void switch_context(Context& from, Context& to, bool ends = false);
/// Called first in an entry.
void entered();

/// `count` stacks, each above a page that cannot be accessed.
class Stacks {
 public:
  Stacks() = default;
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  void allocate(size_t count);
  void put(size_t number, Context& context) const;

 private:
  std::byte* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace plait::emulated
