#include "bindings/c/edge.h"

#include <new>

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
    return record(Code::out_of_memory, "no memory left", {});
  } catch (const std::exception& error) {
    return record(Code::internal, error.what(), {});
  } catch (...) {
    return record(Code::internal, {}, {});
  }
}

const char* last_error() noexcept { return last().message.c_str(); }
const char* last_hint() noexcept { return last().hint.c_str(); }

}  // namespace plait::c_api
