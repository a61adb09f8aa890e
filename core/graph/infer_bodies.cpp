// Inference of ops with bodies.

#include <algorithm>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/dims_rule.h"
#include "core/graph/infer.h"

namespace plait {

namespace {

/// Translates sizes between the symbols of two graphs. Symbols with equal names are equal: `enter` declares all outer
/// symbols inside first, so that a body's own never take an outer name.
struct Translation {
  const SymbolTable& from;
  SymbolTable& to;

  SymbolId symbol(SymbolId id) const {
    const Symbol& source = from[id];
    if (std::optional<SymbolId> known = to.find(source.name)) return *known;
    SymbolId made = to.intern(source.name);
    to[made] = source;
    return made;
  }
  void enter() const {
    for (SymbolId id = 0; id < from.size(); ++id) symbol(id);
  }
  Dim operator()(const Dim& dim) const {
    Dim out;
    for (const Dim::Term& term : dim.terms()) {
      Dim part(term.coefficient);
      for (SymbolId id : term.symbols) part = part * Dim::symbol(symbol(id));
      out = out + part;
    }
    return out;
  }
  Dims operator()(const Dims& dims) const {
    Dims out;
    for (const Dim& dim : dims) out.push_back((*this)(dim));
    return out;
  }
  Type operator()(Type type) const {
    if (type.dims) type.dims = (*this)(*type.dims);
    type.parts.dims = (*this)(type.parts.dims);
    return type;
  }
};

struct BodyInference {
  const OpSet& ops;
  Graph& graph;
  const Node& node;
  Knowledge& knowledge;

  Graph& body(std::string_view name) const {
    for (const auto& [key, body] : node.bodies)
      if (key == name) return *body;
    throw Error(Code::bad_model, cat("the body ", quote(name), " is missing"));
  }
  std::string place() const { return cat(knowledge.scope, node.outputs.empty() ? 0 : node.outputs[0], "."); }

  const std::optional<Dims>& contents(ValueId id) const {
    static const std::optional<Dims> none;
    auto at = static_cast<size_t>(id);
    return id == no_value || at >= knowledge.contents.size() ? none : knowledge.contents[at];
  }

  /// Body input `k` is operand `input`. The body's declaration fills in what is unknown of the operand.
  void pass(Graph& inner, Knowledge& known, size_t k, size_t input) const {
    ValueId outer = node.inputs[input];
    if (outer == no_value) return;
    Translation in{graph.symbols, inner.symbols};
    ValueId target = inner.inputs[k];
    declare(inner, target, in(graph.value(outer).type));
    if (const auto& elements = contents(outer)) {
      known.contents[static_cast<size_t>(target)] = in(*elements);
    } else if (const Tensor* constant = graph.constant(outer)) {
      bool shape_like = constant->shape().rank() <= 1 && constant->elements() <= max_contents;
      if (!shape_like || !(is_integer(constant->dtype()) || constant->dtype() == DType::boolean)) return;
      std::vector<int64_t> numbers = to_ints(constant->view());
      known.contents[static_cast<size_t>(target)] = Dims(numbers.begin(), numbers.end());
    }
  }
  static void declare(Graph& inner, ValueId id, Type type) {
    Type& now = inner.value(id).type;
    if (type.dtype != DType::none) now.dtype = type.dtype;
    if (type.dims) now.dims = std::move(type.dims);
    if (type.parts.known()) now.parts = std::move(type.parts);
  }

  Knowledge enter(Graph& inner, std::string_view name, size_t inputs) const {
    if (inner.inputs.size() != inputs)
      throw Error(Code::bad_model,
                  cat("the body ", quote(name), " has ", inner.inputs.size(), " inputs, expected ", inputs));
    Translation{graph.symbols, inner.symbols}.enter();
    Knowledge known;
    // Loop results without an iteration have sizes that depend on operands: they stay symbols.
    known.exact = knowledge.exact && node.op == "If";
    known.contents.resize(static_cast<size_t>(inner.value_count()));
    known.scope = cat(place(), name, ".");
    return known;
  }

  void check_outputs(const Graph& inner, std::string_view name, size_t expected) const {
    if (inner.outputs.size() != expected)
      throw Error(Code::bad_model,
                  cat("the body ", quote(name), " has ", inner.outputs.size(), " outputs, expected ", expected));
  }

  void write(size_t output, Type type) const {
    if (output >= node.outputs.size() || node.outputs[output] == no_value) return;
    declare(graph, node.outputs[output], std::move(type));
  }
  Dim unknown(Graph& owner, std::string_view what, size_t output, size_t axis) const {
    return owner.symbol(cat(what, ".", place(), output, ".", axis));
  }
  /// The same for a size of an output: the one that it has, if it was open before, since nodes may have its name.
  Dim open_size(std::string_view what, size_t output, size_t axis) const {
    if (output < node.outputs.size() && node.outputs[output] != no_value)
      if (const std::optional<Dims>& dims = graph.value(node.outputs[output]).type.dims; dims && axis < dims->size())
        if (const auto one = (*dims)[axis].single_multiple();
            one && one->factor == 1 && graph.symbols[one->symbol].name.starts_with(cat(what, ".")))
          return (*dims)[axis];
    return unknown(graph, what, output, axis);
  }

  // ---- If: condition, captures -> dims on which both branches agree ----

  Type branch_output(std::string_view name, size_t output, const Graph& inner) const {
    check_outputs(inner, name, node.outputs.size());
    return Translation{inner.symbols, graph.symbols}(inner.value(inner.outputs[output]).type);
  }
  void infer_branch(const char* name) const {
    Graph& inner = body(name);
    Knowledge known = enter(inner, name, node.inputs.size() - 1);
    for (size_t k = 0; k + 1 < node.inputs.size(); ++k) pass(inner, known, k, k + 1);
    infer_graph(ops, inner, known);
  }
  /// A branch whose sizes contradict each other may never be taken: it fails only when it runs. The outputs' types
  /// are then those of the other branch.
  void infer_if() const {
    const char *first = "then_branch", *second = "else_branch";
    for (const char* name : {first, second}) {
      try {
        body(name).refusal.clear();
        infer_branch(name);
      } catch (const Error& error) {
        if (error.code() != Code::bad_model || !body(first).refusal.empty()) throw;
        body(name).refusal = error.message();
      }
    }
    if (!body(first).refusal.empty()) first = second;
    if (!body(second).refusal.empty()) second = first;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Type a = branch_output(first, i, body(first));
      Type b = branch_output(second, i, body(second));
      if (a.dtype != b.dtype && a.dtype != DType::none && b.dtype != DType::none)
        throw Error(Code::bad_model, cat("output ", i, " is ", dtype_name(a.dtype), " in one branch, ",
                                         dtype_name(b.dtype), " in the other"));
      if (a.dtype == DType::none) a.dtype = b.dtype;
      a.parts = merged(a.parts, b.parts);
      if (!a.dims || !b.dims || a.dims->size() != b.dims->size()) {
        a.dims.reset();
      } else {
        for (size_t axis = 0; axis < a.dims->size(); ++axis)
          if ((*a.dims)[axis] != (*b.dims)[axis]) (*a.dims)[axis] = open_size("if", i, axis);
      }
      // If the branches have different ranks, the file's declaration is right for at most one.
      if (!a.dims && i < node.outputs.size() && node.outputs[i] != no_value)
        graph.value(node.outputs[i]).type.dims.reset();
      write(i, std::move(a));
    }
  }

  // ---- Loop and Scan: carried values keep the sizes that an iteration does not change ----

  /// Infers the body until the sizes of its `count` carried values, inputs `first_in`.. and outputs `first_out`..,
  /// are stable: those that an iteration changes become symbols. At most one round per dimension.
  void settle(Graph& inner, const Knowledge& known, size_t first_in, size_t first_out, size_t count) const {
    for (bool changed = true; changed;) {
      changed = false;
      Knowledge round = known;
      infer_graph(ops, inner, round);
      for (size_t i = 0; i < count; ++i) {
        Type& in = inner.value(inner.inputs[first_in + i]).type;
        const Type& out = inner.value(inner.outputs[first_out + i]).type;
        if (const PartDims both = merged(in.parts, out.parts); both != in.parts) {
          in.parts = both;
          changed = true;
        }
        if (!in.dims) continue;
        if (!out.dims || out.dims->size() != in.dims->size()) {
          in.dims.reset();
          changed = true;
          continue;
        }
        for (size_t axis = 0; axis < in.dims->size(); ++axis) {
          Dim open = unknown(inner, "carried", i, axis);
          if ((*in.dims)[axis] == (*out.dims)[axis] || (*in.dims)[axis] == open) continue;
          (*in.dims)[axis] = open;
          changed = true;
        }
      }
      if (changed) forget_made(inner);
    }
  }
  /// Types of inner values from earlier rounds are invalid.
  static void forget_made(Graph& inner) {
    for (const Node& one : inner.nodes)
      for (ValueId id : one.outputs)
        if (id != no_value) inner.value(id).type = {};
  }

  size_t carried(size_t fixed) const {
    auto all = static_cast<int64_t>(node.inputs.size() - fixed);
    int64_t count = node.attributes.integer("carried", all);
    if (count < 0 || count > all)
      throw Error(Code::bad_model, cat("attribute \"carried\" is ", count, ", expected 0 to ", all));
    return static_cast<size_t>(count);
  }

  /// The stacked outputs of the body, of type [iterations, ...] for the node.
  void write_stacked(Graph& inner, size_t output, size_t body_output, const Dim& iterations, int64_t axis) const {
    Type type = Translation{inner.symbols, graph.symbols}(inner.value(inner.outputs[body_output]).type);
    if (type.dims) {
      auto rank = static_cast<int64_t>(type.dims->size()) + 1;
      if (axis < 0) axis += rank;
      if (axis < 0 || axis >= rank) throw Error(Code::bad_model, cat("scan output axis is not below rank ", rank));
      type.dims->insert(type.dims->begin() + axis, iterations);
    }
    type.parts = {};
    write(output, std::move(type));
  }

  /// A size that iterations change is another one after them than the body's own symbol, which is that of one iteration.
  void write_carried(Graph& inner, size_t output, size_t body_input) const {
    Type type = inner.value(inner.inputs[body_input]).type;
    const std::optional<Dims> inside = type.dims;
    type = Translation{inner.symbols, graph.symbols}(std::move(type));
    for (size_t axis = 0; inside && axis < inside->size(); ++axis)
      if ((*inside)[axis] == unknown(inner, "carried", output, axis))
        (*type.dims)[axis] = open_size("final", output, axis);
    write(output, std::move(type));
  }

  void infer_loop() const {
    Graph& inner = body("body");
    size_t count = carried(2);
    Knowledge known = enter(inner, "body", node.inputs.size());
    declare(inner, inner.inputs[0], {DType::i64, Dims{}});
    declare(inner, inner.inputs[1], {DType::boolean, Dims{}});
    for (size_t k = 2; k < node.inputs.size(); ++k) pass(inner, known, k, k);
    for (size_t k = 2; k < 2 + count; ++k) known.contents[static_cast<size_t>(inner.inputs[k])].reset();
    check_outputs(inner, "body", 1 + node.outputs.size());
    settle(inner, known, 2, 1, count);
    // The trip count is an upper bound; the condition may end earlier.
    for (size_t i = 0; i < count; ++i) write_carried(inner, i, 2 + i);
    for (size_t i = count; i < node.outputs.size(); ++i) write_stacked(inner, i, 1 + i, open_size("loop", i, 0), 0);
  }

  int64_t listed(const char* attribute, size_t i) const {
    std::vector<int64_t> all = node.attributes.integers(attribute);
    return i < all.size() ? all[i] : 0;
  }

  void infer_scan() const {
    Graph& inner = body("body");
    int64_t scanned = node.attributes.integer("num_scan_inputs");
    if (scanned < 1 || scanned > static_cast<int64_t>(node.inputs.size()))
      throw Error(Code::bad_model, cat("attribute \"num_scan_inputs\" is ", scanned));
    size_t count = carried(static_cast<size_t>(scanned));
    Knowledge known = enter(inner, "body", node.inputs.size());
    std::optional<Dim> iterations;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (k < count || k >= count + static_cast<size_t>(scanned)) {
        pass(inner, known, k, k);
        if (k < count) known.contents[static_cast<size_t>(inner.inputs[k])].reset();
        continue;
      }
      Type type = Translation{graph.symbols, inner.symbols}(graph.value(node.inputs[k]).type);
      if (type.dims) {
        auto rank = static_cast<int64_t>(type.dims->size());
        int64_t axis = listed("scan_input_axes", k - count);
        if (axis < 0) axis += rank;
        if (axis < 0 || axis >= rank) throw Error(Code::bad_model, cat("scan input axis is not below rank ", rank));
        Dim length = (*graph.value(node.inputs[k]).type.dims)[static_cast<size_t>(axis)];
        std::optional<Dim> both = iterations ? unify(*iterations, length) : length;
        if (!both) throw Error(Code::bad_model, "the scan inputs have different lengths");
        iterations = both;
        type.dims->erase(type.dims->begin() + axis);
      }
      declare(inner, inner.inputs[k], std::move(type));
    }
    check_outputs(inner, "body", node.outputs.size());
    settle(inner, known, 0, 0, count);
    for (size_t i = 0; i < count; ++i) write_carried(inner, i, i);
    for (size_t i = count; i < node.outputs.size(); ++i)
      write_stacked(inner, i, i, iterations ? *iterations : unknown(graph, "scan", i, 0),
                    listed("scan_output_axes", i - count));
  }
};

}  // namespace

void infer_with_bodies(const OpSet& ops, Graph& graph, const Node& node, Knowledge& knowledge) {
  BodyInference inference{ops, graph, node, knowledge};
  if (node.op == "If") return inference.infer_if();
  if (node.op == "Loop") return inference.infer_loop();
  if (node.op == "Scan") return inference.infer_scan();
  throw Error(Code::unsupported, cat("an op ", quote(node.op), " with bodies is not known to Plait"));
}

}  // namespace plait
