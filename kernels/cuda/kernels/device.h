#pragma once
// What kernels are written against: CUDA's language, of nvcc or of the host's compiler, and the machine's instructions (ptx.h). A
// .cu file includes this, and headers of this folder.
#if defined(__CUDACC__)
#include <stdint.h>

#define PLAIT_DEVICE __device__ __forceinline__
/// A kernel: at most `threads` of a block, and registers for `blocks` blocks at a time on an SM.
#define PLAIT_KERNEL(kernel, threads, blocks, parameters) \
  extern "C" __global__ void __launch_bounds__(threads, blocks) kernel parameters
/// A shared array of a block.
#define PLAIT_SHARED(T, name, count) __shared__ __align__(16) T name[count]
/// The dynamic shared memory of a launch.
#define PLAIT_DYNAMIC_SHARED(T, name)                            \
  extern __shared__ __align__(16) unsigned char shared_bytes_[]; \
  T* const name = reinterpret_cast<T*>(shared_bytes_)
#else
#include "kernels/emulated/cuda_language.h"
#endif

#include "kernels/cuda/kernels/ptx.h"
