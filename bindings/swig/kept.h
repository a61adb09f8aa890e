#pragma once
// Copies of structs that the library fills, with what they point to. An event's pointers belong to the pulling
// thread, and the host may read it on another (Java's virtual threads move between calls); an operand's name belongs
// to its session, which the host may have released.
#include <exception>
#include <string>
#include <vector>

#include "bindings/c/plait.h"

namespace plait_swig {

/// A struct without pointers. Those with pointers need a specialisation, otherwise the wrappers do not compile.
template <class Struct>
struct Kept {
  static constexpr bool points = false;
  Struct filled{};
  void keep() {}
};

/// The tensor's memory, which the host's tensor object keeps.
template <>
struct Kept<plait_view> {
  static constexpr bool points = true;
  plait_view filled{};
  void keep() {}
};

template <>
struct Kept<plait_operand> {
  static constexpr bool points = true;
  plait_operand filled{};
  std::string name;
  void keep() {
    name = filled.name;
    filled.name = name.c_str();
  }
};

/// Reused for each pulled event, so that a token allocates nothing once the buffers have grown.
template <>
struct Kept<plait_event> {
  static constexpr bool points = true;
  plait_event filled{};
  std::string text;
  std::vector<int32_t> top_tokens;
  std::vector<float> top_logprobs, logits;
  void keep() {
    text.assign(filled.text, static_cast<size_t>(filled.text_length));
    top_tokens.assign(filled.top_tokens, filled.top_tokens + filled.top_count);
    top_logprobs.assign(filled.top_logprobs, filled.top_logprobs + filled.top_count);
    logits.assign(filled.logits, filled.logits + filled.logits_count);
    filled.text = text.c_str();
    filled.top_tokens = top_tokens.data();
    filled.top_logprobs = top_logprobs.data();
    filled.logits = logits.data();
  }
};

// The struct is first, so that a pointer to it is a pointer to the whole.
template <class Struct>
Struct* new_struct() {
  return &(new Kept<Struct>)->filled;
}
template <class Struct>
void delete_struct(Struct* filled) {
  delete reinterpret_cast<Kept<Struct>*>(filled);
}
/// Called after the library has filled it. False if there is no memory: the struct is then empty.
template <class Struct>
bool keep(Struct* filled) noexcept {
  try {
    reinterpret_cast<Kept<Struct>*>(filled)->keep();
    return true;
  } catch (const std::exception&) {
    *filled = Struct{};
    return false;
  }
}

}  // namespace plait_swig
