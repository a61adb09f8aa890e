// The emulated driver's functions for work: copies, launches, streams, events, graphs.
#include <cstring>
#include <stdexcept>

#include "kernels/emulated/driver_calls.h"
#include "kernels/emulated/kernel_registry.h"

struct CUlib_st {
  CUctx_st* context;
};

namespace plait::emulated {
namespace {

/// Counts a copy of host memory that is not pinned: the driver then makes a copy of its own, or waits.
void note_host_memory(Machine& machine, const void* host, size_t bytes) {
  const auto* at = static_cast<const std::byte*>(host);
  auto found = machine.pinned.upper_bound(const_cast<std::byte*>(at));
  const bool pinned = found != machine.pinned.begin() && (--found, at + bytes <= found->first + found->second);
  if (!pinned) ++machine.counts.pageable;
}

void count(int64_t plait_emulated_counts::*what, int64_t by = 1) {
  Machine& machine = Machine::get();
  std::lock_guard lock(machine.mutex);
  machine.counts.*what += by;
}

/// One side of a copy.
struct Rows {
  std::byte* host = nullptr;  ///< null: on the device
  cuda::DevicePtr device = 0;
  size_t pitch = 0;

  /// Where the rows are accessed; null if the context cannot.
  std::byte* access(const CUctx_st& context, size_t width, size_t height) const {
    if (host) return host;
    return reaches(context, device, pitch * (height - 1) + width) ? Machine::get().memory.alias(device) : nullptr;
  }
};

std::function<Status()> copy_of(const CUctx_st* context, Rows to, Rows from, size_t width, size_t height = 1) {
  return [=]() -> Status {
    if (!width || !height) return 0;
    std::byte* const target = to.access(*context, width, height);
    const std::byte* const source = from.access(*context, width, height);
    if (!target || !source) return cuda::cuda_illegal_address;
    for (size_t row = 0; row < height; ++row) std::memmove(target + row * to.pitch, source + row * from.pitch, width);
    count(&plait_emulated_counts::copies);
    if (to.host || from.host) count(&plait_emulated_counts::host_copies);
    count(&plait_emulated_counts::copied_bytes, static_cast<int64_t>(width * height));
    return 0;
  };
}

/// Arguments as of the launch. An 8-byte word with an address in the devices' memory has to be one that the context can access.
struct LaunchedKernel {
  const CUctx_st* context;
  const KernelEntry* entry;
  Launch launch;
  std::vector<std::vector<uint64_t>> values;  ///< by parameter, in words

  Status operator()() const {
    std::vector<void*> parameters;
    for (const auto& value : values) {
      for (const uint64_t word : value)
        if (Machine::get().memory.covers(word) && !reaches(*context, word, 1)) return cuda::cuda_illegal_address;
      parameters.push_back(const_cast<uint64_t*>(value.data()));
    }
    count(&plait_emulated_counts::launches);
    try {
      entry->run(launch, parameters.data());
    } catch (const std::exception& fault) {
      Machine& machine = Machine::get();
      std::lock_guard lock(machine.mutex);
      machine.set_failure(fault.what());
      return cuda::cuda_launch_failed;
    }
    return 0;
  }
};

}  // namespace
}  // namespace plait::emulated

namespace plait::cuda {
using namespace emulated;

Status cuMemcpyHtoDAsync_v2(DevicePtr to, const void* from, size_t bytes, Stream stream) {
  Call call("cuMemcpyHtoDAsync");
  if (!call.takes(stream)) return call.refused;
  note_host_memory(call.machine, from, bytes);
  auto* const host = static_cast<std::byte*>(const_cast<void*>(from));
  return call.machine.give(stream, {copy_of(stream->context, {nullptr, to}, {host}, bytes), nullptr});
}

/// Until the copy is done the destination holds NaNs, for reads that come too early.
Status cuMemcpyDtoHAsync_v2(void* to, DevicePtr from, size_t bytes, Stream stream) {
  Call call("cuMemcpyDtoHAsync");
  if (!call.takes(stream)) return call.refused;
  note_host_memory(call.machine, to, bytes);
  if (!stream->capture) std::memset(to, 0xFF, bytes);
  return call.machine.give(
      stream, {copy_of(stream->context, {static_cast<std::byte*>(to)}, {nullptr, from}, bytes), nullptr});
}

Status cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) {
  Call call("cuMemcpyDtoDAsync");
  if (!call.takes(stream)) return call.refused;
  return call.machine.give(stream, {copy_of(stream->context, {nullptr, to}, {nullptr, from}, bytes), nullptr});
}

/// Between devices only, which is all that Plait copies so.
Status cuMemcpy2DAsync_v2(const Copy2D* given, Stream stream) {
  Call call("cuMemcpy2DAsync");
  if (!call.takes(stream)) return call.refused;
  const Copy2D& c = *given;
  const bool on_devices = c.from_kind == memory_device && c.to_kind == memory_device && !c.from_array && !c.to_array;
  if (!on_devices || c.width_bytes > c.from_pitch || c.width_bytes > c.to_pitch) return cuda_invalid_value;
  const Rows to{nullptr, c.to_device + c.to_y * c.to_pitch + c.to_x_bytes, c.to_pitch};
  const Rows from{nullptr, c.from_device + c.from_y * c.from_pitch + c.from_x_bytes, c.from_pitch};
  return call.machine.give(stream, {copy_of(stream->context, to, from, c.width_bytes, c.height), nullptr});
}

Status cuMemsetD8Async(DevicePtr to, unsigned char value, size_t bytes, Stream stream) {
  Call call("cuMemsetD8Async");
  if (!call.takes(stream)) return call.refused;
  return call.machine.give(stream, {[=, context = stream->context]() -> Status {
                                      if (!reaches(*context, to, bytes)) return cuda_illegal_address;
                                      std::memset(Machine::get().memory.alias(to), value, bytes);
                                      count(&plait_emulated_counts::fills);
                                      return 0;
                                    },
                                    nullptr});
}

// ---- kernels ----

/// Any image: kernels are those of kernel_registry.h.
Status cuLibraryLoadData(Library* out, const void* image, int*, void**, unsigned, int*, void**, unsigned) {
  Call call("cuLibraryLoadData");
  if (!call.refused) call.refused = call.machine.forbid_while_capturing();
  if (call.refused) return call.refused;
  if (!image) return cuda_invalid_value;
  *out = new CUlib_st{call.context};
  call.machine.objects.insert(*out);
  ++call.context->libraries;
  ++call.machine.counts.libraries;
  return cuda_success;
}

Status cuLibraryUnload(Library library) {
  Call call("cuLibraryUnload");
  if (const Status status = call.refuses_to_destroy()) return status;
  call.machine.objects.erase(library);
  --library->context->libraries;
  --call.machine.counts.libraries;
  delete library;
  return cuda_success;
}

Status cuLibraryGetKernel(KernelHandle* out, Library, const char* name) {
  Call call("cuLibraryGetKernel");
  if (call.refused) return call.refused;
  for (const KernelEntry& one : kernels()) {
    if (std::strcmp(one.name, name) != 0) continue;
    *out = reinterpret_cast<KernelHandle>(const_cast<KernelEntry*>(&one));
    return cuda_success;
  }
  return cuda_not_found;
}

Status cuKernelSetAttribute(KernelAttribute attribute, int value, KernelHandle, DeviceNumber) {
  Call call("cuKernelSetAttribute");
  if (call.refused) return call.refused;
  constexpr int most_shared_bytes = 227 << 10;  // of sm_90
  return attribute == kernel_max_dynamic_shared_bytes && value >= 0 && value <= most_shared_bytes
             ? cuda_success
             : cuda_invalid_value;
}

Status cuLaunchKernelEx(const LaunchConfig* config, Function kernel, void** parameters, void**) {
  Call call("cuLaunchKernelEx");
  if (!call.takes(config->stream)) return call.refused;
  const LaunchConfig& c = *config;
  const uint64_t threads = uint64_t{c.block_x} * c.block_y * c.block_z,
                 blocks = uint64_t{c.grid_x} * c.grid_y * c.grid_z;
  if (!threads || threads > 1024 || !blocks) return cuda_invalid_value;
  const auto* entry = reinterpret_cast<const KernelEntry*>(kernel);
  LaunchedKernel launched{c.stream->context,
                          entry,
                          {{c.grid_x, c.grid_y, c.grid_z}, {c.block_x, c.block_y, c.block_z}, c.shared_bytes},
                          {}};
  for (size_t i = 0; i < entry->parameter_bytes.size(); ++i) {
    launched.values.emplace_back((entry->parameter_bytes[i] + 7) / 8);
    std::memcpy(launched.values.back().data(), parameters[i], entry->parameter_bytes[i]);
  }
  return call.machine.give(c.stream, {std::move(launched), nullptr, false, true});
}

// ---- streams and events ----

namespace {

/// Whether the stream has reached the record; an event that was never recorded waits for nothing.
bool is_done(const std::shared_ptr<EventRecord>& record) { return !record || record->done; }

}  // namespace

Status cuStreamCreateWithPriority(Stream* out, unsigned flags, int) {
  Call call("cuStreamCreateWithPriority");
  if (call.refused) return call.refused;
  if (flags > stream_non_blocking) return cuda_invalid_value;
  *out = new CUstream_st{call.context, {}, nullptr, false};
  call.machine.streams.insert(*out);
  ++call.context->streams;
  return cuda_success;
}

Status cuStreamDestroy_v2(Stream stream) {
  Call call("cuStreamDestroy");
  if (const Status status = call.refuses_to_destroy()) return status;
  if (!call.machine.streams.count(stream)) return cuda_invalid_handle;
  call.machine.wait(call.lock, *stream->context, [&] { return stream->queue.empty(); });
  call.machine.streams.erase(stream);
  --stream->context->streams;
  delete stream;
  return call.refused;
}

Status cuStreamSynchronize(Stream stream) {
  Call call("cuStreamSynchronize");
  if (!call.takes(stream)) return call.refused;
  if (stream->capture) return stream->capture->invalid = true, cuda_stream_capture_unsupported;
  return call.machine.wait(call.lock, *stream->context, [&] { return stream->queue.empty(); });
}

/// While capturing: what the stream captures next runs after what the event was recorded after, and a stream that did not capture joins.
Status cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  Call call("cuStreamWaitEvent");
  if (!call.takes(stream)) return call.refused;
  if (event->capture) {
    if (stream->capture && stream->capture != event->capture) return cuda_stream_capture_isolation;
    stream->capture = event->capture;
    stream->capture->tails[stream].insert(event->after.begin(), event->after.end());
    return cuda_success;
  }
  if (stream->capture) return stream->capture->invalid = true, cuda_stream_capture_isolation;
  return call.machine.give(stream, {[] { return Status{0}; }, [record = event->record] { return is_done(record); }});
}

Status cuEventCreate(Event* out, unsigned) {
  Call call("cuEventCreate");
  if (call.refused) return call.refused;
  *out = new CUevent_st;
  call.machine.objects.insert(*out);
  (*out)->context = call.context;
  ++call.context->events;
  ++call.machine.counts.events;
  return cuda_success;
}

Status cuEventDestroy_v2(Event event) {
  Call call("cuEventDestroy");
  if (const Status status = call.refuses_to_destroy()) return status;
  call.machine.objects.erase(event);
  --event->context->events;
  --call.machine.counts.events;
  delete event;
  return call.refused;
}

Status cuEventRecord(Event event, Stream stream) {
  Call call("cuEventRecord");
  if (!call.takes(stream)) return call.refused;
  event->capture = stream->capture;
  if (stream->capture) {
    event->after = stream->capture->tails[stream];
    return stream->capture->invalid ? cuda_stream_capture_invalidated : cuda_success;
  }
  event->record = std::make_shared<EventRecord>();
  return call.machine.give(stream, {[record = event->record] {
                                      std::lock_guard lock(Machine::get().mutex);
                                      record->done = true;
                                      return Status{0};
                                    },
                                    nullptr, true});
}

namespace {

/// Looking at an event that was recorded while capturing ends the capture.
bool captured(CUevent_st& event) {
  if (!event.capture) return false;
  event.capture->invalid = true;
  return true;
}

}  // namespace

Status cuEventQuery(Event event) {
  Call call("cuEventQuery");
  if (call.refused) return call.refused;
  if (captured(*event)) return cuda_stream_capture_unsupported;
  const auto done = [record = event->record] { return is_done(record); };
  if (done()) return cuda_success;
  // Threads that ask again and again would keep the lock from those that do the work.
  call.machine.hasten(event->context->device);
  return call.machine.changed.wait_for(call.lock, std::chrono::microseconds(200), done) ? cuda_success
                                                                                        : cuda_not_ready;
}

Status cuEventSynchronize(Event event) {
  Call call("cuEventSynchronize");
  if (call.refused) return call.refused;
  if (captured(*event)) return cuda_stream_capture_unsupported;
  return call.machine.wait(call.lock, *event->context, [record = event->record, context = event->context] {
    return is_done(record) || context->sticky;
  });
}

// ---- graphs ----

Status cuStreamBeginCapture_v2(Stream stream, CaptureMode) {
  Call call("cuStreamBeginCapture");
  if (!call.takes(stream)) return call.refused;
  if (stream->capture) return cuda_invalid_value;
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->tails[stream] = {};
  return cuda_success;
}

/// The streams that joined have to have been waited for.
Status cuStreamEndCapture(Stream stream, Graph* out) {
  Call call("cuStreamEndCapture");
  *out = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture || capture->origin != stream) return call.refused ? call.refused : cuda_invalid_value;
  for (CUstream_st* one : call.machine.streams)
    if (one->capture == capture) one->capture = nullptr;
  if (call.refused) return call.refused;
  if (capture->invalid) return cuda_stream_capture_invalidated;
  std::set<size_t> before = capture->tails[stream];  // all that the end runs after
  std::vector<size_t> look(before.begin(), before.end());
  while (!look.empty()) {
    const size_t node = look.back();
    look.pop_back();
    for (const size_t earlier : capture->graph->nodes[node].after)
      if (before.insert(earlier).second) look.push_back(earlier);
  }
  if (before.size() != capture->graph->nodes.size()) return cuda_stream_capture_unjoined;
  *out = capture->graph.release();
  call.machine.objects.insert(*out);
  ++call.machine.counts.graphs;
  return cuda_success;
}

Status cuGraphInstantiateWithFlags(GraphExec* out, Graph graph, unsigned long long) {
  Call call("cuGraphInstantiate");
  if (call.refused) return call.refused;
  *out = new CUgraphExec_st{std::make_shared<const CUgraph_st>(*graph)};
  call.machine.objects.insert(*out);
  ++call.machine.counts.graph_execs;
  return cuda_success;
}

Status cuGraphLaunch(GraphExec exec, Stream stream) {
  Call call("cuGraphLaunch");
  if (!call.takes(stream)) return call.refused;
  if (stream->capture) return stream->capture->invalid = true, cuda_stream_capture_unsupported;  // a graph of graphs
  ++call.machine.counts.replays;
  const auto run = std::make_shared<GraphRun>(exec->graph);
  return call.machine.give(stream, {[run] { return run->run(); }, [run] { return run->ready(); }, false, true,
                                    [run] { return run->finished(); }, nullptr});
}

Status cuGraphExecDestroy(GraphExec exec) {
  Call call("cuGraphExecDestroy", false);
  if (call.refused) return call.refused;
  call.machine.objects.erase(exec);
  --call.machine.counts.graph_execs;
  delete exec;
  return cuda_success;
}

Status cuGraphDestroy(Graph graph) {
  Call call("cuGraphDestroy", false);
  if (call.refused) return call.refused;
  call.machine.objects.erase(graph);
  --call.machine.counts.graphs;
  delete graph;
  return cuda_success;
}

}  // namespace plait::cuda
