// The emulated driver's functions for devices, contexts and memory, and its control.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernels/emulated/driver_calls.h"

namespace plait::emulated {

CUctx_st*& current_context() {
  thread_local CUctx_st* current = nullptr;
  return current;
}

Call::Call(const char* function, bool in_context)
    : machine(Machine::get()), lock(machine.mutex), context(current_context()) {
  refused = machine.planted(function);
  if (refused || !in_context) return;
  if (!context || !context->retained) refused = cuda::cuda_invalid_context;
  else refused = context->sticky;
}

bool Call::takes(CUstream_st* stream) {
  if (refused) return false;
  if (!machine.streams.count(stream)) refused = cuda::cuda_invalid_handle;
  else refused = stream->context->sticky;
  return !refused;
}

bool reaches(const CUctx_st& context, cuda::DevicePtr at, size_t bytes) {
  return context.accesses(Machine::get().memory.owner(at, bytes));
}

namespace {

bool is_device(const Machine& machine, int device) { return device >= 0 && device < machine.devices(); }

/// Freeing memory waits for all work of its device, as the driver does.
void drain(Call& call) {
  call.machine.wait(call.lock, *call.context, [&] {
    return std::all_of(call.machine.streams.begin(), call.machine.streams.end(),
                       [&](const CUstream_st* one) { return one->context != call.context || one->queue.empty(); });
  });
}

}  // namespace
}  // namespace plait::emulated

namespace plait::cuda {
using namespace emulated;

Status cuInit(unsigned) {
  Call call("cuInit", false);
  if (call.refused) return call.refused;
  return call.machine.devices() ? cuda_success : cuda_no_device;
}

Status cuDriverGetVersion(int* version) {
  Call call("cuDriverGetVersion", false);
  const char* text = std::getenv("PLAIT_EMULATE_VERSION");  // for tests of drivers that are too old
  *version = text ? static_cast<int>(std::strtol(text, nullptr, 10)) : 13000;
  return call.refused;
}

Status cuDeviceGetCount(int* count) {
  Call call("cuDeviceGetCount", false);
  *count = call.machine.devices();
  return call.refused;
}

Status cuDeviceGet(DeviceNumber* device, int ordinal) {
  Call call("cuDeviceGet", false);
  *device = ordinal;
  if (call.refused) return call.refused;
  return is_device(call.machine, ordinal) ? cuda_success : cuda_invalid_device;
}

Status cuDeviceGetName(char* name, int length, DeviceNumber device) {
  Call call("cuDeviceGetName", false);
  if (call.refused) return call.refused;
  if (!is_device(call.machine, device)) return cuda_invalid_device;
  std::strncpy(name, "emulated device", static_cast<size_t>(length));
  name[length - 1] = 0;
  return cuda_success;
}

Status cuDeviceTotalMem_v2(size_t* bytes, DeviceNumber device) {
  Call call("cuDeviceTotalMem", false);
  if (call.refused) return call.refused;
  if (!is_device(call.machine, device)) return cuda_invalid_device;
  *bytes = static_cast<size_t>(call.machine.device_bytes);
  return cuda_success;
}

Status cuDeviceGetAttribute(int* value, DeviceAttribute attribute, DeviceNumber device) {
  Call call("cuDeviceGetAttribute", false);
  if (call.refused) return call.refused;
  if (!is_device(call.machine, device)) return cuda_invalid_device;
  switch (attribute) {
    case attribute_multiprocessors: *value = 4; return cuda_success;
    case attribute_unified_addressing: *value = 1; return cuda_success;
    case attribute_compute_major: *value = 9; return cuda_success;
    case attribute_compute_minor: *value = 0; return cuda_success;
  }
  return cuda_invalid_value;
}

Status cuDeviceGetUuid_v2(DeviceId* id, DeviceNumber device) {
  Call call("cuDeviceGetUuid", false);
  if (call.refused) return call.refused;
  if (!is_device(call.machine, device)) return cuda_invalid_device;
  *id = {};
  const pid_t process = getpid();
  std::memcpy(id->bytes, &device, sizeof device);
  std::memcpy(id->bytes + sizeof device, &process, sizeof process);
  return cuda_success;
}

Status cuDevicePrimaryCtxRetain(Context* context, DeviceNumber device) {
  Call call("cuDevicePrimaryCtxRetain", false);
  if (call.refused) return call.refused;
  if (!is_device(call.machine, device)) return cuda_invalid_device;
  *context = call.machine.contexts[static_cast<size_t>(device)].get();
  if ((*context)->retained++ == 0) ++call.machine.counts.contexts;
  call.machine.start(device);
  return cuda_success;
}

/// The last release ends the context, and its error: what it still has is counted as left.
Status cuDevicePrimaryCtxRelease_v2(DeviceNumber device) {
  Call call("cuDevicePrimaryCtxRelease", false);
  if (call.refused) return call.refused;
  if (!is_device(call.machine, device)) return cuda_invalid_device;
  CUctx_st& context = *call.machine.contexts[static_cast<size_t>(device)];
  if (!context.retained) return cuda_invalid_context;
  if (--context.retained) return cuda_success;
  --call.machine.counts.contexts;
  call.machine.counts.left +=
      call.machine.memory.allocations(device) + context.streams + context.events + context.libraries;
  context.sticky = 0;
  context.peers = 0;
  return cuda_success;
}

Status cuCtxSetCurrent(Context context) {
  Call call("cuCtxSetCurrent", false);
  if (call.refused) return call.refused;
  current_context() = context;
  return cuda_success;
}

Status cuDeviceCanAccessPeer(int* can, DeviceNumber device, DeviceNumber peer) {
  Call call("cuDeviceCanAccessPeer", false);
  if (call.refused) return call.refused;
  if (!is_device(call.machine, device) || !is_device(call.machine, peer)) return cuda_invalid_device;
  *can = device != peer;
  return cuda_success;
}

Status cuCtxEnablePeerAccess(Context peer, unsigned flags) {
  Call call("cuCtxEnablePeerAccess");
  if (call.refused) return call.refused;
  if (flags || !peer || !peer->retained || peer == call.context) return cuda_invalid_value;
  const uint32_t bit = 1U << peer->device;
  return call.context->peers.fetch_or(bit) & bit ? cuda_peer_access_already_enabled : cuda_success;
}

Status cuMemGetInfo_v2(size_t* free, size_t* total) {
  Call call("cuMemGetInfo");
  if (call.refused) return call.refused;
  *total = static_cast<size_t>(call.machine.device_bytes);
  *free = *total - static_cast<size_t>(call.machine.memory.bytes(call.context->device));
  return cuda_success;
}

Status cuMemAlloc_v2(DevicePtr* out, size_t bytes) {
  Call call("cuMemAlloc");
  if (!call.refused) call.refused = call.machine.forbid_while_capturing();
  if (call.refused) return call.refused;
  if (!bytes) return cuda_invalid_value;
  const int64_t used = call.machine.memory.bytes(call.context->device);
  if (static_cast<int64_t>(bytes) > call.machine.device_bytes - used) return cuda_out_of_memory;
  *out = call.machine.memory.take(call.context->device, bytes);
  ++call.machine.counts.all_allocations;
  return *out ? cuda_success : cuda_out_of_memory;
}

/// What another process has open is not freed: CUDA leaves undefined what would happen.
Status cuMemFree_v2(DevicePtr memory) {
  Call call("cuMemFree");
  if (const Status status = call.refuses_to_destroy()) return status;
  if (const Status status = call.machine.forbid_while_capturing()) return status;
  drain(call);
  return call.machine.memory.free(memory) ? cuda_success : cuda_invalid_value;
}

Status cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  Call call("cuMemHostAlloc");
  if (!call.refused) call.refused = call.machine.forbid_while_capturing();
  if (call.refused) return call.refused;
  if (!bytes) return cuda_invalid_value;
  *out = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (!*out) return cuda_out_of_memory;
  call.machine.pinned[static_cast<std::byte*>(*out)] = bytes;
  return cuda_success;
}

Status cuMemFreeHost(void* memory) {
  Call call("cuMemFreeHost");
  if (const Status status = call.refuses_to_destroy()) return status;
  if (const Status status = call.machine.forbid_while_capturing()) return status;
  drain(call);
  if (!call.machine.pinned.erase(static_cast<std::byte*>(memory))) return cuda_invalid_value;
  std::free(memory);
  return cuda_success;
}

Status cuIpcGetMemHandle(IpcHandle* handle, DevicePtr memory) {
  Call call("cuIpcGetMemHandle");
  if (call.refused) return call.refused;
  return call.machine.memory.share(memory, *handle) ? cuda_success : cuda_invalid_value;
}

/// Not in the process that made the handle, and only with the flag that lets peers access the memory.
Status cuIpcOpenMemHandle_v2(DevicePtr* out, IpcHandle handle, unsigned flags) {
  Call call("cuIpcOpenMemHandle");
  if (!call.refused) call.refused = call.machine.forbid_while_capturing();
  if (call.refused) return call.refused;
  if (flags != ipc_lazy_peer_access) return cuda_invalid_value;
  if (DeviceMemory::is_own(handle)) return cuda_invalid_context;
  *out = call.machine.memory.map(call.context->device, handle);
  return *out ? cuda_success : cuda_invalid_value;
}

Status cuIpcCloseMemHandle(DevicePtr memory) {
  Call call("cuIpcCloseMemHandle");
  if (const Status status = call.refuses_to_destroy()) return status;
  if (const Status status = call.machine.forbid_while_capturing()) return status;
  drain(call);
  return call.machine.memory.unmap(memory) ? cuda_success : cuda_invalid_value;
}

namespace {

struct StatusText {
  Status status;
  const char *name, *words;
};
constexpr StatusText texts[] = {
    {cuda_success, "CUDA_SUCCESS", "no error"},
    {cuda_invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {cuda_out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {cuda_not_initialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {cuda_no_device, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {cuda_invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {cuda_invalid_image, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {cuda_invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {cuda_ecc_uncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {cuda_peer_access_unsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported"},
    {cuda_invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {cuda_not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {cuda_not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    {cuda_illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {cuda_peer_access_already_enabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {cuda_launch_failed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {cuda_stream_capture_unsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {cuda_stream_capture_invalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {cuda_stream_capture_unjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {cuda_stream_capture_isolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {cuda_unknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

}  // namespace

Status cuGetErrorName(Status status, const char** name) {
  for (const StatusText& one : texts)
    if (one.status == status) return *name = one.name, cuda_success;
  return cuda_invalid_value;
}

/// Of a launch that failed, the kernel's own words.
Status cuGetErrorString(Status status, const char** text) {
  Call call("cuGetErrorString", false);
  if (status == cuda_launch_failed && *call.machine.failure()) return *text = call.machine.failure(), cuda_success;
  for (const StatusText& one : texts)
    if (one.status == status) return *text = one.words, cuda_success;
  return cuda_invalid_value;
}

}  // namespace plait::cuda

#define PLAIT_CONTROL extern "C" __attribute__((visibility("default")))

PLAIT_CONTROL void plait_emulated_count(plait_emulated_counts* out) {
  plait::emulated::Machine& machine = plait::emulated::Machine::get();
  std::lock_guard lock(machine.mutex);
  *out = machine.counts;
  out->allocations = machine.memory.allocations();
  out->device_bytes = machine.memory.bytes(-1);
  out->pinned = static_cast<int64_t>(machine.pinned.size());
  out->streams = static_cast<int64_t>(machine.streams.size());
}

PLAIT_CONTROL void plait_emulated_fail(const char* text) {
  plait::emulated::Machine& machine = plait::emulated::Machine::get();
  std::lock_guard lock(machine.mutex);
  machine.plant(text);
}

PLAIT_CONTROL int plait_emulated_settle() {
  plait::emulated::Machine& machine = plait::emulated::Machine::get();
  std::unique_lock lock(machine.mutex);
  return machine.settle(lock, std::chrono::seconds(30));
}

PLAIT_CONTROL void plait_emulated_seed(uint64_t seed) {
  plait::emulated::Machine& machine = plait::emulated::Machine::get();
  std::lock_guard lock(machine.mutex);
  machine.seed(seed);
}
