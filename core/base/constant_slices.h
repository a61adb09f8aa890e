#pragma once
#include "core/base/constant.h"

namespace plait {

/// Moves slices as early as possible, so that a rank's part of a weight that is transposed, cast or stacked in the
/// file is made from that part only.
Constant slices_first(Constant constant);

}  // namespace plait
