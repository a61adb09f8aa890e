/* plait_cuda.so: the kernels for NVIDIA's driver. PLAIT_CUDA_IMAGE: the file that cuLibraryLoadData takes. */
#include "kernels/cuda/plugin.h"

/* clang-format off */
__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        "plait_cuda_image:\n"
        ".incbin \"" PLAIT_CUDA_IMAGE "\"\n"
        ".byte 0\n" /* ends PTX, which is text */
        ".popsection\n");
/* clang-format on */
extern const char plait_cuda_image[] __attribute__((visibility("hidden")));

__attribute__((visibility("default"))) const plait_cuda_plugin* plait_cuda_get_plugin(void);
const plait_cuda_plugin* plait_cuda_get_plugin(void) {
  static const plait_cuda_plugin plugin = {PLAIT_CUDA_VERSION, "libcuda.so.1", "libnccl.so.2", plait_cuda_image};
  return &plugin;
}
