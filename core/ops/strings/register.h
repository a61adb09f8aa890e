#pragma once
// The ops that read strings, for register_ops. Those that move them are with the other families.
#include "core/graph/schema.h"

namespace plait {

void register_strings(OpSet& ops);

}  // namespace plait
