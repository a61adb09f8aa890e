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

namespace {

/// The devices of a machine's ranks: these numbers, or all from the first on.
struct DeviceNumbers {
  std::vector<int64_t> listed;
  int64_t first = 0;

  /// Of "N", or "N,M,..." with a number for each rank; false for another text.
  bool read(std::string_view text) {
    for (const std::string& word : split(text, ','))
      if (!parse_int(word, listed.emplace_back()) || listed.back() < 0) return false;
    if (listed.size() > 1) return true;
    first = listed[0];
    listed.clear();
    return true;
  }
  int of(int64_t local_rank) const {
    if (listed.empty()) return static_cast<int>(first + local_rank);
    if (local_rank < static_cast<int64_t>(listed.size())) return static_cast<int>(listed[static_cast<size_t>(local_rank)]);
    throw Error(Code::invalid_argument,
                cat("option device names ", listed.size(), " devices, and this machine has more ranks"),
                "name a device for each rank; ranks that share one have the same number");
  }
};

}  // namespace

void choose_device(const Settings& settings, CompileOptions& options) {
  const std::string device = settings.text("device");
  if (device == "auto" || device == "cpu") return;
  constexpr std::string_view numbered = "cuda:";
  DeviceNumbers numbers;
  const bool good = device == "cuda" || device == "emulated" ||
                    (device.starts_with(numbered) && numbers.read(std::string_view(device).substr(numbered.size())));
  if (!good)
    throw Error(Code::invalid_argument,
                cat("option device is ", quote(device), ", expected auto, cpu, cuda, cuda:N, cuda:N,M or emulated"));
  const std::string plugin = cuda_plugin(settings, device);
  options.device = DeviceKind::cuda;
  options.make_device = [plugin, numbers](int64_t local_rank) {
    return cuda::make_cuda_device(cuda::load_cuda(plugin), numbers.of(local_rank));
  };
}

}  // namespace plait::c_api
