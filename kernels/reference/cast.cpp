// Cast and CastLike between all dtypes (ONNX Cast-25).
#include <string>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/minifloat.h"
#include "kernels/reference/base/numbers.h"
#include "kernels/reference/strings/cast.h"

namespace plait::reference {
namespace {

struct CastAttributes {
  explicit CastAttributes(const NodeInfo& node) : saturate(node.attributes.integer("saturate", 1) != 0) {
    std::string mode = node.attributes.string("round_mode", "up");
    if (mode != "up" && mode != "down" && mode != "nearest")
      throw Error(Code::bad_model, cat(node.op, ": round_mode is ", quote(mode), ", expected up, down or nearest"));
    rounding = mode == "up" ? PowerRounding::up : mode == "down" ? PowerRounding::down : PowerRounding::nearest;
  }
  bool saturate;
  PowerRounding rounding;
};

/// Integers keep their low bits; floats are rounded to nearest even, cut toward zero for integers; to bool: x != 0.
KernelStatus cast(const KernelCall& call, const CastAttributes& how) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  int64_t count = in.elements();
  if (in.dtype == out.dtype) {
    copy_elements(in, 0, out, 0, count);
    return {};
  }
  if (in.dtype == DType::string || out.dtype == DType::string) {
    cast_strings(call);
    return {};
  }
  constexpr int64_t block = 1024;
  with_number(in.dtype, [&]<class N>(N) {
    N values[block];
    for (int64_t begin = 0; begin < count; begin += block) {
      int64_t n = std::min(block, count - begin);
      load(in, begin, n, values);
      if (!is_minifloat(out.dtype)) {
        store(out, begin, n, values);
        continue;
      }
      for (int64_t i = 0; i < n; ++i)
        put_bits(out, begin + i,
                 encode_minifloat(out.dtype, static_cast<double>(values[i]), how.saturate, how.rounding));
    }
  });
  return {};
}

/// The same bytes; a bool's byte must be 0 or 1.
KernelStatus bit_cast(const KernelCall& call) {
  const TensorView &in = call.inputs[0], &out = call.outputs[0];
  if (out.dtype == DType::boolean)
    for (int64_t i = 0; i < in.elements(); ++i)
      if (get_bits(in, i) > 1) return {KernelCode::bad_value, 0, static_cast<int64_t>(get_bits(in, i))};
  if (in.elements()) std::memcpy(out.data, in.data, static_cast<size_t>(in.bytes()));
  return {};
}

}  // namespace

void add_cast(KernelTable& table) {
  add<cast>(table, "Cast", anything);
  add<cast>(table, "CastLike", anything);
  add<bit_cast>(table, "BitCast", anything);
}

}  // namespace plait::reference
