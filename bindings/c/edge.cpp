#include "bindings/c/edge.h"

#include <new>
#include <system_error>

namespace plait::c_api {
namespace {

struct LastError {
  std::string message, hint;
};

LastError& last() {
  thread_local LastError error;
  return error;
}

plait_status record(Code code, const std::string& message, const std::string& hint) noexcept {
  return fail(static_cast<plait_status>(code), message.c_str(), hint.c_str());
}

}  // namespace

plait_status fail(plait_status status, const char* message, const char* hint) noexcept {
  try {
    last() = {message ? message : "", hint ? hint : ""};
  } catch (...) {
    // No memory for the text: clears it, so that an older text is not taken for it.
    last().message.clear();
    last().hint.clear();
  }
  return status;
}

plait_status guarded(FunctionRef<void()> body) noexcept {
  try {
    body();
    return PLAIT_OK;
  } catch (const Error& error) {
    return record(error.code(), error.message(), error.hint());
  } catch (const std::bad_alloc&) {
    return fail(PLAIT_OUT_OF_MEMORY, "no memory left", "");
  } catch (const std::system_error& error) {
    const bool threads = error.code() == std::errc::resource_unavailable_try_again;
    return threads ? fail(PLAIT_OUT_OF_MEMORY, "cannot start a thread: the limit of processes is reached",
                          "raise the limit of processes (ulimit -u, or the container's), or ask for fewer threads")
                   : fail(PLAIT_IO, error.what(), "");
  } catch (const std::exception& error) {
    return fail(PLAIT_INTERNAL, error.what(), "");
  } catch (...) {
    return fail(PLAIT_INTERNAL, "", "");
  }
}

const char* last_error() noexcept { return last().message.c_str(); }
const char* last_hint() noexcept { return last().hint.c_str(); }

}  // namespace plait::c_api
