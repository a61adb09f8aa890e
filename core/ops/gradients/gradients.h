#pragma once
// Gradients of ops: one registration function per family, for register_ops. Each adds to existing rows.
#include "core/graph/schema.h"

namespace plait {

void register_arithmetic_gradients(OpSet& ops);
void register_attention_gradients(OpSet& ops);
void register_image_gradients(OpSet& ops);
void register_index_gradients(OpSet& ops);
void register_layer_gradients(OpSet& ops);
void register_layout_gradients(OpSet& ops);
void register_linear_gradients(OpSet& ops);
void register_reduction_gradients(OpSet& ops);
void register_unary_gradients(OpSet& ops);

}  // namespace plait
