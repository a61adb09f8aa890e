// QuantizeLinear, DequantizeLinear (per tensor, per axis, blocked), DynamicQuantizeLinear, and com.microsoft's
// GatherBlockQuantized.
#include <algorithm>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "kernels/reference/families.h"
#include "kernels/reference/base/kernel_of.h"
#include "kernels/reference/base/minifloat.h"
#include "kernels/reference/base/nest.h"
#include "kernels/reference/base/numbers.h"

namespace plait::reference {
namespace {

struct QuantizeAttributes {
  explicit QuantizeAttributes(const NodeInfo& node)
      : axis(node.attributes.integer("axis", 1)),
        block(node.attributes.integer("block_size", 0)),
        saturate(node.attributes.integer("saturate", 1) != 0) {}
  int64_t axis, block;
  bool saturate;  ///< of 8-bit floats
};

/// The scale of each element: one for all, one for each index of an axis, or one for each block of `block` indices.
class ScaleIndex {
 public:
  ScaleIndex(const Shape& x, const Shape& scale, const QuantizeAttributes& attributes) {
    if (scale.elements() == 1 && attributes.block == 0) return;
    single_ = false;
    per_axis_ = attributes.block == 0;
    int axis = positive_axis(attributes.axis, x.rank());
    fits_ = axis >= 0 && axis < x.rank() && attributes.block >= 0 && (per_axis_ || scale.rank() == x.rank());
    for (int i = 0; i < x.rank() && fits_ && !per_axis_; ++i) fits_ = i == axis || scale[i] == x[i];
    if (!fits_) return;
    size_ = x[axis];
    inner_ = x.elements(axis + 1, x.rank());
    if (attributes.block > 0) block_ = attributes.block, groups_ = scale[axis];
  }
  int64_t operator()(int64_t i) const {
    if (single_) return 0;
    int64_t at = i / inner_ % size_;
    if (per_axis_) return at;
    return (i / inner_ / size_ * groups_ + at / block_) * inner_ + i % inner_;
  }
  /// Whether every index this gives lies among `scales`.
  bool fits(int64_t scales) const {
    return single_ || (fits_ && (per_axis_ ? scales == size_ : groups_ >= (size_ - 1) / block_ + 1));
  }

 private:
  bool single_ = true, per_axis_ = true, fits_ = true;
  int64_t size_ = 1, inner_ = 1, block_ = 1, groups_ = 1;
};

/// (x - zero_point?) * scale, in f32, rounded once.
KernelStatus dequantize(const KernelCall& call, const QuantizeAttributes& attributes) {
  const TensorView &x = call.inputs[0], &scale = call.inputs[1], zero = input(call, 2), &y = call.outputs[0];
  ScaleIndex index(x.shape, scale.shape, attributes);
  if (!index.fits(scale.elements())) return {KernelCode::bad_value, 1, scale.elements()};
  if (zero.present() && zero.elements() != 1 && zero.elements() != scale.elements())
    return {KernelCode::bad_value, 2, zero.elements()};
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
  if (zero.present() && zero.elements() != 1 && zero.elements() != scale.elements())
    return {KernelCode::bad_value, 2, zero.elements()};
  std::vector<float> values = load_all<float>(x), scales = load_all<float>(scale);
  std::vector<double> zeros;
  if (zero.present()) zeros = load_all<double>(zero);
  Range range = range_of(y.dtype);
  for (int64_t i = 0; i < x.elements(); ++i) {
    auto at = static_cast<size_t>(index(i));
    // The quotient is f32, so its ties match other implementations.
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
  // For zeros the standard's formula divides by a scale of 0; ONNX Runtime's scale is 1.
  float scale = high == low ? 1 : (high - low) / 255;
  float zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f);
  for (float& value : values) value = std::clamp(std::nearbyint(value / scale) + zero, 0.0f, 255.0f);
  store_all(call.outputs[0], values);
  store_one(call.outputs[1], 0, scale);
  store_one(call.outputs[2], 0, zero);
  return {};
}

struct GatherBlocksAttributes {
  explicit GatherBlocksAttributes(const NodeInfo& node)
      : gather_axis(node.attributes.integer("gather_axis", 0)),
        quantize_axis(node.attributes.integer("quantize_axis", 1)),
        block(node.attributes.integer("block_size", 128)),
        bits(node.attributes.integer("bits", 4)) {
    bool integers =
        node.inputs[0].dtype == DType::u8 || node.inputs[0].dtype == DType::u4 || node.inputs[0].dtype == DType::i4;
    if (block < (integers ? 1 : 0)) throw Error(Code::bad_model, cat(node.op, ": block_size is ", block));
    if (bits != 2 && bits != 4 && bits != 8)
      throw Error(Code::bad_model, cat(node.op, ": bits is ", bits, ", expected 2, 4 or 8"));
    if (!integers && node.inputs.size() > 3 && node.inputs[3].dtype != DType::none)
      throw Error(Code::bad_model, cat(node.op, ": floats have no zero points"));
  }
  int64_t gather_axis, quantize_axis;
  int64_t block;  ///< 0, of floats: the whole axis is one block
  int64_t bits;   ///< of u8, which holds 8 / bits elements a byte along the last dimension
};

/// u8 as its contents: elements of `bits` bits, the first in the low ones, as u4 and u2 pack them.
TensorView unpacked(const TensorView& x, int64_t bits) {
  if (x.dtype != DType::u8 || bits == 8) return x;
  TensorView out = x;
  out.dtype = bits == 4 ? DType::u4 : DType::u2;
  if (out.shape.rank()) out.shape[out.shape.rank() - 1] *= 8 / bits;
  return out;
}

/// GatherBlockQuantized: (data[index] - zero) * scale. data [.., a, ..], scales [.., blocks, ..] along the quantised
/// axis (of float data, 1 on another axis applies to all of it), zero_points? like the scales, packed like data;
/// without them the zero of u8 is half its range. An index out of range gives zeros, as specified.
KernelStatus gather_blocks(const KernelCall& call, const GatherBlocksAttributes& a) {
  const TensorView &codes = call.inputs[0], &scales = call.inputs[2], &y = call.outputs[0];
  TensorView data = unpacked(codes, a.bits), zeros = unpacked(input(call, 3), a.bits);
  int rank = data.shape.rank(), along = positive_axis(a.quantize_axis, rank),
      axis = positive_axis(a.gather_axis, rank);
  if (rank < 1 || along < 0 || along >= rank || axis < 0 || axis >= rank) return {KernelCode::bad_value, 0, rank};
  if (codes.dtype == DType::u8 && (along != rank - 1 || axis == along)) return {KernelCode::bad_value, 0, along};
  if (scales.shape.rank() != rank) return {KernelCode::bad_value, 2, scales.shape.rank()};
  if (zeros.present() && zeros.shape.rank() != rank) return {KernelCode::bad_value, 3, zeros.shape.rank()};
  int64_t whole = std::max<int64_t>(1, data.shape[along]), block = a.block ? std::min(a.block, whole) : whole;
  bool is_integer_code = !is_minifloat(data.dtype);
  Shape strides = strides_of(data.shape), scale_strides = strides_of(scales.shape);
  Shape zero_strides = zeros.present() ? strides_of(zeros.shape) : scale_strides;
  for (int i = 0; i < rank; ++i) {
    int64_t groups = i == along ? (data.shape[i] + block - 1) / block : data.shape[i];
    bool shared = !is_integer_code && i != along && scales.shape[i] == 1;
    if (scales.shape[i] != groups && !shared) return {KernelCode::bad_value, 2, scales.shape[i]};
    if (zeros.present() && zeros.shape[i] < groups) return {KernelCode::bad_value, 3, zeros.shape[i]};
    if (shared) scale_strides[i] = 0;
  }
  double middle = codes.dtype == DType::u8 ? static_cast<double>(1 << (a.bits - 1)) : 0;
  std::vector<int64_t> indices = to_ints(call.inputs[1]);
  auto count = static_cast<int64_t>(indices.size()), size = data.shape[axis];
  int64_t inner = data.shape.elements(axis + 1, rank);
  std::vector<float> row(static_cast<size_t>(inner));
  for (int64_t i = 0; i < data.shape.elements(0, axis) * count; ++i) {
    int64_t index = indices[static_cast<size_t>(i % count)];
    if (index < 0) index += size;
    bool inside = index >= 0 && index < size;
    for (int64_t j = 0; j < inner; ++j) {
      float& value = row[static_cast<size_t>(j)] = 0;
      if (!inside) continue;
      int64_t at = (i / count * size + index) * inner + j, scale_at = 0, zero_at = 0;
      for (int k = 0; k < rank; ++k) {
        int64_t place = at / strides[k] % data.shape[k], group = k == along ? place / block : place;
        scale_at += group * scale_strides[k];
        zero_at += group * zero_strides[k];
      }
      double zero = zeros.present() ? load_one<double>(zeros, zero_at) : middle;
      value = static_cast<float>(load_one<double>(data, at) - zero) * load_one<float>(scales, scale_at);
    }
    store(y, i * inner, inner, row.data());
  }
  return {};
}

}  // namespace

void add_quantize(KernelTable& table) {
  add<dequantize>(table, "DequantizeLinear", anything);
  add<quantize>(table, "QuantizeLinear",
                Domain{"floats, i32", [](const NodeInfo& node) { return first_is(node, is_number); }});
  add<dynamic_quantize>(table, "DynamicQuantizeLinear", floats);
  add<gather_blocks>(table, "com.microsoft.GatherBlockQuantized",
                     Domain{"u8, i4, u4, floats of 4 and 8 bits", [](const NodeInfo& node) {
                              return first_is(node, [](DType dtype) {
                                return dtype == DType::u8 || dtype == DType::u4 || dtype == DType::i4 ||
                                       is_minifloat(dtype);
                              });
                            }});
}

}  // namespace plait::reference
