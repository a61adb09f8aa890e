#include "importers/onnx/typed_data.h"

#include <onnx-ml.pb.h>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::onnx_import {
namespace {

enum class Field { float_data, int32_data, int64_data, double_data, uint64_data };
constexpr std::string_view field_names[] = {"float_data", "int32_data", "int64_data", "double_data", "uint64_data"};

Field field_of(DType dtype) {
  switch (dtype) {
    case DType::f32: case DType::c64: return Field::float_data;
    case DType::i64: return Field::int64_data;
    case DType::f64: case DType::c128: return Field::double_data;
    case DType::u32: case DType::u64: return Field::uint64_data;
    default: return Field::int32_data;
  }
}

int64_t field_size(const onnx::TensorProto& proto, Field field) {
  switch (field) {
    case Field::float_data: return proto.float_data_size();
    case Field::int32_data: return proto.int32_data_size();
    case Field::int64_data: return proto.int64_data_size();
    case Field::double_data: return proto.double_data_size();
    case Field::uint64_data: return proto.uint64_data_size();
  }
  return 0;
}

template <class To, class List>
void store(const List& from, Tensor& to) {
  To* out = to.as<To>();
  for (auto number : from) *out++ = static_cast<To>(number);
}

/// Integers of `bits` bits, signed or unsigned; higher bits are ignored.
template <class To>
void store_narrow(const onnx::TensorProto& proto, int bits, Tensor& to) {
  To* out = to.as<To>();
  for (int32_t number : proto.int32_data()) {
    if (number < -(int64_t{1} << (bits - 1)) || number >= int64_t{1} << bits)
      throw Error(Code::bad_model, cat("int32_data holds ", number, ", which is no ", dtype_name(to.dtype())));
    *out++ = static_cast<To>(number);
  }
}

}  // namespace

Tensor typed_tensor(const onnx::TensorProto& proto, DType dtype, const Shape& shape, std::string_view used) {
  int bits = dtype_bits(dtype);
  Field field = field_of(dtype);
  std::string_view expected_field = field_names[static_cast<int>(field)];
  if (!used.empty() && used != expected_field)
    throw Error(Code::bad_model, cat(used, " is set, but ", dtype_name(dtype), " elements are stored in ", expected_field));
  bool complex = dtype == DType::c64 || dtype == DType::c128;
  int64_t elements = shape.elements();
  // A number has all elements of a byte if these are narrower; a complex element takes two numbers.
  int64_t expected = bits < 8 ? packed_bytes(elements, bits) : complex ? elements * 2 : elements;
  int64_t given = field_size(proto, field);
  if (given != expected)
    throw Error(Code::bad_model, cat(dtype_name(dtype), shape.text(), " needs ", expected, " numbers in ",
                                     expected_field, ", there are ", given));
  Tensor out(dtype, shape);  // as large as a field that was read: the size is not only claimed
  switch (field) {
    case Field::float_data: store<float>(proto.float_data(), out); break;
    case Field::int64_data: store<int64_t>(proto.int64_data(), out); break;
    case Field::double_data: store<double>(proto.double_data(), out); break;
    case Field::uint64_data:
      if (bits == 64) store<uint64_t>(proto.uint64_data(), out);
      else store<uint32_t>(proto.uint64_data(), out);
      break;
    case Field::int32_data:
      if (bits == 32) store<int32_t>(proto.int32_data(), out);
      else if (bits == 16) store_narrow<uint16_t>(proto, 16, out);
      else store_narrow<uint8_t>(proto, 8, out);
      break;
  }
  return out;
}

}  // namespace plait::onnx_import
