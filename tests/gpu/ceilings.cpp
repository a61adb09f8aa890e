// What the devices of a machine reach at best: copies, access of peers, launches, tensor cores. Prints JSON.
//
// usage: ceilings PLUGIN BYTES     BYTES: of an array that is copied, which should be much larger than caches
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/kernels/peak.h"

namespace plait::cuda {
namespace {

using Json = nlohmann::ordered_json;

/// A device with a stream of its own.
class Bench {
 public:
  Bench(const std::shared_ptr<const CudaLibraries>& libraries, int ordinal)
      : context(std::make_shared<CudaContext>(libraries, ordinal)), cu(context->driver()) {
    cu.call(cu.stream_create, &stream, stream_non_blocking, 0);
  }
  ~Bench() {
    context->enter();
    cu.stream_destroy(stream);
  }
  Bench(const Bench&) = delete;

  /// Seconds of the fastest of three turns, after one that does not count: clocks rise, and pages are touched.
  double seconds(const std::function<void()>& work) const {
    context->enter();
    double best = 1e9;
    for (int turn = 0; turn < 4; ++turn) {
      const auto begin = std::chrono::steady_clock::now();
      work();
      cu.call(cu.stream_synchronize, stream);
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      if (turn) best = std::min(best, taken.count());
    }
    return best;
  }
  template <class... P>
  void launch(const char* name, Geometry geometry, P... parameters) const {
    void* addresses[] = {static_cast<void*>(&parameters)...};
    const LaunchConfig config{geometry.grid_x, 1, 1, geometry.threads, 1, 1, 0, stream, nullptr, 0};
    cu.call(cu.launch, &config, reinterpret_cast<Function>(context->kernel(name, 0)), static_cast<void**>(addresses),
            static_cast<void**>(nullptr));
  }

  const std::shared_ptr<CudaContext> context;
  const CudaDriver& cu;
  Stream stream = nullptr;
};

DevicePtr address(const std::shared_ptr<Blob>& blob) { return reinterpret_cast<DevicePtr>(blob->data()); }

/// Bytes a second that are read and written (between host and device: that cross).
Json copies(const Bench& bench, int64_t bytes) {
  constexpr int rounds = 8;
  const auto a = bench.context->take(bytes), b = bench.context->take(bytes), host = bench.context->take_pinned(bytes);
  const auto size = static_cast<size_t>(bytes);
  const CudaDriver& cu = bench.cu;
  const auto rate = [&](int times, const std::function<void()>& copy) {
    return times * static_cast<double>(bytes) * rounds / bench.seconds([&] {
      for (int i = 0; i < rounds; ++i) copy();
    });
  };
  Json out;
  out["device_bytes_per_s"] = rate(2, [&] { cu.call(cu.copy, address(b), address(a), size, bench.stream); });
  out["to_device_bytes_per_s"] = rate(
      1, [&] { cu.call(cu.copy_to_device, address(a), static_cast<const void*>(host->data()), size, bench.stream); });
  out["to_host_bytes_per_s"] = rate(
      1, [&] { cu.call(cu.copy_to_host, static_cast<void*>(host->mutable_data()), address(a), size, bench.stream); });
  return out;
}

/// Seconds of a launch by itself, and of one in a graph.
Json launches(const Bench& bench) {
  constexpr int count = 1000;
  const CudaDriver& cu = bench.cu;
  const auto all = [&] {
    for (int i = 0; i < count; ++i) bench.launch("peak_nothing", {1, 1, 1, 32}, 0);
  };
  Json out;
  out["launch_s"] = bench.seconds(all) / count;
  cu.call(cu.capture_begin, bench.stream, capture_thread_local);
  all();
  Graph graph = nullptr;
  cu.call(cu.capture_end, bench.stream, &graph);
  GraphExec exec = nullptr;
  const Status status = cu.graph_instantiate(&exec, graph, 0ULL);
  cu.graph_destroy(graph);
  if (status) cu.fail(status, cu.graph_instantiate.name);
  out["launch_in_graph_s"] = bench.seconds([&] { cu.call(cu.graph_launch, exec, bench.stream); }) / count;
  cu.graph_exec_destroy(exec);
  return out;
}

/// Multiplications and additions a second, by dtype. `rounds`: of a warp.
Json tensor_cores(const Bench& bench, int rounds) {
  int multiprocessors = 0;
  bench.cu.call(bench.cu.device_attribute, &multiprocessors, attribute_multiprocessors, bench.context->device());
  const unsigned blocks = static_cast<unsigned>(multiprocessors) * 4;
  const auto out = bench.context->take(int64_t{blocks} * peak_threads * 4);
  Json rates;
  for (const auto& [dtype, kernel] : {std::pair("bf16", "peak_bf16"), std::pair("f16", "peak_f16")}) {
    const double taken = bench.seconds([&, name = kernel] {
      bench.launch(name, peak_geometry(blocks), reinterpret_cast<float*>(out->mutable_data()), rounds);
    });
    rates[dtype] = peak_operations(blocks, rounds) / taken;
    float sum = 0;
    bench.cu.call(bench.cu.copy_to_host, static_cast<void*>(&sum), address(out), sizeof sum, bench.stream);
    bench.cu.call(bench.cu.stream_synchronize, bench.stream);
    if (sum != 16.0F * static_cast<float>(peak_sums) * static_cast<float>(rounds))
      throw Error(Code::internal, std::string(kernel) + " has a wrong sum: " + std::to_string(sum));
  }
  return rates;
}

/// Bytes a second that one device writes into another's memory.
Json peers(const Bench& from, const Bench& to, int64_t bytes) {
  const CudaDriver& cu = from.cu;
  int can = 0;
  cu.call(cu.peer_possible, &can, from.context->device(), to.context->device());
  Json out;
  out["from"] = from.context->ordinal(), out["to"] = to.context->ordinal(), out["access"] = can != 0;
  if (!can) return out;
  from.context->enter();
  if (const Status status = cu.peer_enable(to.context->handle(), 0U);
      status && status != cuda_peer_access_already_enabled)
    cu.fail(status, cu.peer_enable.name);
  const auto source = from.context->take(bytes), target = to.context->take(bytes);
  constexpr int rounds = 8;
  out["bytes_per_s"] = static_cast<double>(bytes) * rounds / from.seconds([&] {
    for (int i = 0; i < rounds; ++i)
      cu.call(cu.copy, address(target), address(source), static_cast<size_t>(bytes), from.stream);
  });
  return out;
}

Json measure(const char* plugin, int64_t bytes) {
  const auto libraries = load_cuda(plugin);
  int count = 0;
  libraries->driver.call(libraries->driver.device_count, &count);
  Json out;
  out["devices"] = Json::array(), out["peers"] = Json::array();
  std::vector<std::unique_ptr<Bench>> all;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    const Bench& bench = *all.emplace_back(std::make_unique<Bench>(libraries, ordinal));
    Json one;
    one["device"] = ordinal;
    one["copies"] = copies(bench, bytes);
    one["launches"] = launches(bench);
    // Sums stay exact in f32; about a millisecond of a large chip.
    one["tensor_cores_per_s"] = tensor_cores(bench, static_cast<int>(std::min<int64_t>(bytes >> 16, 4096)));
    out["devices"].push_back(std::move(one));
  }
  for (const auto& from : all)
    for (const auto& to : all)
      if (from != to) out["peers"].push_back(peers(*from, *to, bytes));
  return out;
}

}  // namespace
}  // namespace plait::cuda

int main(int count, char** words) {
  if (count != 3 || std::atoll(words[2]) < 1 << 16) {
    std::fprintf(stderr, "usage: ceilings PLUGIN BYTES (65536 or more)\n");
    return 2;
  }
  try {
    std::printf("%s\n", plait::cuda::measure(words[1], std::atoll(words[2])).dump(1).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "ceilings: %s\n", error.what());
    return 1;
  }
}
