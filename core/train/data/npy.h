#pragma once
// Token ids from NumPy's .npy files (numpy.lib.format, versions 1 to 3).
#include <string>

#include "core/base/tensor.h"

namespace plait {

/// Whether the bytes have the magic of an .npy file.
bool is_npy(const Blob& blob);

/// The array of int32 or int64 in C order, as a view into `blob`. Throws Error without the file's name: bad_model
/// (damaged), unsupported (other elements, Fortran order, more dimensions than Shape::max_rank).
Tensor read_npy(std::shared_ptr<const Blob> blob);

}  // namespace plait
