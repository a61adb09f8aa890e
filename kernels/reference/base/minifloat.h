#pragma once
// The float formats of 8 bits and fewer, all described by one row each. Sources: OCP 8-bit Floating Point
// Specification 1.0 (E4M3FN, E5M2), OCP Microscaling Formats 1.0 (E2M1, E8M0), ONNX "Float stored in 8 bits" (the
// FNUZ pair).
#include "core/base/dtype.h"

namespace plait::reference {

bool is_minifloat(DType dtype);

/// Rounding of f8e8m0, which has only powers of two; other formats round to nearest, ties to even.
enum class PowerRounding { up, down, nearest };

double decode_minifloat(DType dtype, uint8_t bits);

/// With `saturate`, numbers beyond the largest finite one become that number; without, infinity if the format has
/// one, otherwise NaN. (f4e2m1 has neither: it always saturates, and a NaN becomes -0, as in ONNX's test data.)
uint8_t encode_minifloat(DType dtype, double value, bool saturate, PowerRounding rounding = PowerRounding::up);

}  // namespace plait::reference
