#include "kernels/cpu/image/register.h"

namespace plait::cpu {

void add_image(KernelTable& table, Isa isa) {
  add_convolution(table, isa);
  add_integer_convolution(table, isa);
  add_pooling(table, isa);
  add_channels_last_conv(table, isa);
  add_channels_last_pool(table, isa);
  add_channels(table, isa);
  add_transposed_convolution(table, isa);
}

}  // namespace plait::cpu
