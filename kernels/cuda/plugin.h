/* What a plug-in for CUDA devices gives: kernels, and the names of the libraries that run them. plait_cuda.so is one, for
 * NVIDIA's driver; plait_cuda_emulated.so another, which is its own driver. libplait.so links neither. Plain C. Additions go at
 * the end with a higher version; the rest stays. */
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLAIT_CUDA_VERSION 2
#define PLAIT_CUDA_ENTRY   "plait_cuda_get_plugin"

typedef struct plait_cuda_plugin {
  int32_t version;
  /* Libraries as dlopen takes them; null: the plug-in itself. */
  const char* driver; /* the functions of PLAIT_CUDA_DRIVER (driver.h) */
  const char* nccl;   /* those of PLAIT_NCCL (nccl.h); need not be there */
  /* The kernels, each image as cuLibraryLoadData takes it: a fat binary, PTX, or whatever the driver knows. Ended by null. */
  const void* const* images;
  /* Since version 2. Not 0: `nccl` connects devices of one process only. */
  int32_t nccl_of_one_process;
} plait_cuda_plugin;

/* The entry, PLAIT_CUDA_ENTRY. The structure lives as long as the library. */
typedef const plait_cuda_plugin* plait_cuda_entry(void);

#ifdef __cplusplus
}
#endif
