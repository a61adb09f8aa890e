#include "kernels/cuda/library.h"

#include <dlfcn.h>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::cuda {

LoadedLibrary::LoadedLibrary(std::string path, std::string hint) : path_(std::move(path)), hint_(std::move(hint)) {
  handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle_) return;
  const char* why = dlerror();
  throw Error(Code::unsupported,
              cat("the library ", quote(path_), " cannot be loaded: ", why ? why : "no reason given"), hint_);
}

void* LoadedLibrary::find(const char* symbol, const char* name) const {
  if (void* found = dlsym(handle_, symbol)) return found;
  throw Error(Code::unsupported, cat("the library ", quote(path_), " has no function ", name, " (", symbol, ")"),
              hint_);
}

}  // namespace plait::cuda
