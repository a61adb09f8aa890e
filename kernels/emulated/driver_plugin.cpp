// The emulated driver is a plug-in, and its own driver.
#include "kernels/cuda/plugin.h"

extern "C" __attribute__((visibility("default"))) const plait_cuda_plugin* plait_cuda_get_plugin() {
  static const void* const images[] = {"kernels of the emulated driver", nullptr};
  static const plait_cuda_plugin plugin{PLAIT_CUDA_VERSION, nullptr, nullptr, images, 0};
  return &plugin;
}
