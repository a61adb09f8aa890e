#include <algorithm>

#include "core/exec/kernel.h"

namespace plait {

void KernelTable::add(Kernel kernel) {
  // Stable: of two kernels of equal priority, the one added first is tried first.
  auto lower = std::find_if(kernels_.begin(), kernels_.end(),
                            [&](const auto& other) { return other->priority < kernel.priority; });
  kernels_.insert(lower, std::make_unique<Kernel>(std::move(kernel)));
}

const Kernel* KernelTable::find(const NodeInfo& node, DeviceKind device) const {
  for (const auto& kernel : kernels_)
    if (kernel->device == device && kernel->op == node.op && (!kernel->accepts || kernel->accepts(node)))
      return kernel.get();
  return nullptr;
}

const Kernel* KernelTable::reference(const NodeInfo& node) const {
  for (const auto& kernel : kernels_)
    if (kernel->isa == "reference" && kernel->op == node.op && (!kernel->accepts || kernel->accepts(node)))
      return kernel.get();
  return nullptr;
}

}  // namespace plait
