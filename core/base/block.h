#pragma once
// Blocks of tensors: a rank's part of a tensor whose dimensions are cut.
#include "core/base/tensor.h"

namespace plait {

/// Copies the block of `whole` at index `begin`, of the shape of `part`, to `part`. Elements are of whole bytes.
void take_block(const TensorView& whole, const Shape& begin, const TensorView& part);
/// Copies `part` to that block of `whole`.
void put_block(const TensorView& whole, const Shape& begin, const TensorView& part);

/// The same where only one dim is cut.
void take_block(const TensorView& whole, int dim, int64_t begin, const TensorView& part);
void put_block(const TensorView& whole, int dim, int64_t begin, const TensorView& part);

}  // namespace plait
