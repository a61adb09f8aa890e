#pragma once
// Errors: the fault, its place, and a hint for the reader.
//
// Inside the library an error is an exception of type Error. It is caught in two places only: at the C edge
// (bindings/c) and in a rank's loop. Kernels do not throw (core/exec/kernel.h).
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace plait {

/// The numbers are those of plait_status in bindings/c/plait.h: stable; additions at the end only.
enum class Code : int32_t {
  ok = 0,
  invalid_argument = 1,  ///< the caller passed something that can never work
  not_found = 2,         ///< a file, tensor or option of that name does not exist
  bad_model = 3,         ///< the model file breaks the format's rules
  unsupported = 4,       ///< valid, but not supported by Plait
  out_of_memory = 5,     ///< a budget that the caller gave, or the machine's memory, does not suffice
  overloaded = 6,        ///< the queue is full; try again later
  cancelled = 7,
  timeout = 8,    ///< nothing happened in the time given; the call may be repeated
  io = 9,         ///< the operating system refused to read or write
  numeric = 10,   ///< NaN where numbers were needed
  closed = 11,    ///< the object was released or shut down
  internal = 12,  ///< a fault of Plait itself
};

/// The name of a code in messages: "invalid_argument".
std::string_view code_name(Code code);

/// `message`: fault and place (node name, op, field, expected and got); `hint`: what to change. Both are UTF-8 with
/// text from files escaped (see `quote`).
class Error : public std::exception {
 public:
  Error(Code code, std::string message, std::string hint = {})
      : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& hint() const { return hint_; }
  const char* what() const noexcept override { return message_.c_str(); }

  /// The same error with `where` and ": " prefixed to the message.
  Error at(std::string_view where) const;

 private:
  Code code_;
  std::string message_;
  std::string hint_;
};

/// An internal fault, never reachable by bad input.
[[noreturn]] void fail_internal(const char* file, int line, const char* condition);

#define PLAIT_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::plait::fail_internal(__FILE__, __LINE__, #condition))

}  // namespace plait
