#pragma once
// Calls of the Rust crate: its errors as exceptions, its memory as strings. Internal to core/text.
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/text/rust_abi.h"

namespace plait::text_abi {

inline plait_text_view view(std::string_view text) { return {text.data(), text.size()}; }

/// Throws what a call of the crate reported.
inline void check(int32_t status, plait_text_error& error) {
  if (status == 0) return;
  std::string message(error.message.data, error.message.size);
  plait_text_bytes_free(error.message);
  throw Error(static_cast<Code>(status), std::move(message), std::string(error.hint.data, error.hint.size));
}

/// Runs call(&error), which may set it.
template <class Call>
void run(Call call) {
  plait_text_error error{};
  check(call(&error), error);
}

/// Runs call(&bytes, &error), which sets one of the two.
template <class Call>
std::string take_text(Call call) {
  plait_text_bytes bytes{};
  plait_text_error error{};
  check(call(&bytes, &error), error);
  std::unique_ptr<plait_text_bytes, void (*)(plait_text_bytes*)> owner(
      &bytes, [](plait_text_bytes* owned) { plait_text_bytes_free(*owned); });
  return std::string(bytes.data, bytes.size);
}

}  // namespace plait::text_abi
