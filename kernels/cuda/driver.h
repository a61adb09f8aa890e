#pragma once
// The functions of the CUDA driver (libcuda.so.1) that Plait calls, as a table that is filled at run time: nothing links to a
// CUDA library, and any library with these functions can be the driver (kernels/emulated has one).
//
// Types are declared here, in plain C, so that no CUDA header is needed to build. tests/unit/cuda_driver compares each signature,
// structure and constant with the real cuda.h. Source: CUDA driver API 13.0.
#include <cstddef>
#include <cstdint>
#include <string>

#include "kernels/cuda/library.h"

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUlib_st;
struct CUkern_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUgraphNode_st;

namespace plait::cuda {

using DevicePtr = unsigned long long;  ///< CUdeviceptr
using DeviceNumber = int;              ///< CUdevice
using Context = CUctx_st*;
using Stream = CUstream_st*;
using Event = CUevent_st*;
using Library = CUlib_st*;
using KernelHandle = CUkern_st*;
using Function = CUfunc_st*;  ///< a KernelHandle may be cast to it
using Graph = CUgraph_st*;
using GraphExec = CUgraphExec_st*;

/// CUresult: 0, or an error of `Result`.
using Status = int;
enum Result : int {
  cuda_success = 0,
  cuda_invalid_value = 1,
  cuda_out_of_memory = 2,
  cuda_not_initialized = 3,
  cuda_no_device = 100,
  cuda_invalid_device = 101,
  cuda_invalid_image = 200,
  cuda_invalid_context = 201,
  cuda_ecc_uncorrectable = 214,
  cuda_peer_access_unsupported = 217,
  cuda_invalid_handle = 400,
  cuda_not_found = 500,
  cuda_not_ready = 600,
  cuda_illegal_address = 700,
  cuda_peer_access_already_enabled = 704,
  cuda_launch_failed = 719,
  cuda_stream_capture_unsupported = 900,
  cuda_stream_capture_invalidated = 901,
  cuda_stream_capture_unjoined = 904,
  cuda_stream_capture_isolation = 905,
  cuda_unknown = 999,
};

enum DeviceAttribute : int {
  attribute_multiprocessors = 16,
  attribute_unified_addressing = 41,
  attribute_compute_major = 75,
  attribute_compute_minor = 76,
};
enum StreamFlags : unsigned { stream_non_blocking = 1 };
enum EventFlags : unsigned { event_disable_timing = 2 };
enum HostAllocFlags : unsigned { host_alloc_portable = 1, host_alloc_mapped = 2 };
enum CaptureMode : int { capture_thread_local = 1 };
enum IpcFlags : unsigned { ipc_lazy_peer_access = 1 };
enum KernelAttribute : int { kernel_max_dynamic_shared_bytes = 8 };
enum MemoryKind : int { memory_host = 1, memory_device = 2 };

/// CUlaunchConfig.
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  void* attributes;  ///< CUlaunchAttribute[count]
  unsigned attribute_count;
};

/// CUDA_MEMCPY2D: `height` rows of `width_bytes`, at distances of the pitches.
struct Copy2D {
  size_t from_x_bytes, from_y;
  MemoryKind from_kind;
  const void* from_host;
  DevicePtr from_device;
  void* from_array;
  size_t from_pitch;
  size_t to_x_bytes, to_y;
  MemoryKind to_kind;
  void* to_host;
  DevicePtr to_device;
  void* to_array;
  size_t to_pitch;
  size_t width_bytes, height;
};

/// CUipcMemHandle.
struct IpcHandle {
  char bytes[64];
};

/// CUuuid: identifies a device on all machines.
struct DeviceId {
  char bytes[16];
};

/// F(member, function in cuda.h, symbol in the library, parameters)
#define PLAIT_CUDA_DRIVER(F)                                                                                         \
  F(init, cuInit, cuInit, (unsigned flags))                                                                          \
  F(driver_version, cuDriverGetVersion, cuDriverGetVersion, (int* version))                                          \
  F(device_count, cuDeviceGetCount, cuDeviceGetCount, (int* count))                                                  \
  F(device_get, cuDeviceGet, cuDeviceGet, (DeviceNumber * device, int ordinal))                                      \
  F(device_name, cuDeviceGetName, cuDeviceGetName, (char* name, int length, DeviceNumber device))                    \
  F(device_attribute, cuDeviceGetAttribute, cuDeviceGetAttribute,                                                    \
    (int* value, DeviceAttribute attribute, DeviceNumber device))                                                    \
  F(device_bytes, cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, DeviceNumber device))                      \
  F(device_id, cuDeviceGetUuid, cuDeviceGetUuid_v2, (DeviceId * id, DeviceNumber device))                            \
  F(context_retain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (Context * context, DeviceNumber device))    \
  F(context_release, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (DeviceNumber device))                 \
  F(context_set, cuCtxSetCurrent, cuCtxSetCurrent, (Context context))                                                \
  F(peer_possible, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, (int* can, DeviceNumber device, DeviceNumber peer)) \
  F(peer_enable, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (Context peer, unsigned flags))                       \
  F(memory_info, cuMemGetInfo, cuMemGetInfo_v2, (size_t* free, size_t* total))                                       \
  F(memory_alloc, cuMemAlloc, cuMemAlloc_v2, (DevicePtr * out, size_t bytes))                                        \
  F(memory_free, cuMemFree, cuMemFree_v2, (DevicePtr memory))                                                        \
  F(host_alloc, cuMemHostAlloc, cuMemHostAlloc, (void** out, size_t bytes, unsigned flags))                          \
  F(host_free, cuMemFreeHost, cuMemFreeHost, (void* memory))                                                         \
  F(copy_to_device, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                         \
    (DevicePtr to, const void* from, size_t bytes, Stream stream))                                                   \
  F(copy_to_host, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void* to, DevicePtr from, size_t bytes, Stream stream))  \
  F(copy, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (DevicePtr to, DevicePtr from, size_t bytes, Stream stream))      \
  F(copy_2d, cuMemcpy2DAsync, cuMemcpy2DAsync_v2, (const Copy2D* copy, Stream stream))                               \
  F(fill, cuMemsetD8Async, cuMemsetD8Async, (DevicePtr to, unsigned char value, size_t bytes, Stream stream))        \
  F(ipc_get, cuIpcGetMemHandle, cuIpcGetMemHandle, (IpcHandle * handle, DevicePtr memory))                           \
  F(ipc_open, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, (DevicePtr * out, IpcHandle handle, unsigned flags))        \
  F(ipc_close, cuIpcCloseMemHandle, cuIpcCloseMemHandle, (DevicePtr memory))                                         \
  F(stream_create, cuStreamCreateWithPriority, cuStreamCreateWithPriority,                                           \
    (Stream * out, unsigned flags, int priority))                                                                    \
  F(stream_destroy, cuStreamDestroy, cuStreamDestroy_v2, (Stream stream))                                            \
  F(stream_synchronize, cuStreamSynchronize, cuStreamSynchronize, (Stream stream))                                   \
  F(stream_wait, cuStreamWaitEvent, cuStreamWaitEvent, (Stream stream, Event event, unsigned flags))                 \
  F(event_create, cuEventCreate, cuEventCreate, (Event * out, unsigned flags))                                       \
  F(event_destroy, cuEventDestroy, cuEventDestroy_v2, (Event event))                                                 \
  F(event_record, cuEventRecord, cuEventRecord, (Event event, Stream stream))                                        \
  F(event_query, cuEventQuery, cuEventQuery, (Event event))                                                          \
  F(event_synchronize, cuEventSynchronize, cuEventSynchronize, (Event event))                                        \
  F(library_load, cuLibraryLoadData, cuLibraryLoadData,                                                              \
    (Library * out, const void* image, int* jit_options, void** jit_values, unsigned jit_count, int* options,        \
     void** values, unsigned count))                                                                                 \
  F(library_unload, cuLibraryUnload, cuLibraryUnload, (Library library))                                             \
  F(library_kernel, cuLibraryGetKernel, cuLibraryGetKernel, (KernelHandle * out, Library library, const char* name)) \
  F(kernel_set, cuKernelSetAttribute, cuKernelSetAttribute,                                                          \
    (KernelAttribute attribute, int value, KernelHandle kernel, DeviceNumber device))                                \
  F(launch, cuLaunchKernelEx, cuLaunchKernelEx,                                                                      \
    (const LaunchConfig* config, Function kernel, void** parameters, void** extra))                                  \
  F(capture_begin, cuStreamBeginCapture, cuStreamBeginCapture_v2, (Stream stream, CaptureMode mode))                 \
  F(capture_end, cuStreamEndCapture, cuStreamEndCapture, (Stream stream, Graph * out))                               \
  F(graph_instantiate, cuGraphInstantiate, cuGraphInstantiateWithFlags,                                              \
    (GraphExec * out, Graph graph, unsigned long long flags))                                                        \
  F(graph_launch, cuGraphLaunch, cuGraphLaunch, (GraphExec graph, Stream stream))                                    \
  F(graph_exec_destroy, cuGraphExecDestroy, cuGraphExecDestroy, (GraphExec graph))                                   \
  F(graph_destroy, cuGraphDestroy, cuGraphDestroy, (Graph graph))                                                    \
  F(error_name, cuGetErrorName, cuGetErrorName, (Status status, const char** name))                                  \
  F(error_string, cuGetErrorString, cuGetErrorString, (Status status, const char** text))

/// The driver's functions. Calls are thread-safe as the driver's are.
struct CudaDriver {
#define PLAIT_MEMBER(member, function, symbol, parameters) \
  LibraryFunction<Status parameters> member{nullptr, #function};
  PLAIT_CUDA_DRIVER(PLAIT_MEMBER)
#undef PLAIT_MEMBER

  /// Calls the function. Throws plait::Error for a status other than 0: the function's name, the driver's name and text of the
  /// status. Code out_of_memory if memory is what is missing, otherwise io. After an error that ends the context (`ends_context`)
  /// the hint is that the objects on the device have to be created again.
  template <class... P, class... A>
  void call(const LibraryFunction<Status(P...)>& function, A... arguments) const {
    if (const Status status = function(arguments...)) fail(status, function.name);
  }
  [[noreturn]] void fail(Status status, const char* function) const;
  /// "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)".
  std::string text(Status status) const;
};

/// Whether a status ends the context: every later call on the device returns it too ("sticky").
bool ends_context(Status status);

/// The oldest driver: a plug-in's kernels are of CUDA 13.0, and a driver runs those of its own major version.
constexpr int oldest_driver = 13000;

/// Loads the driver from a library, which stays loaded, and starts it (cuInit). Any thread. Throws Error(unsupported) that names what
/// is missing, and what to do: the library, a function of it, or a driver that is not older than `oldest_driver`.
CudaDriver load_driver(const std::string& library);

}  // namespace plait::cuda
