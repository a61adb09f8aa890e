#include "bindings/c/devices.h"

#include "core/base/error.h"
#include "core/base/own_folder.h"
#include "core/base/text.h"
#include "kernels/cuda/cuda_device.h"

namespace plait::c_api {

std::string cuda_plugin(const Settings& settings, std::string_view device) {
  const std::string plugin = settings.text("cuda_plugin");
  return !plugin.empty() ? plugin
                         : own_folder() + (device == "emulated" ? "plait_cuda_emulated.so" : "plait_cuda.so");
}

void choose_device(const Settings& settings, CompileOptions& options) {
  const std::string device = settings.text("device");
  if (device == "auto" || device == "cpu") return;
  int64_t first = 0;
  const bool numbered =
      device.rfind("cuda:", 0) == 0 && parse_int(std::string_view(device).substr(5), first) && first >= 0;
  if (device != "cuda" && device != "emulated" && !numbered)
    throw Error(Code::invalid_argument,
                cat("option device is ", quote(device), ", expected auto, cpu, cuda, cuda:N or emulated"));
  const std::string plugin = cuda_plugin(settings, device);
  options.device = DeviceKind::cuda;
  options.make_device = [plugin, first](int64_t local_rank) {
    return cuda::make_cuda_device(cuda::load_cuda(plugin), static_cast<int>(first + local_rank));
  };
}

}  // namespace plait::c_api
