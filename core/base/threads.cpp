#include "core/base/threads.h"

#include "core/base/text.h"

namespace plait {

Error no_thread(const std::string& which, const std::system_error& why) {
  return Error(Code::out_of_memory, cat("cannot start ", which, ": ", why.code().message()),
               "raise the limit of processes (ulimit -u, or the container's), or ask for fewer threads");
}

}  // namespace plait
