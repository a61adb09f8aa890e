// QuantizeLinear, DequantizeLinear (per tensor, per axis, blocked) and DynamicQuantizeLinear.
#include <algorithm>
#include <vector>

#include "kernels/reference/families.h"
#include "kernels/reference/kernel_of.h"
#include "kernels/reference/minifloat.h"
#include "kernels/reference/numbers.h"

namespace plait::reference {
namespace {

struct QuantizeAttributes {
  explicit QuantizeAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", 1)), block(node.attributes.integer("block_size", 0)),
        saturate(node.attributes.integer("saturate", 1) != 0) {}
  int64_t axis, block;
  bool saturate;  ///< of 8-bit floats
};

/// Which scale an element has: one for all, one for each index of an axis, or one for each block of `block` indices.
class ScaleIndex {
 public:
  ScaleIndex(const Shape& x, const Shape& scale, const QuantizeAttributes& attributes) {
    if (scale.elements() == 1 && attributes.block == 0) return;
    int axis = positive_axis(attributes.axis, x.rank());
    size_ = x[axis];
    inner_ = x.elements(axis + 1, x.rank());
    if (attributes.block > 0) block_ = attributes.block, groups_ = scale[axis];
    single_ = false;
    per_axis_ = attributes.block == 0;
  }
  int64_t operator()(int64_t i) const {
    if (single_) return 0;
    int64_t at = i / inner_ % size_;
    if (per_axis_) return at;
    return (i / inner_ / size_ * groups_ + at / block_) * inner_ + i % inner_;
  }
  /// Whether every index this gives lies among `scales`.
  bool fits(int64_t scales) const {
    return single_ || (per_axis_ ? scales == size_ : groups_ * block_ >= size_);
  }

 private:
  bool single_ = true, per_axis_ = true;
  int64_t size_ = 1, inner_ = 1, block_ = 1, groups_ = 1;
};

/// (x - zero_point?) * scale, in f32, rounded once.
KernelStatus dequantize(const KernelCall& call, const QuantizeAttributes& attributes) {
  const TensorView &x = call.inputs[0], &scale = call.inputs[1], zero = input(call, 2), &y = call.outputs[0];
  ScaleIndex index(x.shape, scale.shape, attributes);
  if (!index.fits(scale.elements())) return {KernelCode::bad_value, 1, scale.elements()};
  std::vector<float> scales = load_all<float>(scale);
  std::vector<double> zeros;
  if (zero.present()) zeros = load_all<double>(zero);
  constexpr int64_t block = 1024;
  double codes[block];
  float values[block];
  for (int64_t begin = 0; begin < x.elements(); begin += block) {
    int64_t n = std::min(block, x.elements() - begin);
    load(x, begin, n, codes);
    for (int64_t i = 0; i < n; ++i) {
      auto at = static_cast<size_t>(index(begin + i));
      double shift = zeros.empty() ? 0 : zeros[zeros.size() == 1 ? 0 : at];
      values[i] = static_cast<float>(codes[i] - shift) * scales[at];
    }
    store(y, begin, n, values);
  }
  return {};
}

/// The range of a quantised integer dtype.
struct Range {
  double low, high;
};
Range range_of(DType dtype) {
  int bits = dtype_bits(dtype);
  bool is_signed =
      dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 || dtype == DType::i4 || dtype == DType::i2;
  double span = std::ldexp(1.0, bits);
  return is_signed ? Range{-span / 2, span / 2 - 1} : Range{0, span - 1};
}

/// saturate(round(x / scale) + zero_point?), ties to even; 8-bit floats are not rounded to integers.
KernelStatus quantize(const KernelCall& call, const QuantizeAttributes& attributes) {
  const TensorView &x = call.inputs[0], &scale = call.inputs[1], zero = input(call, 2), &y = call.outputs[0];
  ScaleIndex index(x.shape, scale.shape, attributes);
  if (!index.fits(scale.elements())) return {KernelCode::bad_value, 1, scale.elements()};
  std::vector<float> values = load_all<float>(x), scales = load_all<float>(scale);
  std::vector<double> zeros;
  if (zero.present()) zeros = load_all<double>(zero);
  Range range = range_of(y.dtype);
  for (int64_t i = 0; i < x.elements(); ++i) {
    auto at = static_cast<size_t>(index(i));
    // The quotient is one of f32: its ties are those that other implementations see.
    double quotient = values[static_cast<size_t>(i)] / scales[at],
           shift = zeros.empty() ? 0 : zeros[zeros.size() == 1 ? 0 : at];
    if (is_minifloat(y.dtype)) {
      put_bits(y, i, encode_minifloat(y.dtype, quotient + shift, attributes.saturate));
    } else {
      if (std::isnan(quotient)) return {KernelCode::not_a_number, 0, i};
      store_one(y, i, std::clamp(std::nearbyint(quotient) + shift, range.low, range.high));
    }
  }
  return {};
}

/// x f32 -> y u8, scale f32, zero point u8, so that the range of x with 0 becomes 0 .. 255.
KernelStatus dynamic_quantize(const KernelCall& call) {
  std::vector<float> values = load_all<float>(call.inputs[0]);
  float low = 0, high = 0;
  for (float value : values) low = std::min(low, value), high = std::max(high, value);
  float scale = (high - low) / 255;
  float zero = scale == 0 ? 0 : std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f);
  for (float& value : values)
    value = scale == 0 ? zero : std::clamp(std::nearbyint(value / scale) + zero, 0.0f, 255.0f);
  store_all(call.outputs[0], values);
  store_one(call.outputs[1], 0, scale);
  store_one(call.outputs[2], 0, zero);
  return {};
}

}  // namespace

void add_quantize(KernelTable& table) {
  add<dequantize>(table, "DequantizeLinear", anything);
  add<quantize>(table, "QuantizeLinear",
                Domain{"floats, i32", [](const NodeInfo& node) { return first_is(node, is_number); }});
  add<dynamic_quantize>(table, "DynamicQuantizeLinear", floats);
}

}  // namespace plait::reference
