#include "kernels/reference/families.h"
#include "kernels/reference/plain/register.h"
#include "kernels/reference/reference.h"

namespace plait {

void register_reference_kernels(KernelTable& table) {
  using namespace reference;
  add_unary(table);
  add_binary(table);
  add_cast(table);
  add_layout(table);
  add_index(table);
  add_scatter(table);
  add_sequences(table);
  add_create(table);
  add_reduce(table);
  add_order(table);
  add_matmul(table);
  add_determinant(table);
  add_linear(table);
  add_experts(table);
  add_einsum(table);
  add_softmax(table);
  add_normalize(table);
  add_attention(table);
  add_grouped_attention(table);
  add_multi_head_attention(table);
  add_rope(table);
  add_recurrent(table);
  add_generation(table);
  add_quantize(table);
  add_cross_entropy(table);
  add_optimizers(table);
  add_training(table);
  add_packed_attention(table);
  add_packed_recurrent(table);
  add_derivatives(table);
  add_normalize_back(table);
  add_plain(table);
}

}  // namespace plait
