// In place of kernels/cuda.
#include "core/base/part.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/launch/register.h"

namespace plait {
namespace {

Error absent() { return without_part("CUDA devices", "PLAIT_CUDA"); }

}  // namespace

void register_cuda_kernels(KernelTable&) {}

namespace cuda {

std::shared_ptr<const CudaLibraries> load_cuda(const std::string&) { throw absent(); }
std::shared_ptr<Device> make_cuda_device(std::shared_ptr<const CudaLibraries>, int) { throw absent(); }
std::vector<CudaDeviceFacts> cuda_devices(const CudaDriver&) { throw absent(); }
void CudaDriver::fail(int, const char*) const { throw absent(); }

}  // namespace cuda
}  // namespace plait
