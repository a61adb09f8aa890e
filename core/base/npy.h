#pragma once
// Arrays in NumPy's .npy files (numpy.lib.format, versions 1 to 3).
#include <memory>
#include <string>

#include "core/base/tensor.h"

namespace plait {

/// Whether the bytes have the magic of an .npy file.
bool is_npy(const Blob& blob);

/// The array in C order: a view into `blob`, or a copy if it is in Fortran's order or not aligned. NumPy has no bf16 and no 8-bit
/// floats: elements of void ("<V2") or unsigned ones are read as those if `expected` is one of the same size. Throws Error without the
/// file's name: bad_model (damaged), unsupported (elements that are no little-endian numbers, more dimensions than Shape::max_rank).
/// Strings of characters ("<U5") or bytes ("|S5") become packed ones (core/base/strings.h), in UTF-8.
Tensor read_npy(std::shared_ptr<const Blob> blob, DType expected = DType::none);

/// The bytes before the elements of such a file, in version 1. bf16 and 8-bit floats are written as void elements of their size. Throws
/// Error(unsupported) for dtypes below a byte.
std::string npy_header(DType dtype, const Shape& shape);

/// The whole file of packed strings, "<U5" for up to 5 characters. Throws Error: unsupported for a string that is no UTF-8 or ends with a
/// zero byte, out_of_memory if the file were larger than 4 GB, as it gives each string the size of the longest.
std::string npy_of_strings(const TensorView& packed);

}  // namespace plait
