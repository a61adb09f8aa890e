#pragma once
// A device whose memory the host cannot touch, for finding whatever takes arrays for host memory.
#include "core/exec/device.h"

namespace plait::test {

/// Runs the processor's kernels on memory of its own, which is mapped twice: arrays carry addresses of a mapping without
/// any access, and the device's own operations use the other, at a constant distance. So code that reads or writes an array
/// past the device ends with SIGSEGV at that line. Addresses of freed memory are never given again.
std::shared_ptr<Device> make_guarded_device();

}  // namespace plait::test
