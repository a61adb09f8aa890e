#include "importers/decoder/graph_writer.h"

#include <onnx-ml.pb.h>

#include <cstring>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait::decoder {
namespace {

constexpr int64_t opset = 23, ir_version = 11;
constexpr const char* microsoft_domain = "com.microsoft";

void set_sizes(onnx::ValueInfoProto& out, DType dtype, const std::vector<Size>& sizes) {
  auto& type = *out.mutable_type()->mutable_tensor_type();
  type.set_elem_type(static_cast<int32_t>(dtype));
  type.mutable_shape();
  for (const Size& size : sizes) {
    auto& dim = *type.mutable_shape()->add_dim();
    if (const auto* number = std::get_if<int64_t>(&size)) dim.set_dim_value(*number);
    else dim.set_dim_param(std::get<std::string>(size));
  }
}

void set_attribute(onnx::AttributeProto& out, const Attribute& attribute) {
  out.set_name(attribute.name);
  if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
    out.set_type(onnx::AttributeProto::INT);
    out.set_i(*integer);
  } else if (const auto* real = std::get_if<double>(&attribute.value)) {
    out.set_type(onnx::AttributeProto::FLOAT);
    out.set_f(static_cast<float>(*real));
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    out.set_type(onnx::AttributeProto::STRING);
    out.set_s(*text);
  } else {
    out.set_type(onnx::AttributeProto::INTS);
    for (const int64_t one : std::get<std::vector<int64_t>>(attribute.value)) out.add_ints(one);
  }
}

}  // namespace

struct GraphWriter::Parts {
  onnx::ModelProto model;
  std::string scope;
  std::map<std::string, int64_t> counts;         ///< of node names
  std::map<std::string, std::string> constants;  ///< by type, shape and bytes
  std::map<const std::byte*, size_t> blobs;      ///< by their beginning: which of `data`
  std::vector<std::shared_ptr<const Blob>> data;
  std::set<std::string> weights;

  onnx::GraphProto& graph() { return *model.mutable_graph(); }

  std::string unique(const std::string& name) {
    const int64_t count = counts[name]++;
    return count ? cat(name, "_", count) : name;
  }

  std::vector<std::string> node(const std::string& domain, const std::vector<std::string>& outputs,
                                const std::string& type, const std::vector<std::string>& inputs,
                                const Attributes& attributes) {
    auto& out = *graph().add_node();
    const std::string name = unique(cat(scope, "/", type));
    out.set_name(name);
    out.set_op_type(type);
    if (!domain.empty()) out.set_domain(domain);
    for (const std::string& input : inputs) out.add_input(input);
    std::vector<std::string> made;
    for (size_t i = 0; i < outputs.size(); ++i) {
      made.push_back(outputs[i].empty() ? cat(name, "_output_", i) : outputs[i]);
      out.add_output(made.back());
    }
    for (const Attribute& attribute : attributes) set_attribute(*out.add_attribute(), attribute);
    return made;
  }

  /// `bytes`: elements of the dtype; a scalar without sizes.
  std::string constant(DType dtype, const std::vector<int64_t>& sizes, const void* elements, size_t bytes) {
    std::string content(static_cast<const char*>(elements), bytes);
    std::string& name = constants[cat(dtype_name(dtype), sizes.size(), ":", content)];
    if (!name.empty()) return name;
    name = cat("constant_", constants.size() - 1);
    auto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(static_cast<int32_t>(dtype));
    for (const int64_t size : sizes) tensor.add_dims(size);
    tensor.set_raw_data(std::move(content));
    return name;
  }

  static std::string file_of(size_t number) { return cat("weights_", number); }
};

GraphWriter::GraphWriter() : parts_(std::make_unique<Parts>()) {
  parts_->model.set_ir_version(ir_version);
  parts_->model.set_producer_name("plait");
  parts_->model.add_opset_import()->set_version(opset);
  auto& other = *parts_->model.add_opset_import();
  other.set_domain(microsoft_domain);
  other.set_version(1);
  parts_->graph().set_name("decoder");
}

GraphWriter::~GraphWriter() = default;

std::string GraphWriter::input(const std::string& name, DType dtype, const std::vector<Size>& sizes) {
  auto& out = *parts_->graph().add_input();
  out.set_name(name);
  set_sizes(out, dtype, sizes);
  return name;
}

void GraphWriter::output(const std::string& name, DType dtype, const std::vector<Size>& sizes) {
  auto& out = *parts_->graph().add_output();
  out.set_name(name);
  set_sizes(out, dtype, sizes);
}

std::string GraphWriter::op(const std::string& type, const std::vector<std::string>& inputs,
                            const Attributes& attributes) {
  return parts_->node("", {""}, type, inputs, attributes)[0];
}

std::string GraphWriter::microsoft(const std::string& type, const std::vector<std::string>& inputs,
                                   const Attributes& attributes) {
  return parts_->node(microsoft_domain, {""}, type, inputs, attributes)[0];
}

std::string GraphWriter::op_to(const std::vector<std::string>& outputs, const std::string& type,
                               const std::vector<std::string>& inputs, const Attributes& attributes) {
  return parts_->node("", outputs, type, inputs, attributes)[0];
}

std::string GraphWriter::constant(int64_t value) { return parts_->constant(DType::i64, {}, &value, sizeof value); }
std::string GraphWriter::constants(const std::vector<int64_t>& values) {
  return parts_->constant(DType::i64, {static_cast<int64_t>(values.size())}, values.data(),
                          values.size() * sizeof(int64_t));
}
std::string GraphWriter::number(float value) { return parts_->constant(DType::f32, {}, &value, sizeof value); }
std::string GraphWriter::numbers(const std::vector<float>& values) {
  return parts_->constant(DType::f32, {static_cast<int64_t>(values.size())}, values.data(),
                          values.size() * sizeof(float));
}

std::string GraphWriter::weight(const std::string& name, const Tensor& tensor) {
  if (!parts_->weights.insert(name).second) return name;
  const std::shared_ptr<const Blob>& blob = tensor.blob();
  const auto [found, fresh] = parts_->blobs.try_emplace(blob->data(), parts_->data.size());
  if (fresh) parts_->data.push_back(blob);
  auto& out = *parts_->graph().add_initializer();
  out.set_name(name);
  out.set_data_type(static_cast<int32_t>(tensor.dtype()));
  for (const int64_t size : tensor.shape()) out.add_dims(size);
  out.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto entry = [&](const char* key, const std::string& value) {
    auto& row = *out.add_external_data();
    row.set_key(key);
    row.set_value(value);
  };
  entry("location", Parts::file_of(found->second));
  entry("offset", std::to_string(reinterpret_cast<const std::byte*>(tensor.data()) - blob->data()));
  entry("length", std::to_string(tensor.bytes()));
  return name;
}

GraphWriter::Scope::Scope(GraphWriter& writer, const std::string& name)
    : writer_(writer), length_(writer.parts_->scope.size()) {
  writer_.parts_->scope += "/" + name;
}
GraphWriter::Scope::~Scope() { writer_.parts_->scope.resize(length_); }

std::vector<NamedBlob> GraphWriter::files() const {
  const std::string text = parts_->model.SerializeAsString();
  auto bytes = make_blob(static_cast<int64_t>(text.size()));
  std::memcpy(bytes->mutable_data(), text.data(), text.size());
  std::vector<NamedBlob> out{{"model.onnx", bytes}};
  for (size_t i = 0; i < parts_->data.size(); ++i) out.push_back({Parts::file_of(i), parts_->data[i]});
  return out;
}

}  // namespace plait::decoder
