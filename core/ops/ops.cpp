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
  register_claims(ops);
  register_own_claims(ops);
  register_gradients(ops);
}

}  // namespace plait
