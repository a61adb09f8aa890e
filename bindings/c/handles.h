#pragma once
// Handles, which hosts hold instead of pointers.
//
// A handle is a slot of one table and the slot's generation, packed into a pointer's bits. So released handles are
// always recognised, and neither a second release nor a use after it (garbage collected hosts do both) accesses freed
// memory.
#include <cstdint>
#include <memory>
#include <string_view>

#include "bindings/c/edge.h"

namespace plait::c_api {

/// Numbers of kinds are fixed; 11 to 15 are reserved.
enum class Kind : uint8_t {
  options = 1,
  tensor = 2,
  tokenizer = 3,
  model = 4,
  generator = 5,
  request = 6,
  session = 7,
  world = 8,
  trainer = 9,
  mailbox = 10
};

/// The C type of an object type, and its kind: specialised by BIND_HANDLE in bindings/c/objects.h.
template <class Object>
struct HandleOf;

/// Takes a reference to the object. Thread-safe, like all of these.
void* add_handle(Kind kind, std::shared_ptr<void> object);
/// Throws Error(invalid_argument) for NULL and for invalid handles of that kind, Error(closed) if it was released.
std::shared_ptr<void> find_handle(Kind kind, const void* handle);
/// Drops the reference; may destroy the object on this thread. NULL is allowed. Throws like find_handle.
void drop_handle(Kind kind, const void* handle);

template <class Object>
std::shared_ptr<Object> object_of(typename HandleOf<Object>::Type* handle) {
  return std::static_pointer_cast<Object>(find_handle(HandleOf<Object>::kind, handle));
}

/// Null for NULL.
template <class Object>
std::shared_ptr<Object> optional_object_of(typename HandleOf<Object>::Type* handle) {
  return handle ? object_of<Object>(handle) : nullptr;
}

template <class Object>
typename HandleOf<Object>::Type* handle_of(std::shared_ptr<Object> object) {
  return static_cast<typename HandleOf<Object>::Type*>(add_handle(HandleOf<Object>::kind, std::move(object)));
}

/// Runs `make`, which returns a shared_ptr to an object, and returns a handle to it; *out is NULL if it throws.
template <class Handle, class Make>
plait_status create(Handle** out, Make&& make) noexcept {
  if (out) *out = nullptr;
  return guarded([&] {
    required(out, "out");
    *out = handle_of(make());
  });
}

template <class Object>
plait_status release(typename HandleOf<Object>::Type* handle) noexcept {
  return guarded([&] { drop_handle(HandleOf<Object>::kind, handle); });
}

}  // namespace plait::c_api
