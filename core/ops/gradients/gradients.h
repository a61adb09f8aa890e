#pragma once
// Gradients of ops: one registration function per family. Each adds to existing rows. The folder is a part that a library can be built
// without (PLAIT_TRAIN).
#include <string_view>
#include <utility>

#include "core/graph/schema.h"

namespace plait {

/// For a node with a single attribute.
inline Attributes one_attribute(std::string_view name, Attribute value) {
  Attributes out;
  out.set(std::string(name), std::move(value));
  return out;
}

/// All of them, after all rows.
void register_gradients(OpSet& ops);

void register_arithmetic_gradients(OpSet& ops);
void register_attention_gradients(OpSet& ops);
void register_control_gradients(OpSet& ops);
void register_image_gradients(OpSet& ops);
void register_index_gradients(OpSet& ops);
void register_layer_gradients(OpSet& ops);
void register_layout_gradients(OpSet& ops);
void register_linear_gradients(OpSet& ops);
void register_reduction_gradients(OpSet& ops);
void register_sampling_gradients(OpSet& ops);
void register_sequence_gradients(OpSet& ops);
void register_signal_gradients(OpSet& ops);
void register_unary_gradients(OpSet& ops);

}  // namespace plait
