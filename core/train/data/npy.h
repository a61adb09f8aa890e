#pragma once
// Token ids from NumPy's .npy files (numpy.lib.format, versions 1 to 3).
#include <string>

#include "core/base/tensor.h"

namespace plait {

/// Whether the bytes begin like an .npy file.
bool is_npy(const Blob& blob);

/// The array of int32 or int64 in C order, where it lies in `blob`, i32 or i64. Throws Error: bad_model (damaged),
/// unsupported (other elements, Fortran's order, more dimensions than Shape::max_rank), without the file's name.
Tensor read_npy(std::shared_ptr<const Blob> blob);

}  // namespace plait
