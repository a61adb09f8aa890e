// The declarations of kernels/cuda are those of the real headers. Compiled with cuda.h where it is found (tests/CMakeLists.txt).
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include "kernels/cuda/driver.h"

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace plait::test {
namespace {

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
    const bool numbers = (std::is_enum_v<A> || std::is_integral_v<A>) && std::is_enum_v<B>;
    return (numbers || (std::is_class_v<A> && std::is_class_v<B>)) && sizeof(A) == sizeof(B);
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
static_assert(offsetof(cuda::LaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes));
static_assert(offsetof(cuda::LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream));
static_assert(offsetof(cuda::LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs));
static_assert(offsetof(cuda::LaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));
static_assert(sizeof(cuda::Copy2D) == sizeof(CUDA_MEMCPY2D));
static_assert(offsetof(cuda::Copy2D, from_kind) == offsetof(CUDA_MEMCPY2D, srcMemoryType));
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

TEST(CudaHeaders, NameTheSymbolsOfTheTable) {
#define PLAIT_SYMBOL(member, function, symbol, parameters) EXPECT_STREQ(PLAIT_EXPANDED(function), PLAIT_TEXT(symbol));
  PLAIT_CUDA_DRIVER(PLAIT_SYMBOL)
}

}  // namespace
}  // namespace plait::test
#else
TEST(CudaHeaders, NameTheSymbolsOfTheTable) { GTEST_SKIP() << "cuda.h is not installed"; }
#endif
