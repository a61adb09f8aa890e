#pragma once
// Parts that a library can be built without: bindings/absent has the functions that answer in their place.
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace plait {

/// The hint of errors about what a part has. `option`: CMake's, "PLAIT_QUANTIZE".
inline std::string part_hint(std::string_view option) {
  return "build it with -D" + std::string(option) + "=ON, as ./run build does";
}

/// Error(unsupported). `what`: the part in words, "the server".
inline Error without_part(std::string_view what, std::string_view option) {
  return Error(Code::unsupported, "this library was built without " + std::string(what), part_hint(option));
}

}  // namespace plait
