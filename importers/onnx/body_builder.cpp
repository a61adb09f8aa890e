// Nested parts of GraphBuilder: bodies of If, Loop and Scan, and calls of local functions.
#include "importers/onnx/graph_builder.h"

#include <onnx-ml.pb.h>

#include <algorithm>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/onnx/attribute_reader.h"

namespace plait::onnx_import {
namespace {

/// Limits recursion over bodies and calls.
class Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) {
    constexpr int max_depth = 100;
    if (depth_ >= max_depth)
      throw Error(Code::bad_model, cat("bodies and calls are nested more than ", max_depth, " deep"));
    ++depth_;
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  int& depth_;
};

/// Checks that a body has its op's operands and outputs. Captures are added later.
void check_bodies(Node& node) {
  if (node.op != "If" && node.op != "Loop" && node.op != "Scan") return;
  for (const char* own : {"carried", "empty_sizes"})
    if (node.attributes.has(own)) throw Error(Code::bad_model, cat(node.op, " has no attribute ", quote(own)));
  if (node.op == "Loop" && node.inputs.size() < 2) node.inputs.resize(2, no_value);
  for (const auto& [name, body] : node.bodies) {
    size_t inputs = node.op == "If" ? 0 : node.inputs.size();
    size_t extra = node.op == "Loop" ? 1 : 0;  // the condition
    if (body->inputs.size() != inputs)
      throw Error(Code::bad_model,
                  cat("body ", quote(name), " has ", body->inputs.size(), " inputs, expected ", inputs));
    if (body->outputs.size() < extra || body->outputs.size() - extra < node.outputs.size())
      throw Error(Code::bad_model, cat("body ", quote(name), " has ", body->outputs.size(), " outputs, expected ",
                                       node.outputs.size() + extra));
    node.outputs.resize(body->outputs.size() - extra, no_value);
  }
}

/// Attribute "empty_sizes" of a Loop: the sizes that its body declares for outputs from number `first` on, the stacked ones.
void keep_empty_sizes(Node& node, const onnx::GraphProto& body, int first) {
  std::vector<int64_t> all;
  bool any = false;
  for (int k = first; k < body.output_size(); ++k) {
    const auto& type = body.output(k).type().tensor_type();
    all.push_back(type.has_shape() && type.shape().dim_size() < Shape::max_rank ? type.shape().dim_size() : -1);
    for (int axis = 0, rank = static_cast<int>(all.back()); axis < rank; ++axis) {
      all.push_back(std::max<int64_t>(type.shape().dim(axis).dim_value(), 0));
      any = any || all.back() > 0;
    }
  }
  if (any) node.attributes.set("empty_sizes", std::move(all));
}

}  // namespace

void GraphBuilder::read_bodies(Scope& scope, Node& node, const std::vector<NamedBody>& protos) {
  Depth depth(depth_);
  std::vector<Scope> bodies;
  bodies.reserve(protos.size());
  for (const auto& [name, proto] : protos) {
    node.bodies.emplace_back(name, std::make_shared<Graph>());
    // Within a function a body sees the function's names and the arguments of its call.
    bodies.push_back(Scope{*node.bodies.back().second, scope.opsets, &scope, scope.prefix, scope.arguments});
    try {
      read_graph(bodies.back(), *proto, false);
    } catch (const Error& error) {
      throw error.at(cat("body ", quote(name)));
    }
  }
  if (node.op == "SequenceMap" && protos.size() == 1) {
    std::vector<int64_t> dtypes;
    for (const auto& output : protos[0].second->output()) dtypes.push_back(output.type().tensor_type().elem_type());
    node.attributes.set("dtypes", std::move(dtypes));
    node.attributes.set("own_inputs", static_cast<int64_t>(node.inputs.size()));
  }
  const auto operands = static_cast<int>(node.inputs.size());
  join_captures(scope, node, bodies);
  if (node.op == "Loop" && protos.size() == 1)
    keep_empty_sizes(node, *protos[0].second, 1 + std::max(operands, 2) - 2);
}

/// Adds all captures to all bodies, in one order, so that they are the last operands of the node and of each body.
void GraphBuilder::join_captures(Scope& scope, Node& node, std::vector<Scope>& bodies) {
  std::vector<std::string> all;
  std::unordered_set<std::string> seen;
  for (Scope& body : bodies) {
    for (const std::string& name : body.captures)
      if (seen.insert(name).second) all.push_back(name);
    body.graph.inputs.resize(body.graph.inputs.size() - body.captures.size());
  }
  check_bodies(node);
  // With captures the number of carried values would be ambiguous.
  auto own = static_cast<int64_t>(node.inputs.size());
  if (!all.empty() && node.op == "Loop") node.attributes.set("carried", own - 2);
  if (!all.empty() && node.op == "Scan")
    node.attributes.set("carried", own - node.attributes.integer("num_scan_inputs"));
  for (Scope& body : bodies) {
    std::unordered_set<std::string> captured(body.captures.begin(), body.captures.end());
    for (const std::string& name : all) {
      if (captured.count(name)) body.graph.inputs.push_back(body.values.at(name));
      else add_capture(body, name, body.values.count(name) ? std::string() : name);
    }
  }
  for (const std::string& name : all) node.inputs.push_back(need(scope, name, "it"));
}

/// Adds the nodes of a body with one input and one output, and returns the output. It may read the scope's values.
ValueId GraphBuilder::inline_body(Scope& scope, const onnx::GraphProto& body, ValueId operand,
                                  const std::string& prefix) {
  Depth depth(depth_);
  if (body.input_size() != 1 || body.output_size() != 1)
    throw Error(Code::bad_model, cat("it has ", body.input_size(), " inputs and ", body.output_size(),
                                     " outputs, expected one of each"));
  Scope inner{scope.graph, scope.opsets, &scope, cat(scope.prefix, prefix), scope.arguments};
  declare(inner, body.input(0).name(), operand);
  read_initializers(inner, body);
  declare_outputs(inner, body.node(), {});
  build_nodes(inner, body.node());
  const ValueId out = need(inner, body.output(0).name(), "the list of outputs");
  if (out == no_value)
    throw Error(Code::bad_model, cat("output ", quote(body.output(0).name()), " is an absent operand"));
  return out;
}

void GraphBuilder::call(Scope& scope, const onnx::NodeProto& proto, const Function& function) {
  const onnx::FunctionProto& body = *function.proto;
  if (std::find(calls_.begin(), calls_.end(), &function) != calls_.end())
    throw Error(Code::bad_model, cat("function ", quote(function.label), " calls itself"));
  if (proto.input_size() > body.input_size() || proto.output_size() > body.output_size())
    throw Error(Code::bad_model,
                cat("function ", quote(function.label), " has ", body.input_size(), " inputs and ",
                    body.output_size(), " outputs, the call ", proto.input_size(), " and ", proto.output_size()));
  Depth depth(depth_);
  charge(500 + 2 * (body.input_size() + body.output_size()) + 4 * static_cast<int64_t>(function.defaults.size()));
  Arguments arguments = function.defaults;
  for (const auto& written : proto.attribute()) {
    check_attribute(written);
    const auto* attribute = resolve(scope, written);
    if (attribute && is_graph(*attribute))
      throw Error(Code::unsupported, cat("attribute ", quote(written.name()), " of a function is a graph"));
    if (attribute) arguments[written.name()] = attribute;
  }
  const std::string& name = proto.name().empty() ? proto.op_type() : proto.name();
  Scope inner{scope.graph, function.opsets, nullptr, cat(scope.prefix, name, "/"), &arguments};
  for (int i = 0; i < body.input_size(); ++i) {
    bool present = i < proto.input_size() && !proto.input(i).empty();
    declare(inner, body.input(i), present ? need(scope, proto.input(i), "the call") : no_value);
  }
  // Inner nodes write directly to the call's outputs.
  std::map<std::string, ValueId> given;
  for (int i = 0; i < proto.output_size(); ++i)
    if (!proto.output(i).empty()) given.emplace(body.output(i), scope.values.at(proto.output(i)));
  calls_.push_back(&function);
  declare_outputs(inner, body.node(), given);
  build_nodes(inner, body.node());
  calls_.pop_back();
  return_outputs(scope, inner, proto, function);
}

/// Copies outputs that no inner node writes: passed-through operands, and a second use of one name.
void GraphBuilder::return_outputs(Scope& scope, Scope& inner, const onnx::NodeProto& proto,
                                  const Function& function) {
  for (int i = 0; i < proto.output_size(); ++i) {
    if (proto.output(i).empty()) continue;
    const std::string& name = function.proto->output(i);
    ValueId wanted = scope.values.at(proto.output(i));
    ValueId made = need(inner, name, cat("the list of outputs of function ", quote(function.label)));
    if (made == wanted) continue;
    if (made == no_value)
      throw Error(Code::bad_model, cat("output ", quote(name), " of function ", quote(function.label),
                                       " is an operand that the call leaves out"));
    Node& copy = scope.graph.add_node("Identity", {made}, 0);
    copy.outputs = {wanted};
    copy.name = inner.prefix + "Identity";
    check_node(ops_, copy);
  }
}

}  // namespace plait::onnx_import
