#pragma once
// What a fuzzer of this folder is made of: libFuzzer's entry, and the inputs that it starts from.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.h"

/// Runs one input. Aborts when the library breaks its promise about it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace plait::fuzz {

/// Inputs of all kinds that are right; replay.cpp mutates them.
std::vector<std::string> seeds();

/// Inputs so far that went through to the end; replay.cpp sees by it that every seed does.
inline long accepted = 0;
/// Why the last one that did not was refused.
inline std::string refusal;

/// Errors are an answer, but not internal ones, faults of Plait.
inline void check_error(const Error& error) {
  refusal = error.message();
  if (error.code() != Code::internal) return;
  std::fprintf(stderr, "%s\n", error.message().c_str());
  std::abort();
}

}  // namespace plait::fuzz
