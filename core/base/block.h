#pragma once
// Blocks of tensors: what a rank holds of a tensor whose dimensions are cut.
#include "core/base/tensor.h"

namespace plait {

/// `part` becomes what `whole` has from the indices `begin` on, as long in each dim as `part` is. Elements of whole bytes.
void take_block(const TensorView& whole, const Shape& begin, const TensorView& part);
/// The way back.
void put_block(const TensorView& whole, const Shape& begin, const TensorView& part);

/// The same where one dim alone is cut.
void take_block(const TensorView& whole, int dim, int64_t begin, const TensorView& part);
void put_block(const TensorView& whole, int dim, int64_t begin, const TensorView& part);

}  // namespace plait
