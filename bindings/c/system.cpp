// What this machine has, and what of it Plait uses.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bindings/c/devices.h"
#include "bindings/c/objects.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"
#include "core/comm/message_channel.h"
#include "core/exec/memory_budget.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cuda/cuda_device.h"

namespace plait::c_api {
namespace {

using Json = nlohmann::ordered_json;

/// The value of "model name : AMD EPYC" in one of the kernel's lists; "" if there is none.
std::string line_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && trimmed(std::string_view(line).substr(0, colon)) == key)
      return std::string(trimmed(std::string_view(line).substr(colon + 1)));
  }
  return {};
}

Json processor(const Settings& settings) {
  const auto registry = make_registry(settings.text("isa"));
  const std::vector<std::string> usable = cpu_isas();
  std::string used = "reference";  // the highest of the kernels' sets
  for (const auto& kernel : registry->kernels.all()) {
    const auto rank = [&](const std::string& isa) {
      return std::find(usable.begin(), usable.end(), isa) - usable.begin();
    };
    if (std::find(usable.begin(), usable.end(), kernel->isa) == usable.end()) continue;
    if (used == "reference" || rank(kernel->isa) > rank(used)) used = kernel->isa;
  }
  return {{"name", line_of("/proc/cpuinfo", "model name")},
          {"usable", usable_processors()},
          {"instruction_sets", usable},
          {"used", used}};
}

Json memory() {
  const int64_t bytes = usable_memory();
  int64_t free_kb = 0;
  const std::string free = line_of("/proc/meminfo", "MemAvailable");
  const bool known = parse_int(std::string_view(free).substr(0, free.find(' ')), free_kb);
  return {{"bytes", bytes}, {"free_bytes", known ? Json(free_kb << 10) : Json(nullptr)}};
}

/// {"available": true, ...what `facts` adds}, or false with the reason and the hint.
template <class Facts>
Json part(Facts facts) {
  try {
    Json out = {{"available", true}};
    facts(out);
    return out;
  } catch (const Error& error) {
    return {{"available", false}, {"reason", error.message()}, {"hint", error.hint()}};
  }
}

Json cuda_part(const Settings& settings) {
  return part([&](Json& out) {
    const auto libraries = cuda::load_cuda(cuda_plugin(settings, "cuda"));
    int version = 0;
    libraries->driver.call(libraries->driver.driver_version, &version);
    out["driver"] = cat(version / 1000, ".", version % 1000 / 10);
    out["nccl"] = libraries->nccl.has_value();
    out["devices"] = Json::array();
    for (const cuda::CudaDeviceFacts& one : cuda::cuda_devices(libraries->driver))
      out["devices"].push_back({{"device", cat("cuda:", one.ordinal)},
                                {"name", one.name},
                                {"compute", cat(one.compute_major, ".", one.compute_minor)},
                                {"bytes", one.bytes}});
    if (out["devices"].empty())
      throw Error(Code::not_found, "the driver has no device", "see what nvidia-smi prints");
  });
}

}  // namespace
}  // namespace plait::c_api

using namespace plait;
using namespace plait::c_api;

plait_status plait_system(plait_options* options, plait_tensor** json) {
  return create(json, [&] {
    const Settings settings = settings_of(options, for_model | for_generator | for_world);
    const Json out = {{"version", PLAIT_VERSION},
                      {"processor", processor(settings)},
                      {"memory", memory()},
                      {"mpi", part([&](Json&) { load_mpi(settings.text("mpi_plugin")); })},
                      {"cuda", cuda_part(settings)}};
    return text_tensor(out.dump(1, ' ', false, Json::error_handler_t::replace));
  });
}
