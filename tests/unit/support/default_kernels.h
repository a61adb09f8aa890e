#pragma once
// Kernels for the device of core/exec's default_device(), so that the programs of tests run on devices too.
#include "core/exec/kernel.h"

namespace plait::test {

/// Adds the kernels of that device, next to the processor's; returns its kind. A program on another device links another
/// definition, together with one of default_device().
DeviceKind add_default_kernels(KernelTable& table);

}  // namespace plait::test
