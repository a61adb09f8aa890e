#pragma once
// Tensors written on the command line as JSON: numbers, strings, booleans, and lists of such.
#include <string>

#include "bindings/cli/common.h"

namespace plait::cli {

/// Whether the text begins as JSON and names no file.
bool is_json(const std::string& text);
/// Nested lists are dims. Throws UsageError that names `operand` for lists of different lengths, and elements of another type.
plait_api::Tensor tensor_of_json(const std::string& text, plait_dtype dtype, const std::string& operand);

}  // namespace plait::cli
