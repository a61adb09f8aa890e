#include "kernels/cuda/packed_arrays.h"

#include "kernels/cuda/kernels/linear.h"

namespace plait::cuda {

int64_t packed_halves_bytes(const Shape& shape) {
  constexpr int64_t unit_bytes = 2 * lanes * 16;
  return ceil_div(shape[0], strip_rows) * units_of(shape[1]) * unit_bytes;
}

int64_t packed_codes_bytes(const Shape& shape, int bits) {
  constexpr int64_t group_bytes = lanes * 16;
  const int64_t units = shape[1] * (int64_t{1} << block_shift_of(shape[2]));
  return ceil_div(shape[0], strip_rows) * (bits == 8 ? units : ceil_div(units, 2)) * group_bytes;
}

int64_t packed_blocks_bytes(const Shape& shape) {
  return ceil_div(shape[0], strip_rows) * shape[1] * strip_rows * static_cast<int64_t>(sizeof(float));
}

int64_t packed_array_bytes(std::string_view layout, DType dtype, const Shape& shape) {
  if (layout == halves_name) return packed_halves_bytes(shape);
  if (layout.starts_with(scales_name) || layout.starts_with(zeros_name)) return packed_blocks_bytes(shape);
  if (layout.starts_with("mma ")) return packed_codes_bytes(shape, dtype_bits(dtype) == 8 ? 8 : 4);
  return packed_bytes(shape.elements(), dtype_bits(dtype));
}

}  // namespace plait::cuda
