#include "core/comm/exchange.h"

#include "core/base/text.h"

namespace plait {
namespace {

std::string_view call_name(Call call) {
  switch (call) {
    case Call::leave: return "the end of its world";
    case Call::all_reduce: return "all_reduce";
    case Call::all_gather: return "all_gather";
    case Call::reduce_scatter: return "reduce_scatter";
    case Call::all_to_all: return "all_to_all";
    case Call::broadcast: return "broadcast";
    case Call::barrier: return "barrier";
    case Call::split: return "split";
    case Call::send: return "send";
    case Call::command: return "broadcast_command";
  }
  return "an unknown call";
}

}  // namespace

std::string CallHeader::text() const {
  std::string out(call_name(call));
  if (call == Call::leave || call == Call::barrier || call == Call::split || call == Call::command) return out;
  append(out, '(');
  if (call == Call::all_reduce || call == Call::reduce_scatter) append(out, cat(reduction_name(reduction), ", "));
  if (call == Call::broadcast) append(out, cat("root ", root, ", "));
  append(out, cat(dtype_name(static_cast<DType>(dtype)), ", ", bytes, " bytes"));
  append(out, tag ? cat(", tag ", tag, ")") : std::string(")"));
  return out;
}

std::string mismatch_text(int rank, const CallHeader& call, int other_rank, const CallHeader& other_call) {
  return cat("ranks do not do the same: rank ", rank, " calls ", call.text(), ", rank ", other_rank, " calls ",
             other_call.text());
}

}  // namespace plait
