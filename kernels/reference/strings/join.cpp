// StringConcat.
#include <string>

#include "kernels/reference/base/nest.h"
#include "kernels/reference/strings/register.h"
#include "kernels/reference/strings/texts.h"

namespace plait::reference {
namespace {

/// x, y -> x followed by y, element by element, broadcast.
KernelStatus join_strings(const KernelCall& call) {
  const TensorView &x = call.inputs[0], &y = call.inputs[1], &out = call.outputs[0];
  const std::vector<int64_t> left = offsets_of(out.shape, broadcast_strides(x.shape, out.shape)),
                             right = offsets_of(out.shape, broadcast_strides(y.shape, out.shape));
  std::string joined;
  for (size_t i = 0; i < left.size(); ++i) {
    joined = text_at(call, x, left[i]);
    joined += text_at(call, y, right[i]);
    put_text(call, out, static_cast<int64_t>(i), joined);
  }
  return {};
}

}  // namespace

void add_string_joins(KernelTable& table) { add<join_strings>(table, "StringConcat", texts_only); }

}  // namespace plait::reference
