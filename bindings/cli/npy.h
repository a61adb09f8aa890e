#pragma once
// NumPy's .npy files (format versions 1 to 3: numpy.lib.format).
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/c/plait.hpp"

namespace plait::cli {

/// The file as a tensor in C order. `expected` is the wanted dtype, or PLAIT_NONE: NumPy has no bf16 and 8-bit
/// floats, so files of void ("<V2") or of unsigned elements of the same size are read as these. Throws
/// std::runtime_error, naming the file.
plait_api::Tensor read_npy(const std::string& path, plait_dtype expected);

/// bf16 and 8-bit floats are written as void elements of their size. Throws std::runtime_error for dtypes below a
/// byte.
void write_npy(const std::string& path, const plait_view& tensor);

}  // namespace plait::cli
