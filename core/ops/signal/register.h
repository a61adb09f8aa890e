#pragma once
// The families of this folder, for register_ops.
#include "core/graph/schema.h"

namespace plait {

void register_recurrent_layers(OpSet& ops);
void register_transforms(OpSet& ops);
void register_random(OpSet& ops);
void register_ngrams(OpSet& ops);

}  // namespace plait
