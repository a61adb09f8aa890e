#include "importers/onnx/graph_builder.h"

#include <onnx-ml.pb.h>

#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/onnx/lists.h"
#include "importers/onnx/sequences.h"

namespace plait::onnx_import {
namespace {

/// Translates sizes from the outer graph's symbols to those of `graph`, by name.
Type translated(const Type& type, const SymbolTable& from, Graph& graph) {
  Type out{type.dtype, std::nullopt};
  if (!type.dims) return out;
  out.dims.emplace();
  for (const Dim& dim : *type.dims) {
    auto symbol = dim.single_symbol();
    // Before inference a size is a number or one symbol.
    out.dims->push_back(symbol ? graph.symbol(from[*symbol].name) : dim);
  }
  return out;
}

/// An open size, or one whose name means nothing: exporters write "" and "?" for many.
Dim size_of(Graph& graph, const onnx::TensorShapeProto::Dimension& dim, const std::string& stem) {
  constexpr int64_t open = -1;  // some exporters write this for an open size
  if (dim.has_dim_value() && dim.dim_value() != open) {
    if (dim.dim_value() < 0)
      throw Error(Code::bad_model,
                  cat("a dimension is ", dim.dim_value(), ", expected a size, or -1 for an open one"));
    return dim.dim_value();
  }
  int64_t number = open;
  bool numeric = parse_int(dim.dim_param(), number);
  if (numeric && number >= 0) return number;  // some exporters write fixed sizes as text
  if (numeric || dim.dim_param().empty() || dim.dim_param() == "?") return Dim::symbol(graph.symbols.fresh(stem));
  return graph.symbol(dim.dim_param());
}

/// For messages: ", read by node "n" (Op), domain "ai.onnx" opset 13".
std::string read_by(const Scope& scope, const onnx::GraphProto& proto, const std::string& name) {
  for (const auto& node : proto.node()) {
    if (std::find(node.input().begin(), node.input().end(), name) == node.input().end()) continue;
    std::string domain = canonical_domain(node.domain());
    auto opset = scope.opsets.find(domain);
    return cat(", read by ", describe(scope, node), ", domain ", quote(domain.empty() ? "ai.onnx" : domain),
               " opset ", opset == scope.opsets.end() ? 0 : opset->second);
  }
  return {};
}

Type declared_type(Graph& graph, const onnx::ValueInfoProto& info, bool required) {
  if (info.type().value_case() == onnx::TypeProto::VALUE_NOT_SET) {
    if (required) throw Error(Code::bad_model, "has no type");
    return {};
  }
  const onnx::TypeProto& within = tensor_type_of(info.type());
  if (!within.has_tensor_type())
    throw Error(Code::unsupported, "is no tensor but a map, a sparse tensor, or a sequence of these");
  const auto& tensor = within.tensor_type();
  Type out;
  out.dtype = dtype_of(tensor.elem_type());
  if (kind_of(info.type()) != ValueKind::tensor) {
    out.dims = Dims{Dim::symbol(graph.symbols.fresh(cat(info.name(), "_list")))};
    return out;
  }
  if (!tensor.has_shape()) return out;
  int rank = tensor.shape().dim_size();
  if (rank > Shape::max_rank) throw Error(Code::unsupported, cat("rank ", rank, " is above ", Shape::max_rank));
  out.dims.emplace();
  std::vector<int64_t> known;
  for (int axis = 0; axis < rank; ++axis) {
    out.dims->push_back(size_of(graph, tensor.shape().dim(axis), cat(info.name(), "_", axis)));
    if (out.dims->back().is_constant()) known.push_back(out.dims->back().constant());
  }
  checked_elements(known, dtype_bits(out.dtype));
  return out;
}

}  // namespace

void GraphBuilder::charge(int64_t units) {
  // 64 million units are about 2 GB of nodes and names, or 120,000 calls; a model of 200,000 nodes costs 12 million.
  constexpr int64_t max_cost = 64'000'000;
  cost_ += units;
  if (cost_ > max_cost) throw Error(Code::bad_model, "the model unfolds to more nodes than any real one");
}

void GraphBuilder::declare(Scope& scope, const std::string& name, ValueId id) {
  if (name.empty()) throw Error(Code::bad_model, "a value that is defined has an empty name");
  if (!scope.values.emplace(name, id).second)
    throw Error(Code::bad_model, cat("the name ", quote(name), " is defined twice"));
}

std::optional<ValueId> GraphBuilder::lookup(Scope& scope, const std::string& name) {
  auto found = scope.values.find(name);
  if (found != scope.values.end()) return found->second;
  if (!scope.outer) return std::nullopt;
  std::optional<ValueId> outside = lookup(*scope.outer, name);
  if (!outside || &scope.outer->graph == &scope.graph) return outside;
  ValueId id = no_value;
  if (*outside != no_value) {
    auto constant = scope.outer->graph.value(*outside).constant;
    if (constant) {
      id = scope.graph.add_value(name, {constant->dtype(), scope.outer->graph.value(*outside).type.dims});
      scope.graph.value(id).constant = std::move(constant);
    } else {
      id = add_capture(scope, name, name);
      scope.graph.value(id).kind = scope.outer->graph.value(*outside).kind;
      scope.captures.push_back(name);
    }
  }
  scope.values.emplace(name, id);
  return id;
}

/// Adds an input of a body for the outer value `name`.
ValueId GraphBuilder::add_capture(Scope& scope, const std::string& name, const std::string& value_name) {
  charge(8 + static_cast<int64_t>(name.size()) / 8);
  const Graph& outer = scope.outer->graph;
  ValueId outside = lookup(*scope.outer, name).value();
  ValueId id = scope.graph.add_value(value_name, translated(outer.value(outside).type, outer.symbols, scope.graph));
  scope.graph.inputs.push_back(id);
  return id;
}

ValueId GraphBuilder::need(Scope& scope, const std::string& name, std::string_view reader) {
  std::optional<ValueId> id = lookup(scope, name);
  if (!id) throw Error(Code::bad_model, cat(reader, " reads ", quote(name), ", which nothing defines"));
  return *id;
}

/// A unique name for a constant. Constants with equal names are one array at run time, but bodies may use a name for
/// several: initializers and Constant nodes.
std::string GraphBuilder::constant_name(const std::string& name) {
  std::string unique = name;
  while (!constants_.try_emplace(unique, 0).second) unique = cat(name, "@", ++constants_[name]);
  return unique;
}

void GraphBuilder::read_initializers(Scope& scope, const onnx::GraphProto& proto) {
  if (proto.sparse_initializer_size())
    throw Error(Code::unsupported, cat("sparse initializer ", quote(proto.sparse_initializer(0).values().name())));
  for (const auto& tensor : proto.initializer()) {
    try {
      charge(8 + static_cast<int64_t>(tensor.name().size()) / 8);
      Tensor data = tensors_.read(tensor);
      declare(scope, tensor.name(),
              scope.graph.add_constant(Constant{constant_name(tensor.name()), std::move(data), {}},
                                       is_repeated(scope) ? std::string() : tensor.name()));
    } catch (const Error& error) {
      throw error.at(cat("initializer ", quote(tensor.name())));
    }
  }
}

void GraphBuilder::read_inputs(Scope& scope, const onnx::GraphProto& proto, bool main) {
  std::set<std::string_view> names;
  for (const auto& info : proto.input()) {
    try {
      if (!names.insert(info.name()).second) throw Error(Code::bad_model, "is listed twice");
      charge(8 + static_cast<int64_t>(info.name().size()) / 8);
      // Files of IR 3 also list every initializer as an input; it is not an operand of the model.
      if (main && scope.values.count(info.name())) continue;
      ValueId id = scope.graph.add_value(info.name(), declared_type(scope.graph, info, main));
      scope.graph.value(id).kind = kind_of(info.type());
      declare(scope, info.name(), id);
      scope.graph.inputs.push_back(id);
    } catch (const Error& error) {
      throw error.at(cat("input ", quote(info.name()), read_by(scope, proto, info.name())));
    }
  }
}

void GraphBuilder::read_graph(Scope& scope, const onnx::GraphProto& proto, bool main) {
  scope.graph.name = proto.name();
  read_initializers(scope, proto);
  read_inputs(scope, proto, main);
  declare_outputs(scope, proto.node(), {});
  build_nodes(scope, proto.node());
  std::set<std::string_view> names;
  for (const auto& info : proto.output()) {
    if (main && !names.insert(info.name()).second)
      throw Error(Code::bad_model, cat("output ", quote(info.name()), " is listed twice"));
    ValueId id = need(scope, info.name(), "the list of outputs");
    if (id == no_value) throw Error(Code::bad_model, cat("output ", quote(info.name()), " is an absent operand"));
    scope.graph.outputs.push_back(id);
  }
  scope.graph.sort();
  settle_lists(ops_, scope.graph);
  unfold_sequences(scope.graph);
}

Graph GraphBuilder::main_graph(const onnx::GraphProto& proto, const OpsetImports& opsets) {
  Graph graph;
  Scope scope{graph, opsets, nullptr, {}};
  read_graph(scope, proto, true);
  graph.modules = std::move(modules_);
  return graph;
}

}  // namespace plait::onnx_import
