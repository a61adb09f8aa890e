// Nodes in GraphBuilder.
#include "importers/onnx/graph_builder.h"

#include <onnx-ml.pb.h>

#include <algorithm>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/base/load_progress.h"
#include "core/base/text.h"
#include "importers/onnx/attribute_reader.h"
#include "importers/onnx/lists.h"
#include "importers/onnx/opset_map.h"
#include "importers/onnx/sequences.h"
#include "importers/onnx/unknown_ops.h"
#include "importers/onnx/wire.h"

namespace plait::onnx_import {
namespace {

bool is_constant(const onnx::NodeProto& proto) {
  return proto.op_type() == "Constant" && canonical_domain(proto.domain()).empty();
}

int64_t cost_of(const onnx::NodeProto& proto) {
  return 16 + 2 * (proto.input_size() + proto.output_size()) + static_cast<int64_t>(proto.name().size()) / 8;
}

bool is_identifier(std::string_view text, std::string_view also) {
  return std::all_of(text.begin(), text.end(), [also](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           also.find(letter) != std::string_view::npos;
  });
}

/// Node::op of an op. ONNX Runtime's tools write some of their own ops into ONNX's domain.
std::string op_name(const std::string& domain, const std::string& op) {
  // Messages print Node::op unchanged, and a dot in it would name another domain's op.
  if (op.empty() || !is_identifier(op, "_"))
    throw Error(Code::bad_model, cat("the op type ", quote(op), " is no identifier"));
  if (!is_identifier(domain, "_.-")) throw Error(Code::bad_model, cat("the domain ", quote(domain), " is no name"));
  // Plait's own ops have requirements that files cannot know, such as outputs that share memory with inputs.
  if (domain == "plait") throw Error(Code::unsupported, "the domain \"plait\" is not for files");
  if (domain.empty() && op == "SimplifiedLayerNormalization") return "com.microsoft." + op;
  return domain.empty() ? op : cat(domain, ".", op);
}

/// "layers.0.mlp.up" of ": my.Model/layers.0: my.Layer/layers.0.mlp: my.Mlp/layers.0.mlp.up: torch.nn.Linear/linear:
/// aten.linear": the modules around a call, from the outermost in, and the call. For a model of transformers in a
/// wrapper, as in exports with a cache, the path within the model. "" for other texts.
std::string module_of_scopes(std::string_view text) {
  constexpr std::string_view mark = ": ", library = "transformers.";
  std::vector<std::string> scopes = split(text, '/');
  scopes.pop_back();
  std::string path, model;
  bool in_model = false;
  for (const std::string& scope : scopes) {
    const size_t end = scope.find(mark);
    if (end == std::string::npos) return {};
    path = scope.substr(0, end);
    if (in_model || scope.compare(end + mark.size(), library.size(), library) != 0) continue;
    model = path;
    in_model = true;
  }
  if (model.empty()) return path;
  return path.starts_with(model + ".") ? path.substr(model.size() + 1) : std::string();
}

void check_body_names(const OpSchema& row, const Node& node) {
  for (const auto& [name, body] : node.bodies)
    if (std::none_of(row.attributes.begin(), row.attributes.end(),
                     [&name = name](const AttributeRow& a) { return a.name == name && a.kind == "graph"; }))
      throw Error(Code::bad_model, cat(row.name, " has no attribute ", quote(name), " that is a graph"));
}

/// Before opset 9 the lengths of a Scan's sequences, one for each sample, were its first operand.
ValueId take_lengths(Node& node) {
  if (node.inputs.empty()) throw Error(Code::bad_model, "Scan has no inputs");
  const ValueId out = node.inputs[0];
  node.inputs.erase(node.inputs.begin());
  return out;
}

/// A Scan over one sample, whose sequences are the first `length` elements of `sequences`, and its results are filled up with zeros.
class ShortScan {
 public:
  /// `length` is a scalar.
  ShortScan(Graph& sample, const Node& node, ValueId length, ValueId sequence) : sample_(sample), opset_(node.opset) {
    zero_ = numbers({0});
    length_ = add("Unsqueeze", {length, zero_});
    Attributes first;
    first.set("start", int64_t{0});
    first.set("end", int64_t{1});
    missing_ = add("Sub", {add("Shape", {sequence}, std::move(first)), length_});
  }
  ValueId cut(ValueId sequence) { return add("Slice", {sequence, zero_, length_, zero_}); }
  ValueId filled(ValueId result) {
    Attributes axis;
    axis.set("axis", int64_t{0});
    return add("Pad", {result, add("Concat", {zero_, missing_}, std::move(axis)), no_value, zero_});
  }

 private:
  ValueId numbers(const std::vector<int64_t>& values) { return sample_.add_constant(Tensor::of_ints(values)); }
  ValueId add(const char* op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    Node& node = sample_.add_node(op, std::move(inputs), 1, std::move(attributes));
    node.opset = opset_;
    return node.outputs[0];
  }

  Graph& sample_;
  int32_t opset_;
  ValueId zero_ = no_value, length_ = no_value, missing_ = no_value;
};

/// Such a Scan has a batch as first dim of all states and sequences: a Scan over samples, whose body is a Scan over one sample. `own`:
/// inputs without captures.
void scan_each_sample(Node& node, size_t own, ValueId lengths) {
  const int64_t scanned = node.attributes.integer("num_scan_inputs", 0), states = static_cast<int64_t>(own) - scanned;
  if (scanned < 1 || states < 0)
    throw Error(Code::bad_model, cat("attribute \"num_scan_inputs\" is ", scanned, ", of ", own, " states and sequences"));
  auto sample = std::make_shared<Graph>();
  std::vector<ValueId> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) operands.push_back(sample->add_value({}));
  sample->inputs = operands;
  std::optional<ShortScan> shortened;
  const auto first = static_cast<size_t>(states);
  if (lengths != no_value) {
    const ValueId length = sample->add_value({});
    sample->inputs.insert(sample->inputs.begin() + static_cast<std::ptrdiff_t>(own), length);
    node.inputs.insert(node.inputs.begin() + static_cast<std::ptrdiff_t>(own), lengths);
    shortened.emplace(*sample, node, length, operands[first]);
    for (size_t i = first; i < own; ++i) operands[i] = shortened->cut(operands[i]);
  }
  Attributes attributes;
  attributes.set("num_scan_inputs", scanned);
  attributes.set("carried", states);
  if (node.attributes.has("directions")) attributes.set("scan_input_directions", node.attributes.integers("directions"));
  Node& inner = sample->add_node("Scan", std::move(operands), static_cast<int>(node.outputs.size()), std::move(attributes));
  inner.bodies = std::move(node.bodies);
  inner.name = node.name;
  inner.opset = node.opset;
  sample->outputs = inner.outputs;
  for (size_t i = first; shortened && i < sample->outputs.size(); ++i)
    sample->outputs[i] = shortened->filled(sample->outputs[i]);
  node.bodies = {{"body", std::move(sample)}};
  node.attributes.erase("directions");
  node.attributes.set("num_scan_inputs", static_cast<int64_t>(own) + (lengths != no_value));
  node.attributes.set("carried", int64_t{0});
}

/// Operands and attributes of an op of com.microsoft that is read as others. ONNX's own have older forms than their rows.
void check_replaced(const OpSet& ops, const Node& node) {
  const auto row = ops.all().find(node.op);
  if (row != ops.all().end() && !row->second.written_as.empty() && node.op.starts_with("com.microsoft."))
    check_form(row->second, node);
}

}  // namespace

std::string describe(const Scope& scope, const onnx::NodeProto& proto) {
  std::string op = quote(proto.op_type());
  op = op.substr(1, op.size() - 2);
  if (!proto.name().empty()) return cat("node ", quote(scope.prefix + proto.name()), " (", op, ")");
  for (const std::string& output : proto.output())
    if (!output.empty()) return cat("the node ", op, " that makes ", quote(scope.prefix + output));
  return cat("a node ", op);
}

/// Gives each output an id before any node is read, so that nodes may be in any order. `given` are the ids of the
/// outputs of a function's call.
void GraphBuilder::declare_outputs(Scope& scope, const NodeList& nodes, const std::map<std::string, ValueId>& given) {
  for (const auto& proto : nodes) {
    try {
      for (const std::string& name : proto.output()) {
        if (name.empty()) continue;
        charge(8 + static_cast<int64_t>(name.size()) / 8);
        auto wanted = given.find(name);
        ValueId id =
            wanted != given.end() ? wanted->second : scope.graph.add_value(is_repeated(scope) ? std::string() : name);
        declare(scope, name, id);
      }
      if (!is_constant(proto)) continue;
      if (proto.output_size() != 1 || proto.output(0).empty())
        throw Error(Code::bad_model, "Constant has one output");
      Tensor tensor = constant_of(scope, proto);
      Value& value = scope.graph.value(scope.values.at(proto.output(0)));
      value.type = {tensor.dtype(), Dims(tensor.shape().begin(), tensor.shape().end())};
      Constant literal{is_repeated(scope) ? std::string() : constant_name(value.name), std::move(tensor), {}};
      literal.literal = true;
      value.constant = std::make_shared<Constant>(std::move(literal));
    } catch (const Error& error) {
      throw error.at(describe(scope, proto));
    }
  }
}

void GraphBuilder::build_nodes(Scope& scope, const NodeList& nodes) {
  for (const auto& proto : nodes) {
    if (progress_) progress_->advance(depth_ == 0 ? 1 : 0);
    if (is_constant(proto)) continue;
    charge(cost_of(proto) + static_cast<int64_t>(scope.prefix.size()) / 8);
    std::string domain = canonical_domain(proto.domain());
    auto opset = scope.opsets.find(domain);
    std::string where = describe(scope, proto);
    if (opset == scope.opsets.end())
      throw Error(Code::bad_model,
                  cat(where, ": the model imports no opset of domain ", quote(domain.empty() ? "ai.onnx" : domain)));
    try {
      build_node(scope, proto, domain, opset->second);
    } catch (const Error& error) {
      throw error.at(cat(where, ", domain ", quote(domain.empty() ? "ai.onnx" : domain), " opset ", opset->second));
    }
  }
}

/// A local function replaces an op of ONNX's own domain, as the specification allows; in other domains, where
/// exporters add bodies of ops that engines know, a known op is preferred.
void GraphBuilder::build_node(Scope& scope, const onnx::NodeProto& proto, const std::string& domain, int64_t opset) {
  const int32_t stage = read_devices(scope, proto);
  const Function* function = functions_.find(domain, proto.op_type(), proto.overload());
  if (function && (domain.empty() || !ops_.find(cat(domain, ".", proto.op_type()))))
    return call(scope, proto, *function);

  Node node;
  node.op = op_name(domain, proto.op_type());
  node.name = proto.name().empty() ? std::string() : scope.prefix + proto.name();
  if (!node.name.empty())
    for (const auto& entry : proto.metadata_props())
      if (std::string module = entry.key() == scopes_key ? module_of_scopes(entry.value()) : ""; !module.empty()) {
        charge(8 + static_cast<int64_t>(module.size() + node.name.size()) / 8);
        modules_[node.name] = std::move(module);
      }
  for (const std::string& name : proto.input())
    node.inputs.push_back(name.empty() ? no_value : need(scope, name, "it"));
  for (const std::string& name : proto.output())
    node.outputs.push_back(name.empty() ? no_value : scope.values.at(name));
  std::vector<NamedBody> bodies = read_attributes(scope, proto, node);
  if (bodies.empty())
    while (!node.inputs.empty() && node.inputs.back() == no_value) node.inputs.pop_back();
  node.opset = static_cast<int32_t>(std::min<int64_t>(opset, INT32_MAX));
  node.stage = stage;
  size_t helpers = scope.graph.nodes.size();
  check_opset(ops_, node.op, opset);
  check_replaced(ops_, node);
  if (node.op == "ai.onnx.preview.FlexAttention") {
    read_flex_attention(scope, node, bodies, opset);
    bodies.clear();
  }
  if (node.op == "SequenceMap") read_bodies(scope, node, bodies);
  if (is_sequence_op(node.op)) {
    scope.graph.nodes.push_back(std::move(node));
    return;
  }
  to_newest(scope.graph, node, opset);
  const bool batched = node.op == "Scan" && opset < 9;
  const ValueId lengths = batched ? take_lengths(node) : no_value;
  const size_t own_inputs = node.inputs.size();
  if (!bodies.empty()) read_bodies(scope, node, bodies);
  if (batched && !bodies.empty()) scan_each_sample(node, own_inputs, lengths);
  for (size_t i = helpers; i < scope.graph.nodes.size(); ++i) {
    if (scope.graph.nodes[i].opset == 0) scope.graph.nodes[i].opset = node.opset;  // not of an inlined body
    scope.graph.nodes[i].stage = node.stage;
    check_node(ops_, scope.graph.nodes[i]);
  }
  refuse_unknown(ops_, scope.graph, node);
  check_body_names(check_node(ops_, node), node);
  scope.graph.nodes.push_back(std::move(node));
}

/// The pipeline stage of the node, 0 if unspecified.
int32_t GraphBuilder::read_devices(Scope& scope, const onnx::NodeProto& proto) {
  if (!proto.device_configurations_size()) return 0;
  for (const auto& devices : proto.device_configurations()) charge(static_cast<int64_t>(devices.ByteSizeLong()) / 8);
  return devices_.read(proto, describe(scope, proto), [&](const std::string& name) -> const Constant* {
    const ValueId id = need(scope, name, "it");
    return id == no_value ? nullptr : scope.graph.value(id).constant.get();
  });
}

const onnx::AttributeProto* resolve(const Scope& scope, const onnx::AttributeProto& attribute) {
  const std::string& name = attribute.ref_attr_name();
  if (name.empty()) return &attribute;
  if (!scope.arguments)
    throw Error(Code::bad_model, cat("attribute ", quote(attribute.name()), " refers to ", quote(name),
                                     " of a function, but is in none"));
  auto found = scope.arguments->find(name);
  return found == scope.arguments->end() ? nullptr : found->second;
}

Tensor GraphBuilder::constant_of(const Scope& scope, const onnx::NodeProto& proto) {
  if (proto.attribute_size() != 1)
    throw Error(Code::bad_model, cat("Constant needs one attribute, it has ", proto.attribute_size()));
  const auto& written = proto.attribute(0);
  check_attribute(written);
  const auto* attribute = resolve(scope, written);
  if (!attribute) throw Error(Code::bad_model, cat("the call gives no attribute ", quote(written.ref_attr_name())));
  charge(attribute_cost(*attribute));
  return read_constant(written.name(), *attribute, tensors_);
}

/// Sets attributes other than graphs, and returns the graphs.
std::vector<GraphBuilder::NamedBody> GraphBuilder::read_attributes(Scope& scope, const onnx::NodeProto& proto,
                                                                   Node& node) {
  std::vector<NamedBody> bodies;
  std::set<std::string> names;
  for (const auto& written : proto.attribute()) {
    check_attribute(written);
    if (!names.insert(written.name()).second)
      throw Error(Code::bad_model, cat("attribute ", quote(written.name()), " is specified twice"));
    const auto* attribute = resolve(scope, written);
    if (!attribute) continue;
    charge(attribute_cost(*attribute));
    if (is_graph(*attribute)) bodies.emplace_back(written.name(), &attribute->g());
    else node.attributes.set(written.name(), read_attribute(*attribute, tensors_));
    if (attribute->has_tp() && kind_of(attribute->tp()) == ValueKind::sequence)
      node.attributes.set("of_sequence", int64_t{1});
  }
  return bodies;
}

}  // namespace plait::onnx_import
