#pragma once
// Nodes whose attributes the standard's cases lack, for tests of gradients.
#include <vector>

#include "tests/unit/nodes/instances.h"

namespace plait::test {

std::vector<Instance> attribute_cases();

}  // namespace plait::test
