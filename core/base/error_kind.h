#pragma once
// What an error is about, for code that tries one thing and then another.
#include "core/base/error.h"

namespace plait {

/// Whether an error is about what was given: a file, a graph, an argument. What tries may then try something else; errors of the machine
/// (no memory, a file that cannot be read now), of time and of cancellation are not, and are
/// passed on.
constexpr bool is_about_input(Code code) {
  return code == Code::bad_model || code == Code::unsupported || code == Code::invalid_argument || code == Code::numeric;
}

}  // namespace plait
