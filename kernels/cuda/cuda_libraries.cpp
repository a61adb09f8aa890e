#include "kernels/cuda/cuda_libraries.h"

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/cuda/plugin.h"

namespace plait::cuda {

std::shared_ptr<const CudaLibraries> load_cuda(const std::string& path) {
  const LoadedLibrary plugin(path, "install the plug-in with the kernels next to the library, or choose device=cpu");
  LibraryFunction<plait_cuda_entry> entry{nullptr, PLAIT_CUDA_ENTRY};
  plugin.find(entry, PLAIT_CUDA_ENTRY);
  const plait_cuda_plugin& given = *entry();
  if (given.version < PLAIT_CUDA_VERSION)
    throw Error(Code::unsupported,
                cat(quote(path), " is a CUDA plug-in of version ", given.version, ", expected ", PLAIT_CUDA_VERSION),
                "use the plug-in that was built with this library");
  auto out = std::make_shared<CudaLibraries>();
  out->plugin = path;
  out->nccl_of_one_process = given.nccl_of_one_process != 0;
  for (const void* const* image = given.images; *image; ++image) out->images.push_back(*image);
  out->driver = load_driver(given.driver ? given.driver : path);
  try {
    out->nccl = load_nccl(given.nccl ? given.nccl : path);
  } catch (const Error&) {  // it need not be there
  }
  return out;
}

}  // namespace plait::cuda
