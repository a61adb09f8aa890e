#pragma once
// One registration function per family, for register_ops.
#include "core/graph/schema.h"

namespace plait {

void register_unary(OpSet& ops);
void register_binary(OpSet& ops);
void register_cast(OpSet& ops);
void register_reshape(OpSet& ops);
void register_layout(OpSet& ops);
void register_slices(OpSet& ops);
void register_gather(OpSet& ops);
void register_scatter(OpSet& ops);
void register_generators(OpSet& ops);
void register_masks(OpSet& ops);
void register_reductions(OpSet& ops);
void register_matmul(OpSet& ops);
void register_einsum(OpSet& ops);
void register_normalization(OpSet& ops);
void register_attention(OpSet& ops);
void register_experts(OpSet& ops);
void register_quantization(OpSet& ops);
void register_recurrent(OpSet& ops);
void register_control(OpSet& ops);
void register_sequences(OpSet& ops);
void register_plait(OpSet& ops);
void register_collectives(OpSet& ops);
void register_microsoft(OpSet& ops);
void register_microsoft_attention(OpSet& ops);
void register_microsoft_quantized(OpSet& ops);
void register_microsoft_read_as(OpSet& ops);
void register_packed_attention(OpSet& ops);
void register_packed_recurrent(OpSet& ops);
void register_training(OpSet& ops);
void register_cross_entropy(OpSet& ops);
void register_optimizers(OpSet& ops);

// After all others: it adds to their rows.
void register_claims(OpSet& ops);
void register_own_claims(OpSet& ops);

}  // namespace plait
