#pragma once
// The families of this folder, for register_ops.
#include "core/graph/schema.h"

namespace plait {

void register_convolution(OpSet& ops);
void register_pooling(OpSet& ops);
void register_resize(OpSet& ops);
void register_boxes(OpSet& ops);
void register_channels_last(OpSet& ops);
void register_windows_back(OpSet& ops);

}  // namespace plait
