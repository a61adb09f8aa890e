#include "kernels/cuda/cuda_device.h"

namespace plait::cuda {

std::vector<CudaDeviceFacts> cuda_devices(const CudaDriver& driver) {
  int count = 0;
  driver.call(driver.device_count, &count);
  std::vector<CudaDeviceFacts> out(static_cast<size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CudaDeviceFacts& facts = out[static_cast<size_t>(ordinal)];
    facts.ordinal = ordinal;
    DeviceNumber device = 0;
    char name[256] = "";
    size_t bytes = 0;
    driver.call(driver.device_get, &device, ordinal);
    driver.call(driver.device_name, name, static_cast<int>(sizeof name), device);
    driver.call(driver.device_attribute, &facts.compute_major, attribute_compute_major, device);
    driver.call(driver.device_attribute, &facts.compute_minor, attribute_compute_minor, device);
    driver.call(driver.device_bytes, &bytes, device);
    facts.name = name;
    facts.bytes = static_cast<int64_t>(bytes);
  }
  return out;
}

}  // namespace plait::cuda
