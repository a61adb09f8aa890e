#pragma once
#include "core/base/windows.h"
#include "kernels/reference/base/kernel_of.h"

namespace plait::reference {

/// The window of a node without further attributes.
struct Sliding : WindowAttributes {
  explicit Sliding(const NodeInfo& node) : WindowAttributes(node.attributes) {}
};

}  // namespace plait::reference
