// In place of the ops and kernels of graphs that are no decoder.
#include "core/base/part.h"
#include "core/ops/plain/register.h"
#include "kernels/cpu/image/register.h"
#include "kernels/reference/plain/register.h"

namespace plait {

void register_plain_ops(OpSet& ops) {
  ops.lack("this library was built without ops on images, signals, strings and classical models; " +
           part_hint("PLAIT_PLAIN"));
}

namespace reference {
void add_plain(KernelTable&) {}
}  // namespace reference

namespace cpu {
void add_image(KernelTable&, Isa) {}
}  // namespace cpu

}  // namespace plait
