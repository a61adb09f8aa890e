#pragma once
// Makes small ONNX files for tests: valid ones in a few lines, and broken ones through the messages themselves.
#include <gtest/gtest.h>
#include <onnx-ml.pb.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "importers/onnx/import.h"

namespace plait {

using Names = std::vector<std::string>;

/// The ops that these tests use, as rows of their own: the importer is tested without core/ops.
inline OpSet test_ops() {
  OpSet ops;
  auto add = [&](std::string name, std::string inputs, std::string outputs,
                 std::vector<AttributeRow> attributes = {}) {
    OpSchema row;
    row.name = std::move(name);
    row.inputs = std::move(inputs);
    row.outputs = std::move(outputs);
    row.attributes = std::move(attributes);
    ops.add(std::move(row));
  };
  for (const char* op : {"Add", "Sub", "Mul", "Div", "MatMul", "CastLike", "GreaterOrEqual"}) add(op, "a b", "c");
  for (const char* op : {"Identity", "Neg", "Relu"}) add(op, "x", "y");
  for (const char* op : {"Softmax", "LogSoftmax", "Flatten"}) add(op, "x", "y", {{"axis", "int", "-1"}});
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax"})
    add(op, "data axes?", "y", {{"keepdims", "int", "1"}});
  add("Squeeze", "data axes?", "y");
  add("Where", "condition x y", "z");
  add("RandomUniformLike", "x", "y", {{"seed", "float", ""}});
  add("Resize", "x roi? scales? sizes?", "y",
      {{"coordinate_transformation_mode", "string", ""}, {"mode", "string", ""}, {"nearest_mode", "string", ""}});
  add("Unsqueeze", "data axes", "y");
  add("Clip", "x min? max?", "y");
  add("Pad", "data pads value? axes?", "y", {{"mode", "string", "constant"}});
  add("Slice", "data starts ends axes? steps?", "y");
  add("Gather", "data indices", "y", {{"axis", "int", "0"}});
  add("Split", "x split?", "y...", {{"axis", "int", "0"}, {"num_outputs", "int", ""}});
  add("TopK", "x k", "values indices", {{"axis", "int", "-1"}});
  add("Reshape", "data shape", "y", {{"allowzero", "int", "0"}});
  add("Shape", "data", "y");
  add("Cast", "x", "y", {{"to", "int", "required"}});
  add("Concat", "x...", "y", {{"axis", "int", "required"}});
  add("ConstantOfShape", "shape", "y", {{"value", "tensor", ""}});
  add("ScatterElements", "data indices updates", "y", {{"axis", "int", "0"}});
  add("Gemm", "a b c?", "y", {{"alpha", "float", "1"}, {"transB", "int", "0"}});
  add("If", "cond captures?...", "y...",
      {{"then_branch", "graph", "required"}, {"else_branch", "graph", "required"}});
  add("Loop", "trips? cond? v?...", "y?...",
      {{"body", "graph", "required"}, {"carried", "int", ""}, {"empty_sizes", "ints", ""}});
  add("com.microsoft.Known", "x", "y", {{"scale", "float", ""}});
  add("com.microsoft.SimplifiedLayerNormalization", "x scale", "y",
      {{"axis", "int", "-1"}, {"epsilon", "float", ""}});
  add("Scan", "x...", "y...", {{"body", "graph", "required"}, {"num_scan_inputs", "int", "required"}});
  ops.add({.name = "SplitToSequence", .inputs = "input split?", .outputs = "sequence", .makes_sequence = true});
  ops.claim("Scan", 9, "");  // its row in core/ops/claims.cpp
  return ops;
}

/// Heap bytes that live as long as the tensors over them.
inline std::shared_ptr<const Blob> blob_of(const std::string& text) {
  return copy_blob({reinterpret_cast<const std::byte*>(text.data()), text.size()});
}

inline onnx::NodeProto& add_node(google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes, const std::string& op,
                                 const Names& inputs, const Names& outputs) {
  auto& node = *nodes.Add();
  node.set_op_type(op);
  for (const auto& name : inputs) node.add_input(name);
  for (const auto& name : outputs) node.add_output(name);
  return node;
}

template <class Message>  // a NodeProto, or a FunctionProto's default
onnx::AttributeProto& add_attribute(Message& node, const std::string& name,
                                    onnx::AttributeProto::AttributeType type) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(type);
  return attribute;
}
inline void set_int(onnx::NodeProto& node, const std::string& name, int64_t value) {
  add_attribute(node, name, onnx::AttributeProto::INT).set_i(value);
}
inline void set_string(onnx::NodeProto& node, const std::string& name, const std::string& value) {
  add_attribute(node, name, onnx::AttributeProto::STRING).set_s(value);
}
inline void set_float(onnx::NodeProto& node, const std::string& name, float value) {
  add_attribute(node, name, onnx::AttributeProto::FLOAT).set_f(value);
}
inline void set_ints(onnx::NodeProto& node, const std::string& name, const std::vector<int64_t>& values) {
  auto& attribute = add_attribute(node, name, onnx::AttributeProto::INTS);
  for (int64_t value : values) attribute.add_ints(value);
}
inline onnx::GraphProto& set_graph(onnx::NodeProto& node, const std::string& name) {
  return *add_attribute(node, name, onnx::AttributeProto::GRAPH).mutable_g();
}
inline void set_reference(onnx::NodeProto& node, const std::string& name, const std::string& of,
                          onnx::AttributeProto::AttributeType type) {
  add_attribute(node, name, type).set_ref_attr_name(of);
}

/// Sizes that are no numbers become dim_params.
inline void set_type(onnx::ValueInfoProto& info, int dtype, const Names& dims) {
  auto& tensor = *info.mutable_type()->mutable_tensor_type();
  tensor.set_elem_type(dtype);
  tensor.mutable_shape();
  for (const auto& dim : dims) {
    auto& size = *tensor.mutable_shape()->add_dim();
    bool number = !dim.empty() && dim.find_first_not_of("-0123456789") == std::string::npos;
    if (number) size.set_dim_value(std::stoll(dim));
    else size.set_dim_param(dim);
  }
}

struct ModelBuilder {
  onnx::ModelProto model;

  explicit ModelBuilder(int64_t opset = 23) {
    model.set_ir_version(10);
    import_opset("", opset);
    model.mutable_graph()->set_name("g");
  }
  void import_opset(const std::string& domain, int64_t version) {
    auto& entry = *model.add_opset_import();
    entry.set_domain(domain);
    entry.set_version(version);
  }
  onnx::GraphProto& graph() { return *model.mutable_graph(); }
  onnx::NodeProto& node(const std::string& op, const Names& inputs, const Names& outputs,
                        const std::string& domain = "") {
    auto& out = add_node(*graph().mutable_node(), op, inputs, outputs);
    if (!domain.empty()) out.set_domain(domain);
    return out;
  }
  onnx::ValueInfoProto& input(const std::string& name, const Names& dims = {"b", "4"}, int dtype = 1) {
    auto& info = *graph().add_input();
    info.set_name(name);
    set_type(info, dtype, dims);
    return info;
  }
  void output(const std::string& name) { graph().add_output()->set_name(name); }
  onnx::TensorProto& initializer(const std::string& name, int dtype, const std::vector<int64_t>& dims) {
    auto& tensor = *graph().add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(dtype);
    for (int64_t dim : dims) tensor.add_dims(dim);
    return tensor;
  }
  /// An initializer with external data.
  onnx::TensorProto& external(const std::string& name, const std::vector<int64_t>& dims,
                              const std::vector<std::pair<std::string, std::string>>& items) {
    auto& tensor = initializer(name, 1, dims);
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : items) {
      auto& item = *tensor.add_external_data();
      item.set_key(key);
      item.set_value(value);
    }
    return tensor;
  }
  onnx::FunctionProto& function(const std::string& name, const Names& inputs, const Names& outputs,
                                const std::string& domain = "local") {
    auto& out = *model.add_functions();
    out.set_name(name);
    out.set_domain(domain);
    for (const auto& input : inputs) out.add_input(input);
    for (const auto& output : outputs) out.add_output(output);
    for (const auto& entry : model.opset_import()) *out.add_opset_import() = entry;
    return out;
  }

  std::string bytes() const { return model.SerializeAsString(); }
  /// Imports and checks what every later pass relies on.
  ImportedModel import(const ExternalResolver& resolver = {}) const {
    ImportedModel out = import_bytes(blob_of(bytes()), resolver, test_ops());
    verify(out.graph, "import");
    return out;
  }
};

/// Runs `action`, which must throw an Error of `code` whose message holds all `parts`.
template <class Action>
void expect_error(Code code, const Names& parts, Action action) {
  try {
    action();
    ADD_FAILURE() << "no error was thrown; expected one that contains " << (parts.empty() ? "anything" : parts[0]);
  } catch (const Error& error) {
    EXPECT_EQ(code_name(error.code()), code_name(code)) << error.message();
    for (const auto& part : parts)
      EXPECT_NE(error.message().find(part), std::string::npos) << error.message() << "\n  lacks: " << part;
  }
}
inline void expect_bad(const ModelBuilder& builder, const Names& parts) {
  expect_error(Code::bad_model, parts, [&] { builder.import(); });
}
inline void expect_unsupported(const ModelBuilder& builder, const Names& parts) {
  expect_error(Code::unsupported, parts, [&] { builder.import(); });
}

/// The ops of the nodes in their order.
inline Names ops_of(const Graph& graph) {
  Names out;
  for (const Node& node : graph.nodes) out.push_back(node.op);
  return out;
}
/// The names of the values.
inline Names names_of(const Graph& graph, const std::vector<ValueId>& ids) {
  Names out;
  for (ValueId id : ids) out.push_back(id == no_value ? "" : graph.value(id).name);
  return out;
}
inline std::vector<int64_t> ints_of(const Graph& graph, ValueId id) { return to_ints(graph.constant(id)->view()); }

/// A folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plait-import-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace plait
