#include "importers/onnx/block_weights.h"

#include <onnx-ml.pb.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/onnx/wire.h"

namespace plait {
namespace {

using namespace onnx_import;

constexpr const char* microsoft = "com.microsoft";

onnx::ModelProto slim(const std::shared_ptr<const Blob>& original) {
  onnx::ModelProto out;
  if (!out.ParseFromString(slim_model({original->data(), static_cast<size_t>(original->size())})))
    throw Error(Code::bad_model, "not a valid ONNX file: its graph is malformed");
  return out;
}

/// The operand of a node that is its weight; -1 for nodes of other kinds.
int weight_operand(const onnx::NodeProto& node) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return -1;
  if (node.op_type() == "MatMul" || node.op_type() == "Gemm") return node.input_size() > 1 ? 1 : -1;
  return node.op_type() == "Gather" && node.input_size() > 1 ? 0 : -1;
}

/// How often each value is read, in the graph and the bodies of its nodes.
void count_readers(const onnx::GraphProto& graph, std::map<std::string, int64_t>& readers) {
  for (const auto& node : graph.node()) {
    for (const std::string& name : node.input()) ++readers[name];
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) count_readers(attribute.g(), readers);
      for (const auto& body : attribute.graphs()) count_readers(body, readers);
    }
  }
  for (const auto& output : graph.output()) ++readers[output.name()];
}

/// What is not read any more once some operands are gone: nodes by their first output, and initializers.
class Unread {
 public:
  explicit Unread(const onnx::GraphProto& graph) {
    count_readers(graph, readers_);
    for (const auto& node : graph.node())
      if (node.output_size()) makers_[node.output(0)] = &node;
    for (const auto& input : graph.input()) inputs_.insert(input.name());
  }

  void drop_read(const std::string& value) {
    if (--readers_[value] > 0 || inputs_.contains(value)) return;
    const auto maker = makers_.find(value);
    if (maker == makers_.end()) {
      values_.insert(value);
    } else if (maker->second->output_size() == 1) {
      values_.insert(value);
      for (const std::string& name : maker->second->input()) drop_read(name);
    }
  }
  bool has(const std::string& value) const { return values_.contains(value); }

 private:
  std::map<std::string, int64_t> readers_;
  std::map<std::string, const onnx::NodeProto*> makers_;
  std::set<std::string> inputs_, values_;
};

void set_integer(onnx::NodeProto& node, const char* name, int64_t value) {
  auto& out = *node.add_attribute();
  out.set_name(name);
  out.set_type(onnx::AttributeProto::INT);
  out.set_i(value);
}

constexpr const char* original_location = "blocks/original";

void put_outside(onnx::TensorProto& out, const std::string& location, int64_t offset, int64_t bytes) {
  out.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : {std::pair<const char*, std::string>{"location", location},
                                   {"offset", std::to_string(offset)},
                                   {"length", std::to_string(bytes)}}) {
    auto& row = *out.add_external_data();
    row.set_key(key);
    row.set_value(value);
  }
}

/// Writes weights as external tensors, whose bytes the resolver gives.
class WeightWriter {
 public:
  explicit WeightWriter(onnx::GraphProto& added, std::set<std::string> taken)
      : added_(added), taken_(std::move(taken)) {}

  struct Names {
    std::string codes, rows, scales, zeros;  ///< `rows`: the codes as a table of bytes [n, ...]
  };
  /// The same weight again has the same names.
  Names names_of(const std::string& prefix, const BlockWeight& weight, bool table) {
    Names& out = written_[&weight];
    if (out.scales.empty()) {
      out.scales = add(prefix + "_scales", weight.scales);
      if (weight.zeros) out.zeros = add(prefix + "_zeros", *weight.zeros);
    }
    if (table && out.rows.empty())
      out.rows = add(prefix + "_rows", weight.codes.reshaped({weight.n, weight.codes.elements() / weight.n}));
    if (!table && out.codes.empty()) out.codes = add(prefix + "_codes", weight.codes);
    return out;
  }

  std::map<std::string, std::shared_ptr<const Blob>> blobs;  ///< by location

 private:
  std::string add(std::string name, const Tensor& tensor) {
    while (!taken_.insert(name).second) name += "_";
    auto& out = *added_.add_initializer();
    out.set_name(name);
    out.set_data_type(static_cast<int32_t>(tensor.dtype()));
    for (const int64_t size : tensor.shape()) out.add_dims(size);
    std::string& location = locations_[tensor.blob().get()];
    if (location.empty()) location = cat("blocks/", locations_.size());
    blobs[location] = tensor.blob();
    put_outside(out, location, tensor.offset(), tensor.bytes());
    return name;
  }

  onnx::GraphProto& added_;
  std::set<std::string> taken_;  ///< names of the file's values
  std::map<const Blob*, std::string> locations_;
  std::map<const BlockWeight*, Names> written_;
};

/// The node with its weight in blocks.
onnx::NodeProto in_blocks(const onnx::NodeProto& node, const BlockWeight& weight, WeightWriter& writer) {
  onnx::NodeProto out = node;
  const bool table = node.op_type() == "Gather";
  const std::string prefix = node.input(weight_operand(node));
  const WeightWriter::Names names = writer.names_of(prefix, weight, table);
  out.set_domain(microsoft);
  out.set_op_type(table ? "GatherBlockQuantized" : "MatMulNBits");
  out.clear_input();
  out.clear_attribute();
  set_integer(out, "bits", weight.bits);
  set_integer(out, "block_size", weight.block);
  if (table) {
    for (const std::string& one : {names.rows, node.input(1), names.scales}) out.add_input(one);
    set_integer(out, "gather_axis", 0);
    set_integer(out, "quantize_axis", 1);
  } else {
    for (const std::string& one : {node.input(0), names.codes, names.scales}) out.add_input(one);
    set_integer(out, "K", weight.k);
    set_integer(out, "N", weight.n);
    set_integer(out, "accuracy_level", 1);  // activations are not rounded
  }
  if (!names.zeros.empty()) out.add_input(names.zeros);
  if (node.op_type() == "Gemm" && node.input_size() > 2 && !node.input(2).empty()) {
    while (out.input_size() < 5) out.add_input("");  // zero_points, g_idx
    out.add_input(node.input(2));
  }
  return out;
}

/// Names of all values of a graph and its bodies.
void collect_names(const onnx::GraphProto& graph, std::set<std::string>& out) {
  for (const auto& one : graph.initializer()) out.insert(one.name());
  for (const auto& one : graph.input()) out.insert(one.name());
  for (const auto& node : graph.node()) {
    out.insert(node.output().begin(), node.output().end());
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) collect_names(attribute.g(), out);
      for (const auto& body : attribute.graphs()) collect_names(body, out);
    }
  }
}

}  // namespace

std::set<std::string> outputs_with_weights(const std::shared_ptr<const Blob>& original) {
  const onnx::ModelProto model = slim(original);
  std::set<std::string> out;
  for (const auto& node : model.graph().node())
    if (weight_operand(node) >= 0 && node.output_size() == 1) out.insert(node.output(0));
  return out;
}

RewrittenModel with_block_weights(const std::shared_ptr<const Blob>& original, const ExternalResolver& data,
                                  const BlockWeights& weights) {
  const onnx::ModelProto model = slim(original);
  std::set<std::string> names;
  collect_names(model.graph(), names);
  onnx::ModelProto added;
  WeightWriter writer(*added.mutable_graph(), std::move(names));
  std::map<std::string, std::string> nodes;  // by output, serialised
  Unread unread(model.graph());
  for (const auto& node : model.graph().node()) {
    const auto found = node.output_size() == 1 ? weights.find(node.output(0)) : weights.end();
    if (found == weights.end() || weight_operand(node) < 0) continue;
    nodes[node.output(0)] = in_blocks(node, *found->second, writer).SerializeAsString();
    unread.drop_read(node.input(weight_operand(node)));
  }
  for (const auto& [output, weight] : weights)
    if (!nodes.contains(output))
      throw Error(Code::unsupported, cat("no product or lookup of the main graph makes ", quote(output)));

  ModelChange change;
  change.tensor = [&](std::string bytes, TensorPlace place) {
    onnx::TensorProto proto;
    if (!proto.ParseFromString(bytes)) return bytes;
    if (place == TensorPlace::initializer && unread.has(proto.name())) return std::string();
    if (!proto.has_raw_data()) return bytes;
    // Bytes of the file stay there.
    const RawRange range = raw_range(proto.raw_data());
    proto.clear_raw_data();
    if (range.size == 0) proto.set_raw_data("");
    else put_outside(proto, original_location, range.offset, range.size);
    return proto.SerializeAsString();
  };
  change.node = [&](std::string bytes, const BodyNames& bodies) {
    onnx::NodeProto node;
    if (!bodies.empty() || !node.ParseFromString(bytes) || node.output_size() == 0) return bytes;
    if (const auto found = nodes.find(node.output(0)); found != nodes.end()) return found->second;
    return unread.has(node.output(0)) ? std::string() : bytes;
  };
  const auto& imports = model.opset_import();
  if (std::none_of(imports.begin(), imports.end(), [](const auto& one) { return one.domain() == microsoft; })) {
    auto& one = *added.add_opset_import();
    one.set_domain(microsoft);
    one.set_version(1);
  }
  writer.blobs[original_location] = original;
  // Messages written one after the other are one: initializers and opsets are appended.
  const std::string text =
      changed_model({original->data(), static_cast<size_t>(original->size())}, change) + added.SerializeAsString();
  return {copy_blob(std::as_bytes(std::span(text))),
          [data, blobs = std::move(writer.blobs)](const std::string& location) {
            const auto found = blobs.find(location);
            return found != blobs.end() ? found->second : data ? data(location) : nullptr;
          }};
}

}  // namespace plait
