#include "kernels/cuda/launch/register.h"

#include "kernels/cuda/launch/launch.h"

namespace plait {

void register_cuda_kernels(KernelTable& table) {
  cuda::add_norms(table);
  cuda::add_linear(table);
  cuda::add_moves(table);
  cuda::add_rope(table);
  cuda::add_attention(table);
  cuda::add_elementwise(table);
  cuda::add_logic(table);
  cuda::add_experts(table);
  cuda::add_adapters(table);
  cuda::add_recurrences(table);
  cuda::add_indexing(table);
  cuda::add_reductions(table);
  cuda::add_sampling(table);
}

}  // namespace plait
