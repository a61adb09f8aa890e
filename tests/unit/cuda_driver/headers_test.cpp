// The declarations of kernels/cuda are those of the real headers. Compiled with cuda.h and nccl.h where they are found
// (tests/CMakeLists.txt).
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "kernels/cuda/nccl.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#if __has_include(<nccl.h>)
#include <nccl.h>
#endif

namespace plait::test {
namespace {

/// Structures of ours that are a beginning of theirs, which they know by its size.
template <class Ours, class Theirs>
constexpr bool is_beginning = false;

/// Whether a parameter of ours is passed as one of theirs: the same type, enums and structures of our own, or pointers to these.
template <class Ours, class Theirs>
constexpr bool same_parameter() {
  using A = std::remove_cv_t<Ours>;
  using B = std::remove_cv_t<Theirs>;
  if constexpr (std::is_same_v<A, B>) {
    return true;
  } else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using From = std::remove_pointer_t<A>;
    using To = std::remove_pointer_t<B>;
    if constexpr (std::is_void_v<From> || std::is_void_v<To>) return false;
    else return std::is_const_v<From> == std::is_const_v<To> && same_parameter<From, To>();
  } else {
    const bool numbers = (std::is_enum_v<A> || std::is_integral_v<A>)&&std::is_enum_v<B>;
    return is_beginning<A, B> || ((numbers || (std::is_class_v<A> && std::is_class_v<B>)) && sizeof(A) == sizeof(B));
  }
}

template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameFunction<R(A...), S(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B)) return false;
    else return same_parameter<R, S>() && (same_parameter<A, B>() && ...);
  }();
};

#define PLAIT_TEXT(name)     #name
#define PLAIT_EXPANDED(name) PLAIT_TEXT(name)
// `function` expands to the version that programs get which are compiled with this header.
#define PLAIT_SAME(member, function, symbol, parameters)                                                    \
  static_assert(SameFunction<cuda::Status parameters, std::remove_pointer_t<decltype(&::function)>>::value, \
                #function);
namespace signatures {
using namespace cuda;
PLAIT_CUDA_DRIVER(PLAIT_SAME)
}  // namespace signatures

static_assert(sizeof(cuda::LaunchConfig) == sizeof(CUlaunchConfig));
static_assert(offsetof(cuda::LaunchConfig, grid_x) == offsetof(CUlaunchConfig, gridDimX));
static_assert(offsetof(cuda::LaunchConfig, grid_z) == offsetof(CUlaunchConfig, gridDimZ));
static_assert(offsetof(cuda::LaunchConfig, block_x) == offsetof(CUlaunchConfig, blockDimX));
static_assert(offsetof(cuda::LaunchConfig, block_z) == offsetof(CUlaunchConfig, blockDimZ));
static_assert(offsetof(cuda::LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(cuda::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(cuda::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(cuda::LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(cuda::Copy2D) == sizeof(CUDA_MEMCPY2D));
static_assert(offsetof(cuda::Copy2D, from_x_bytes) == offsetof(CUDA_MEMCPY2D, srcXInBytes));
static_assert(offsetof(cuda::Copy2D, from_y) == offsetof(CUDA_MEMCPY2D, srcY));
static_assert(offsetof(cuda::Copy2D, from_kind) == offsetof(CUDA_MEMCPY2D, srcMemoryType));
static_assert(offsetof(cuda::Copy2D, from_array) == offsetof(CUDA_MEMCPY2D, srcArray));
static_assert(offsetof(cuda::Copy2D, to_y) == offsetof(CUDA_MEMCPY2D, dstY));
static_assert(offsetof(cuda::Copy2D, to_kind) == offsetof(CUDA_MEMCPY2D, dstMemoryType));
static_assert(offsetof(cuda::Copy2D, to_array) == offsetof(CUDA_MEMCPY2D, dstArray));
static_assert(offsetof(cuda::Copy2D, from_device) == offsetof(CUDA_MEMCPY2D, srcDevice));
static_assert(offsetof(cuda::Copy2D, from_pitch) == offsetof(CUDA_MEMCPY2D, srcPitch));
static_assert(offsetof(cuda::Copy2D, to_x_bytes) == offsetof(CUDA_MEMCPY2D, dstXInBytes));
static_assert(offsetof(cuda::Copy2D, to_device) == offsetof(CUDA_MEMCPY2D, dstDevice));
static_assert(offsetof(cuda::Copy2D, to_pitch) == offsetof(CUDA_MEMCPY2D, dstPitch));
static_assert(offsetof(cuda::Copy2D, width_bytes) == offsetof(CUDA_MEMCPY2D, WidthInBytes));
static_assert(offsetof(cuda::Copy2D, height) == offsetof(CUDA_MEMCPY2D, Height));
static_assert(sizeof(cuda::DeviceId) == sizeof(CUuuid));
static_assert(sizeof(cuda::IpcHandle) == sizeof(CUipcMemHandle));

#define PLAIT_EQUAL(ours, theirs) static_assert(static_cast<long>(cuda::ours) == static_cast<long>(theirs), #theirs);
PLAIT_EQUAL(cuda_success, CUDA_SUCCESS)
PLAIT_EQUAL(cuda_invalid_value, CUDA_ERROR_INVALID_VALUE)
PLAIT_EQUAL(cuda_out_of_memory, CUDA_ERROR_OUT_OF_MEMORY)
PLAIT_EQUAL(cuda_not_initialized, CUDA_ERROR_NOT_INITIALIZED)
PLAIT_EQUAL(cuda_no_device, CUDA_ERROR_NO_DEVICE)
PLAIT_EQUAL(cuda_invalid_device, CUDA_ERROR_INVALID_DEVICE)
PLAIT_EQUAL(cuda_invalid_image, CUDA_ERROR_INVALID_IMAGE)
PLAIT_EQUAL(cuda_invalid_context, CUDA_ERROR_INVALID_CONTEXT)
PLAIT_EQUAL(cuda_ecc_uncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE)
PLAIT_EQUAL(cuda_peer_access_unsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
PLAIT_EQUAL(cuda_invalid_handle, CUDA_ERROR_INVALID_HANDLE)
PLAIT_EQUAL(cuda_not_found, CUDA_ERROR_NOT_FOUND)
PLAIT_EQUAL(cuda_not_ready, CUDA_ERROR_NOT_READY)
PLAIT_EQUAL(cuda_illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS)
PLAIT_EQUAL(cuda_peer_access_already_enabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
PLAIT_EQUAL(cuda_launch_failed, CUDA_ERROR_LAUNCH_FAILED)
PLAIT_EQUAL(cuda_stream_capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
PLAIT_EQUAL(cuda_stream_capture_invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
PLAIT_EQUAL(cuda_stream_capture_unjoined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
PLAIT_EQUAL(cuda_stream_capture_isolation, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
PLAIT_EQUAL(cuda_unknown, CUDA_ERROR_UNKNOWN)
PLAIT_EQUAL(attribute_multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
PLAIT_EQUAL(attribute_unified_addressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)
PLAIT_EQUAL(attribute_compute_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
PLAIT_EQUAL(attribute_compute_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
PLAIT_EQUAL(stream_non_blocking, CU_STREAM_NON_BLOCKING)
PLAIT_EQUAL(event_disable_timing, CU_EVENT_DISABLE_TIMING)
PLAIT_EQUAL(host_alloc_portable, CU_MEMHOSTALLOC_PORTABLE)
PLAIT_EQUAL(host_alloc_mapped, CU_MEMHOSTALLOC_DEVICEMAP)
PLAIT_EQUAL(capture_thread_local, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
PLAIT_EQUAL(ipc_lazy_peer_access, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
PLAIT_EQUAL(kernel_max_dynamic_shared_bytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
PLAIT_EQUAL(memory_host, CU_MEMORYTYPE_HOST)
PLAIT_EQUAL(memory_device, CU_MEMORYTYPE_DEVICE)

#ifdef NCCL_VERSION_CODE
template <>
constexpr bool is_beginning<cuda::NcclConfig, ncclConfig_t> = true;
namespace nccl_signatures {
using namespace cuda;
#define PLAIT_SAME_NCCL(function, returned, parameters) \
  static_assert(SameFunction<returned parameters, decltype(::function)>::value, #function);
PLAIT_NCCL(PLAIT_SAME_NCCL)
}  // namespace nccl_signatures

static_assert(sizeof(cuda::NcclId) == sizeof(ncclUniqueId));
// Ours is what NCCL 2.18 has, to the byte: a member that begins within its size is one that we fill.
#define PLAIT_SAME_CONFIG(ours, theirs)                                               \
  static_assert(offsetof(cuda::NcclConfig, ours) == offsetof(ncclConfig_t, theirs) && \
                    sizeof(cuda::NcclConfig::ours) == sizeof(ncclConfig_t::theirs),   \
                #theirs);
PLAIT_SAME_CONFIG(size, size)
PLAIT_SAME_CONFIG(magic, magic)
PLAIT_SAME_CONFIG(version, version)
PLAIT_SAME_CONFIG(blocking, blocking)
PLAIT_SAME_CONFIG(cluster_blocks, cgaClusterSize)
PLAIT_SAME_CONFIG(fewest_blocks, minCTAs)
PLAIT_SAME_CONFIG(most_blocks, maxCTAs)
PLAIT_SAME_CONFIG(network, netName)
PLAIT_SAME_CONFIG(split_share, splitShare)
PLAIT_SAME_CONFIG(traffic_class, trafficClass)
static_assert(sizeof(cuda::NcclConfig) == offsetof(ncclConfig_t, commName), "the next member begins after ours");
static_assert(cuda::NcclConfig::undefined == NCCL_CONFIG_UNDEF_INT);

PLAIT_EQUAL(nccl_success, ncclSuccess)
PLAIT_EQUAL(nccl_unhandled_cuda_error, ncclUnhandledCudaError)
PLAIT_EQUAL(nccl_internal_error, ncclInternalError)
PLAIT_EQUAL(nccl_invalid_argument, ncclInvalidArgument)
PLAIT_EQUAL(nccl_invalid_usage, ncclInvalidUsage)
PLAIT_EQUAL(nccl_remote_error, ncclRemoteError)
PLAIT_EQUAL(nccl_in_progress, ncclInProgress)
PLAIT_EQUAL(NcclType::i8, ncclInt8)
PLAIT_EQUAL(NcclType::u8, ncclUint8)
PLAIT_EQUAL(NcclType::i32, ncclInt32)
PLAIT_EQUAL(NcclType::u32, ncclUint32)
PLAIT_EQUAL(NcclType::i64, ncclInt64)
PLAIT_EQUAL(NcclType::u64, ncclUint64)
PLAIT_EQUAL(NcclType::f16, ncclFloat16)
PLAIT_EQUAL(NcclType::f32, ncclFloat32)
PLAIT_EQUAL(NcclType::f64, ncclFloat64)
PLAIT_EQUAL(NcclType::bf16, ncclBfloat16)
PLAIT_EQUAL(NcclReduction::sum, ncclSum)
PLAIT_EQUAL(NcclReduction::product, ncclProd)
PLAIT_EQUAL(NcclReduction::max, ncclMax)
PLAIT_EQUAL(NcclReduction::min, ncclMin)

TEST(NcclHeaders, HaveTheValuesThatAConfigurationBeginsWith) {
  const cuda::NcclConfig ours;
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.version, static_cast<unsigned>(NCCL_VERSION(2, 18, 0)));
  EXPECT_EQ(ours.cluster_blocks, theirs.cgaClusterSize);
  EXPECT_EQ(ours.network, theirs.netName);
  EXPECT_EQ(ours.split_share, theirs.splitShare);
  EXPECT_EQ(ours.traffic_class, theirs.trafficClass);
}
#else
TEST(NcclHeaders, HaveTheValuesThatAConfigurationBeginsWith) { GTEST_SKIP() << "nccl.h is not installed"; }
#endif

TEST(CudaHeaders, NameTheSymbolsOfTheTable) {
#define PLAIT_SYMBOL(member, function, symbol, parameters) EXPECT_STREQ(PLAIT_EXPANDED(function), PLAIT_TEXT(symbol));
  PLAIT_CUDA_DRIVER(PLAIT_SYMBOL)
}

}  // namespace
}  // namespace plait::test
#else
TEST(CudaHeaders, NameTheSymbolsOfTheTable) { GTEST_SKIP() << "cuda.h is not installed"; }
#endif
