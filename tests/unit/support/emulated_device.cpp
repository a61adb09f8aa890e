#include "tests/unit/support/emulated_device.h"

#include <dlfcn.h>

#include "core/base/error.h"

namespace plait::test {
namespace {

template <class Signature>
Signature* control(const char* name) {
  void* library = dlopen(PLAIT_EMULATED_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  PLAIT_ASSERT(library);
  void* found = dlsym(library, name);
  PLAIT_ASSERT(found);
  return reinterpret_cast<Signature*>(found);
}

}  // namespace

std::shared_ptr<const cuda::CudaLibraries> emulated_libraries() {
  static const auto libraries = cuda::load_cuda(PLAIT_EMULATED_LIBRARY);
  return libraries;
}

plait_emulated_counts emulated_counts() {
  plait_emulated_counts out;
  control<decltype(plait_emulated_count)>("plait_emulated_count")(&out);
  return out;
}

plait_emulated_counts settled_counts() {
  PLAIT_ASSERT(control<decltype(plait_emulated_settle)>("plait_emulated_settle")());
  return emulated_counts();
}

void emulated_fail(const char* text) { control<decltype(plait_emulated_fail)>("plait_emulated_fail")(text); }
void emulated_seed(uint64_t seed) { control<decltype(plait_emulated_seed)>("plait_emulated_seed")(seed); }

}  // namespace plait::test
