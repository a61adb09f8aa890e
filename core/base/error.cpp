#include "core/base/error.h"

namespace plait {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::invalid_argument: return "invalid_argument";
    case Code::not_found: return "not_found";
    case Code::bad_model: return "bad_model";
    case Code::unsupported: return "unsupported";
    case Code::out_of_memory: return "out_of_memory";
    case Code::overloaded: return "overloaded";
    case Code::cancelled: return "cancelled";
    case Code::timeout: return "timeout";
    case Code::io: return "io";
    case Code::numeric: return "numeric";
    case Code::closed: return "closed";
    case Code::internal: return "internal";
  }
  return "unknown";
}

Error Error::at(std::string_view where) const { return Error(code_, std::string(where) + ": " + message_, hint_); }

void fail_internal(const char* file, int line, const char* condition) {
  throw Error(Code::internal,
              std::string("internal check failed at ") + file + ":" + std::to_string(line) + ": " + condition,
              "this is a fault of Plait; please report it with this message");
}

}  // namespace plait
