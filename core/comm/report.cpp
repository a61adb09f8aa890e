#include "core/comm/report.h"

#include <new>

#include "core/base/text.h"

namespace plait {

std::vector<std::byte> error_report(const Error& error) {
  ByteWriter out;
  out.put(error.code());
  out.put_text(error.message());
  out.put_text(error.hint());
  return out.take();
}

std::vector<std::byte> ok_report(ByteWriter bytes) {
  ByteWriter out;
  out.put(Code::ok);
  const std::vector<std::byte> rest = bytes.take();
  out.put_bytes(rest.data(), rest.size());
  return out.take();
}

ByteReader read_report(std::span<const std::byte> bytes, int64_t rank) {
  ByteReader in(bytes, "a rank's report");
  const auto code = in.get<Code>();
  if (code == Code::ok) return in;
  const std::string message = in.get_text(), hint = in.get_text();
  throw Error(code, cat("rank ", rank, ": ", message), hint);
}

Error current_error() noexcept {
  try {
    try {
      throw;
    } catch (const Error& error) {
      return error;
    } catch (const std::bad_alloc&) {
    } catch (const std::exception& error) {
      return {Code::internal, error.what()};
    }
  } catch (const std::bad_alloc&) {  // of the copy
  }
  return {Code::out_of_memory, "no memory left"};  // short enough to need none
}

}  // namespace plait
