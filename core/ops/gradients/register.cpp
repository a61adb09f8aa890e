#include "core/ops/gradients/gradients.h"

namespace plait {

void register_gradients(OpSet& ops) {
  for (auto family : {register_arithmetic_gradients,
                      register_attention_gradients,
                      register_control_gradients,
                      register_image_gradients,
                      register_index_gradients,
                      register_layer_gradients,
                      register_layout_gradients,
                      register_linear_gradients,
                      register_reduction_gradients,
                      register_sampling_gradients,
                      register_sequence_gradients,
                      register_signal_gradients,
                      register_unary_gradients})
    family(ops);
}

}  // namespace plait
