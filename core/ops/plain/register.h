#pragma once
// The families of ops that graphs have that are no decoder: a part that a library can be built without (PLAIT_PLAIN).
#include "core/graph/schema.h"

namespace plait {

/// Images, signals, strings, classical models.
void register_plain_ops(OpSet& ops);

}  // namespace plait
