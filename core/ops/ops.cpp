#include "core/ops/ops.h"

#include "core/ops/families.h"
#include "core/ops/gradients/gradients.h"
#include "core/ops/plain/register.h"

namespace plait {

void register_ops(OpSet& ops) {
  for (auto family : {register_unary,
                      register_binary,
                      register_cast,
                      register_reshape,
                      register_layout,
                      register_slices,
                      register_gather,
                      register_scatter,
                      register_generators,
                      register_masks,
                      register_reductions,
                      register_matmul,
                      register_einsum,
                      register_normalization,
                      register_attention,
                      register_experts,
                      register_quantization,
                      register_recurrent,
                      register_control,
                      register_sequences,
                      register_plait,
                      register_collectives,
                      register_microsoft,
                      register_microsoft_attention,
                      register_microsoft_quantized,
                      register_microsoft_read_as,
                      register_packed_attention,
                      register_packed_recurrent,
                      register_training,
                      register_cross_entropy,
                      register_optimizers,
                      register_plain_ops})
    family(ops);
  for (auto additions : {register_claims, register_own_claims, register_arithmetic_gradients,
                         register_attention_gradients, register_control_gradients, register_image_gradients,
                         register_index_gradients, register_layer_gradients, register_layout_gradients,
                         register_linear_gradients, register_reduction_gradients, register_sampling_gradients,
                         register_sequence_gradients, register_signal_gradients, register_unary_gradients})
    additions(ops);
}

}  // namespace plait
