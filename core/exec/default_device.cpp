// Separate from device.cpp, so that a test program can link its own definition.
#include "core/exec/device.h"

namespace plait {

std::shared_ptr<Device> default_device() { return make_host_device(); }

}  // namespace plait
