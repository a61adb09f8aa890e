#pragma once
// The C edge: no exception leaves the library, every error becomes a status and a message of the calling thread.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <span>
#include <string>
#include <string_view>

#include "bindings/c/plait.h"
#include "core/base/error.h"
#include "core/base/function_ref.h"
#include "core/base/text.h"

namespace plait::c_api {

/// Runs `body`; converts exceptions to the status and this thread's last error and hint. Never throws.
plait_status guarded(FunctionRef<void()> body) noexcept;

/// Sets this thread's last error and hint, and returns the status.
plait_status fail(plait_status status, const char* message, const char* hint) noexcept;
/// This thread's last error and hint.
const char* last_error() noexcept;
const char* last_hint() noexcept;

/// Throws Error(invalid_argument) that names the parameter.
template <class T>
T* required(T* pointer, std::string_view parameter) {
  if (!pointer) throw Error(Code::invalid_argument, cat("parameter ", parameter, " is NULL"));
  return pointer;
}

/// A text of the host; length -1: up to the first NUL.
inline std::string_view text_of(const char* text, int64_t length, std::string_view parameter) {
  if (length == 0 && !text) return {};
  required(text, parameter);
  if (length < -1) throw Error(Code::invalid_argument, cat("the length of ", parameter, " is ", length));
  return length < 0 ? std::string_view(text) : std::string_view(text, static_cast<size_t>(length));
}

/// An array of the host, which may be NULL when it is empty.
template <class T>
std::span<const T> span_of(const T* data, int64_t count, std::string_view parameter) {
  if (count < 0) throw Error(Code::invalid_argument, cat("the count of ", parameter, " is ", count));
  if (count > 0) required(data, parameter);
  return {data, static_cast<size_t>(count)};
}

/// Milliseconds from the host: negative is no limit; so is a century, so that no clock overflows.
inline std::chrono::milliseconds timeout_of(int64_t timeout_ms) {
  constexpr int64_t century = int64_t{100} * 365 * 24 * 3600 * 1000;
  return std::chrono::milliseconds(timeout_ms > century ? century : timeout_ms);
}

/// Waits for a std::future; false on timeout.
template <class Future>
bool wait_for(const Future& future, int64_t timeout_ms) {
  if (timeout_ms < 0) {
    future.wait();
    return true;
  }
  return future.wait_for(timeout_of(timeout_ms)) == std::future_status::ready;
}

/// Fills a host's struct, which may be from an older or newer header: `filled` is ours, `first_size` is the struct's
/// size in its first version.
template <class Struct>
void fill(Struct* out, Struct filled, size_t first_size = sizeof(Struct)) {
  required(out, "out");
  int64_t size = out->struct_size;
  if (size < static_cast<int64_t>(first_size)) {
    throw Error(Code::invalid_argument, cat("struct_size is ", size, ", expected at least ", first_size),
                "set struct_size to sizeof the struct before the call");
  }
  filled.struct_size = size;
  std::memcpy(out, &filled, std::min(static_cast<size_t>(size), sizeof(Struct)));
}

}  // namespace plait::c_api
