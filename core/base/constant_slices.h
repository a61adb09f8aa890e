#pragma once
#include "core/base/constant.h"

namespace plait {

/// The same constant with its slices as early as they can be: a rank's part of a weight that the file has transposed, in
/// another dtype, or in many tensors, is made of that part alone.
Constant slices_first(Constant constant);

}  // namespace plait
