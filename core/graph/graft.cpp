#include "core/graph/graft.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"

namespace plait {
namespace {

class Grafter {
 public:
  Grafter(Graph& graph, ValueId input, const Graph& source, ValueId output)
      : graph_(graph), source_(source), input_(input), output_(output) {
    for (ValueId id = 0; id < graph.value_count(); ++id) taken_.insert(graph.value(id).name);
    take_initializers(graph);
  }

  void run() {
    check();
    unify_sizes();
    ids_.assign(static_cast<size_t>(source_.value_count()), no_value);
    ids_[static_cast<size_t>(output_)] = input_;
    std::vector<ValueId> inputs;
    for (ValueId id : source_.inputs)
      if (ValueId known = same_input(id); known != no_value) ids_[static_cast<size_t>(id)] = known;
      else inputs.push_back(moved(id));
    std::vector<Node> nodes;
    for (Node node : source_.nodes) {
      for (ValueId& id : node.inputs) id = moved(id);
      for (ValueId& id : node.outputs) id = moved(id);
      nodes.push_back(std::move(node));
    }
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(nodes.begin()),
                        std::make_move_iterator(nodes.end()));
    std::erase(graph_.inputs, input_);
    graph_.inputs.insert(graph_.inputs.begin(), inputs.begin(), inputs.end());
    graph_.modules.insert(source_.modules.begin(), source_.modules.end());
  }

 private:
  void take_initializers(const Constant& constant) {
    initializers_.insert(constant.initializer);
    for (const Constant& part : constant.parts) take_initializers(part);
  }
  void take_initializers(const Graph& graph) {
    for (ValueId id = 0; id < graph.value_count(); ++id)
      if (graph.value(id).constant) take_initializers(*graph.value(id).constant);
    for (const Node& node : graph.nodes)
      for (const auto& [name, body] : node.bodies) take_initializers(*body);
  }

  /// Initializers of two files may have one name.
  void rename(Constant& constant) const {
    if (!constant.initializer.empty())
      while (initializers_.contains(constant.initializer)) constant.initializer = grafted(constant.initializer);
    for (Constant& part : constant.parts) rename(part);
  }

  void check() const {
    for (const Node& node : source_.nodes)
      if (!node.bodies.empty())
        throw Error(Code::unsupported,
                    cat(describe(node), " has a body, and stands before input ", quote(graph_.value(input_).name)));
    const Type &to = graph_.value(input_).type, &from = source_.value(output_).type;
    const bool made = std::any_of(source_.nodes.begin(), source_.nodes.end(), [&](const Node& node) {
      return std::find(node.outputs.begin(), node.outputs.end(), output_) != node.outputs.end();
    });
    const auto agree = [](const Dim& a, const Dim& b) { return !a.is_constant() || !b.is_constant() || a == b; };
    const bool same_sizes = !to.dims || !from.dims ||
                            std::equal(to.dims->begin(), to.dims->end(), from.dims->begin(), from.dims->end(), agree);
    if (made && (from.dtype == DType::none || from.dtype == to.dtype) && same_sizes) return;
    throw Error(Code::bad_model, cat("output ", quote(source_.value(output_).name), ", ", text(from, source_.symbols),
                                     made ? "" : " and computed by no node", ", cannot be input ",
                                     quote(graph_.value(input_).name), ", ", text(to, graph_.symbols)));
  }

  /// Sizes of the output are those of the input, whichever file has the number; other symbols stay apart from those of the graph.
  void unify_sizes() {
    auto& to = graph_.value(input_).type.dims;
    const auto& from = source_.value(output_).type.dims;
    for (size_t axis = 0; to && from && axis < to->size(); ++axis) {
      if (const auto symbol = (*from)[axis].single_symbol()) sizes_.try_emplace(*symbol, (*to)[axis]);
      if ((*from)[axis].is_constant()) (*to)[axis] = (*from)[axis];
    }
  }

  Dim size_of(const Dim& dim) {
    Dim out;
    for (const Dim::Term& term : dim.terms()) {
      Dim product(term.coefficient);
      for (SymbolId symbol : term.symbols) {
        auto known = sizes_.find(symbol);
        if (known == sizes_.end())
          known = sizes_.emplace(symbol, Dim::symbol(graph_.symbols.fresh(source_.symbols[symbol].name))).first;
        product = product * known->second;
      }
      out = out + product;
    }
    return out;
  }

  ValueId same_input(ValueId id) const {
    const Value& mine = source_.value(id);
    for (ValueId other : graph_.inputs) {
      const Value& theirs = graph_.value(other);
      if (other != input_ && theirs.name == mine.name && theirs.type.dtype == mine.type.dtype && mine.type.dims &&
          theirs.type.dims && mine.type.dims->size() == theirs.type.dims->size())
        return other;
    }
    return no_value;
  }

  /// The value of the graph that is value `id` of the source.
  ValueId moved(ValueId id) {
    if (id == no_value) return id;
    ValueId& known = ids_[static_cast<size_t>(id)];
    if (known != no_value) return known;
    Value value = source_.value(id);
    while (!value.name.empty() && !taken_.insert(value.name).second) value.name += ".graft";
    if (value.type.dims)
      for (Dim& dim : *value.type.dims) dim = size_of(dim);
    if (value.constant) {
      Constant constant = *value.constant;
      rename(constant);
      value.constant = std::make_shared<Constant>(std::move(constant));
    }
    known = graph_.add_value(value.name, value.type);
    graph_.value(known) = std::move(value);
    return known;
  }

  Graph& graph_;
  const Graph& source_;
  const ValueId input_, output_;
  std::set<std::string> taken_, initializers_;  ///< names of values, and of tensors, of the graph as it was
  std::map<SymbolId, Dim> sizes_;               ///< by symbol of the source
  std::vector<ValueId> ids_;                    ///< by value of the source
};

}  // namespace

std::string grafted(const std::string& initializer) { return initializer + ".graft"; }

void graft(Graph& graph, ValueId input, const Graph& source, size_t output) {
  Grafter(graph, input, source, source.outputs.at(output)).run();
}

}  // namespace plait
