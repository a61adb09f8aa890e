#include "core/graph/graph.h"

#include <algorithm>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {

ValueId Graph::add_value(std::string value_name, Type type) {
  values_.push_back({std::move(value_name), std::move(type), nullptr});
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::add_constant(Constant constant, std::string value_name) {
  Shape shape = constant.shape();
  ValueId id = add_value(std::move(value_name), {constant.dtype(), Dims(shape.begin(), shape.end())});
  values_.back().constant = std::make_shared<Constant>(std::move(constant));
  return id;
}

Node& Graph::add_node(std::string op, std::vector<ValueId> node_inputs, int count, Attributes attributes) {
  Node node;
  node.op = std::move(op);
  node.inputs = std::move(node_inputs);
  for (int i = 0; i < count; ++i) node.outputs.push_back(add_value({}));
  node.attributes = std::move(attributes);
  nodes.push_back(std::move(node));
  return nodes.back();
}

const Tensor* Graph::constant(ValueId id) const {
  if (id == no_value || !value(id).constant) return nullptr;
  if (!value(id).constant->steps.empty() || !value(id).constant->parts.empty()) return nullptr;
  return &value(id).constant->source;
}

ValueId Graph::find(std::string_view value_name) const {
  for (size_t i = 0; i < values_.size(); ++i)
    if (values_[i].name == value_name) return static_cast<ValueId>(i);
  return no_value;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  for (Node& node : nodes) std::replace(node.inputs.begin(), node.inputs.end(), from, to);
  std::replace(outputs.begin(), outputs.end(), from, to);
}

void Graph::remove_dead() {
  std::vector<bool> needed(values_.size());
  for (ValueId id : outputs) needed[static_cast<size_t>(id)] = true;
  std::vector<bool> keep(nodes.size());
  for (size_t i = nodes.size(); i-- > 0;) {
    for (ValueId id : nodes[i].outputs) keep[i] = keep[i] || (id != no_value && needed[static_cast<size_t>(id)]);
    if (!keep[i]) continue;
    for (ValueId id : nodes[i].inputs)
      if (id != no_value) needed[static_cast<size_t>(id)] = true;
  }
  size_t kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (keep[i]) {
      if (kept != i) nodes[kept] = std::move(nodes[i]);
      ++kept;
    }
  nodes.resize(kept);
  for (size_t i = 0; i < values_.size(); ++i)
    if (!needed[i]) values_[i].constant.reset();
}

void Graph::sort() {
  std::vector<int32_t> maker = producers(*this);
  auto readers = consumers(*this);
  std::vector<int32_t> waiting(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    std::vector<ValueId> distinct;
    for (ValueId id : nodes[i].inputs)
      if (id != no_value && maker[static_cast<size_t>(id)] >= 0) distinct.push_back(id);
    std::sort(distinct.begin(), distinct.end());
    waiting[i] = static_cast<int32_t>(std::unique(distinct.begin(), distinct.end()) - distinct.begin());
  }
  // A heap on the current position keeps the file's order if possible.
  std::vector<int32_t> ready;
  auto later = std::greater<int32_t>();
  for (size_t i = 0; i < nodes.size(); ++i)
    if (!waiting[i]) ready.push_back(static_cast<int32_t>(i));
  std::make_heap(ready.begin(), ready.end(), later);
  std::vector<int32_t> order;
  while (!ready.empty()) {
    std::pop_heap(ready.begin(), ready.end(), later);
    int32_t index = ready.back();
    ready.pop_back();
    order.push_back(index);
    for (ValueId id : nodes[static_cast<size_t>(index)].outputs) {
      if (id == no_value) continue;
      for (int32_t reader : readers[static_cast<size_t>(id)])
        if (--waiting[static_cast<size_t>(reader)] == 0) {
          ready.push_back(reader);
          std::push_heap(ready.begin(), ready.end(), later);
        }
    }
  }
  if (order.size() != nodes.size()) {
    auto stuck = std::find_if(waiting.begin(), waiting.end(), [](int32_t n) { return n > 0; });
    throw Error(Code::bad_model, cat(describe(*this, nodes[static_cast<size_t>(stuck - waiting.begin())]),
                                     " is part of a cycle: it needs, through others, its own output"));
  }
  std::vector<Node> sorted;
  sorted.reserve(nodes.size());
  for (int32_t index : order) sorted.push_back(std::move(nodes[static_cast<size_t>(index)]));
  nodes = std::move(sorted);
}

void own_bodies(Graph& graph) {
  for (Node& node : graph.nodes)
    for (auto& [name, body] : node.bodies) {
      body = std::make_shared<Graph>(*body);
      own_bodies(*body);
    }
}

bool follow_from_inputs(const Graph& graph, const Dims& dims) {
  auto given = [&](SymbolId symbol) {
    return std::ranges::any_of(graph.inputs, [&](ValueId id) {
      const std::optional<Dims>& own = graph.value(id).type.dims;
      return own && std::ranges::any_of(*own, [&](const Dim& dim) {
               const auto one = dim.single_multiple();
               return one && one->symbol == symbol;
             });
    });
  };
  return std::ranges::all_of(
      dims, [&](const Dim& dim) { return dim.is_constant() || std::ranges::all_of(dim.symbols(), given); });
}

std::vector<int32_t> producers(const Graph& graph) {
  std::vector<int32_t> out(static_cast<size_t>(graph.value_count()), -1);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (ValueId id : graph.nodes[i].outputs)
      if (id != no_value) out[static_cast<size_t>(id)] = static_cast<int32_t>(i);
  return out;
}

std::vector<std::vector<int32_t>> consumers(const Graph& graph) {
  std::vector<std::vector<int32_t>> out(static_cast<size_t>(graph.value_count()));
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (ValueId id : graph.nodes[i].inputs) {
      if (id == no_value) continue;
      auto& list = out[static_cast<size_t>(id)];
      if (list.empty() || list.back() != static_cast<int32_t>(i)) list.push_back(static_cast<int32_t>(i));
    }
  return out;
}

std::string describe(const Node& node) {
  return node.name.empty() ? cat("a node ", node.op) : cat("node ", quote(node.name), " (", node.op, ")");
}

std::string describe(const Graph& graph, const Node& node) {
  if (node.name.empty())
    for (ValueId id : node.outputs)
      if (id != no_value && !graph.value(id).name.empty())
        return cat("the node ", node.op, " that makes ", quote(graph.value(id).name));
  return describe(node);
}

std::string text(const Type& type, const SymbolTable& symbols) {
  std::string out(type.dtype == DType::none ? "?" : dtype_name(type.dtype));
  return out + (type.dims ? text(*type.dims, symbols) : "[...]");
}

void verify(const Graph& graph, std::string_view after) {
  auto bad = [&](const std::string& what) {
    return Error(Code::internal, cat("after pass ", after, ": ", what), "this is a fault of Plait; please report it");
  };
  std::vector<bool> defined(static_cast<size_t>(graph.value_count()));
  auto define = [&](ValueId id, const std::string& by) {
    if (id < 0 || id >= graph.value_count()) throw bad(cat(by, " names a value that does not exist"));
    if (defined[static_cast<size_t>(id)]) throw bad(cat(by, " defines a value that is defined already"));
    defined[static_cast<size_t>(id)] = true;
  };
  std::unordered_set<std::string_view> names;
  for (ValueId id = 0; id < graph.value_count(); ++id) {
    const Value& value = graph.value(id);
    if (!value.name.empty() && !names.insert(value.name).second)
      throw bad(cat("two values are named ", quote(value.name)));
    if (value.constant) define(id, cat("constant ", quote(value.name)));
  }
  for (ValueId id : graph.inputs) define(id, "an input");
  for (const Node& node : graph.nodes) {
    for (ValueId id : node.inputs)
      if (id != no_value && (id < 0 || id >= graph.value_count() || !defined[static_cast<size_t>(id)]))
        throw bad(cat(describe(node), " reads a value that is not there yet"));
    for (ValueId id : node.outputs)
      if (id != no_value) define(id, describe(node));
    for (const auto& [attribute, body] : node.bodies) {
      if (!body) throw bad(cat(describe(node), " has an empty body ", attribute));
      verify(*body, after);
    }
  }
  for (ValueId id : graph.outputs)
    if (id < 0 || id >= graph.value_count() || !defined[static_cast<size_t>(id)])
      throw bad("an output is not defined");
}

}  // namespace plait
