#include "tests/unit/support/default_kernels.h"

namespace plait::test {

DeviceKind add_default_kernels(KernelTable&) { return DeviceKind::host; }

}  // namespace plait::test
