#include "kernels/cpu/training/register.h"

namespace plait::cpu {

void add_training(KernelTable& table, Isa isa) {
  add_linear_back(table, isa);
  add_dropout(table, isa);
  add_experts_back(table, isa);
  add_cross_entropy(table, isa);
  add_head_loss(table, isa);
  add_optimizers(table, isa);
  add_normalize_back(table, isa);
  add_scatter_back(table, isa);
  add_layers_back(table, isa);
}

}  // namespace plait::cpu
