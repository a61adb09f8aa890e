#include "importers/onnx/attribute_reader.h"

#include <onnx-ml.pb.h>

#include "core/base/error.h"
#include "core/base/strings.h"
#include "core/base/text.h"

namespace plait::onnx_import {
namespace {

using Proto = onnx::AttributeProto;

struct FieldRow {
  int type;
  std::string_view name;
  bool (*set)(const Proto&);
  bool message;  ///< must be set, unlike a scalar or a list
};

constexpr FieldRow fields[] = {
    {Proto::FLOAT, "f", [](const Proto& p) { return p.has_f(); }, false},
    {Proto::INT, "i", [](const Proto& p) { return p.has_i(); }, false},
    {Proto::STRING, "s", [](const Proto& p) { return p.has_s(); }, false},
    {Proto::TENSOR, "t", [](const Proto& p) { return p.has_t(); }, true},
    {Proto::GRAPH, "g", [](const Proto& p) { return p.has_g(); }, true},
    {Proto::FLOATS, "floats", [](const Proto& p) { return p.floats_size() > 0; }, false},
    {Proto::INTS, "ints", [](const Proto& p) { return p.ints_size() > 0; }, false},
    {Proto::STRINGS, "strings", [](const Proto& p) { return p.strings_size() > 0; }, false},
    {Proto::TENSORS, "tensors", [](const Proto& p) { return p.tensors_size() > 0; }, false},
    {Proto::GRAPHS, "graphs", [](const Proto& p) { return p.graphs_size() > 0; }, false},
    {Proto::SPARSE_TENSOR, "sparse_tensor", [](const Proto& p) { return p.has_sparse_tensor(); }, true},
    {Proto::SPARSE_TENSORS, "sparse_tensors", [](const Proto& p) { return p.sparse_tensors_size() > 0; }, false},
    {Proto::TYPE_PROTO, "tp", [](const Proto& p) { return p.has_tp(); }, true},
    {Proto::TYPE_PROTOS, "type_protos", [](const Proto& p) { return p.type_protos_size() > 0; }, false},
};

std::string_view type_name(int type) {
  for (const FieldRow& row : fields)
    if (row.type == type) return row.name;
  return "undefined";
}

template <class To, class List>
std::vector<To> list_of(const List& from) {
  return std::vector<To>(from.begin(), from.end());
}

template <class Number>
Tensor tensor_of(DType dtype, std::span<const Number> numbers, bool scalar) {
  return Tensor::of<Number>(dtype, scalar ? Shape{} : Shape{static_cast<int64_t>(numbers.size())}, numbers);
}

/// The element type of the tensors in a type, as a number of TensorProto.DataType.
int64_t element_type(const onnx::TypeProto& type) {
  if (type.has_sequence_type()) return element_type(type.sequence_type().elem_type());
  if (type.has_optional_type()) return element_type(type.optional_type().elem_type());
  return type.tensor_type().elem_type();
}

}  // namespace

void check_attribute(const Proto& proto) {
  if (proto.name().empty()) throw Error(Code::bad_model, "an attribute has no name");
  auto fail = [&](const std::string& what) {
    return Error(Code::bad_model, cat("attribute ", quote(proto.name()), " ", what));
  };
  bool reference = !proto.ref_attr_name().empty();
  if (!reference && proto.type() == Proto::UNDEFINED) throw fail("has no type, or one that ONNX does not define");
  for (const FieldRow& row : fields) {
    bool set = row.set(proto);
    if (set && reference) throw fail(cat("refers to another, but its field ", row.name, " is set too"));
    if (set && row.type != proto.type())
      throw fail(cat("specifies that its value is in field ", type_name(proto.type()), ", but ", row.name, " is set"));
    if (!set && !reference && row.message && row.type == proto.type())
      throw fail(cat("specifies that its value is in field ", row.name, ", which is not set"));
  }
}

bool is_graph(const Proto& proto) { return proto.type() == Proto::GRAPH; }

Attribute read_attribute(const Proto& proto, TensorReader& tensors) {
  switch (proto.type()) {
    case Proto::FLOAT: return static_cast<double>(proto.f());
    case Proto::INT: return static_cast<int64_t>(proto.i());
    case Proto::STRING: return proto.s();
    case Proto::FLOATS: return list_of<double>(proto.floats());
    case Proto::INTS: return list_of<int64_t>(proto.ints());
    case Proto::STRINGS: return list_of<std::string>(proto.strings());
    case Proto::TENSOR:
      try {
        return tensors.read(proto.t());
      } catch (const Error& error) {
        throw error.at(cat("attribute ", quote(proto.name())));
      }
    case Proto::TYPE_PROTO: return element_type(proto.tp());
    default:
      throw Error(Code::unsupported, cat("attribute ", quote(proto.name()), " is of a kind that Plait does not read",
                                         " (field ", type_name(proto.type()), ")"));
  }
}

Tensor read_constant(const std::string& name, const Proto& proto, TensorReader& tensors) {
  auto expect = [&](int type) {
    if (proto.type() == type) return;
    throw Error(Code::bad_model, cat("attribute ", quote(name), " has its value in field ", type_name(proto.type()),
                                     ", expected ", type_name(type)));
  };
  if (name == "value") {
    expect(Proto::TENSOR);
    return std::get<Tensor>(read_attribute(proto, tensors));
  }
  if (name == "value_float") {
    expect(Proto::FLOAT);
    float number = proto.f();
    return tensor_of<float>(DType::f32, {&number, 1}, true);
  }
  if (name == "value_floats") {
    expect(Proto::FLOATS);
    return tensor_of<float>(DType::f32, {proto.floats().data(), static_cast<size_t>(proto.floats_size())}, false);
  }
  if (name == "value_int") {
    expect(Proto::INT);
    int64_t number = proto.i();
    return tensor_of<int64_t>(DType::i64, {&number, 1}, true);
  }
  if (name == "value_ints") {
    expect(Proto::INTS);
    return Tensor::of_ints(list_of<int64_t>(proto.ints()));
  }
  if (name == "value_string") {
    expect(Proto::STRING);
    return packed_strings(Shape{}, std::vector<std::string_view>{proto.s()});
  }
  if (name == "value_strings") {
    expect(Proto::STRINGS);
    const std::vector<std::string_view> texts(proto.strings().begin(), proto.strings().end());
    return packed_strings(Shape{proto.strings_size()}, texts);
  }
  if (name == "sparse_value") throw Error(Code::unsupported, "sparse constants");
  throw Error(Code::bad_model, cat("Constant has no attribute ", quote(name)));
}

int64_t attribute_cost(const Proto& proto) {
  return 4 + proto.ints_size() + proto.floats_size() + proto.strings_size() * 4 +
         static_cast<int64_t>(proto.name().size() + proto.s().size()) / 8;
}

}  // namespace plait::onnx_import
