// Pass fold: infers every type, computes constants, and turns shape arithmetic into symbolic sizes.
//
// Three outcomes for a value, tried in this order:
//   - steps on a file's tensor (transpose, cast, reshape, slice): recorded in the constant, nothing is copied;
//   - known numbers: computed now, by the reference kernels, within a budget;
//   - known sizes ("[b, s, 8, -1]" as exporters build it from Shape, Gather, Concat): one plait.Sizes node, so the
//     chain before it is removed as dead.
#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/passes/normalize/normalize.h"
#include "core/passes/base/evaluate.h"

namespace plait {
namespace {

/// Maximum size of folded constants that are more than twice as large as their operands: a small graph must not fill
/// the memory (Expand, ConstantOfShape, Tile, Range).
constexpr int64_t fold_budget = int64_t{16} << 20;

class Folder {
 public:
  Folder(Graph& graph, PassContext& context) : graph_(graph), context_(context), ops_(context.options.ops) {
    for (ValueId id : graph.inputs)
      if (const auto& dims = graph.value(id).type.dims)
        for (const Dim& dim : *dims)
          if (auto symbol = dim.single_symbol()) bound_.insert(*symbol);
  }

  void run() {
    std::vector<Node> pending(std::make_move_iterator(graph_.nodes.rbegin()),
                              std::make_move_iterator(graph_.nodes.rend()));
    graph_.nodes.clear();
    alias_.resize(static_cast<size_t>(graph_.value_count()));
    std::iota(alias_.begin(), alias_.end(), 0);
    while (!pending.empty()) {
      Node node = std::move(pending.back());
      pending.pop_back();
      for (ValueId& id : node.inputs) id = resolved(id);
      if (splice_branch(node, pending)) continue;
      if (node.op == "Identity" && redirect(node.outputs[0], node.inputs[0])) continue;
      settle_cast_like(node);
      if (node.op == "Cast" && keeps_dtype(node) && redirect(node.outputs[0], node.inputs[0])) continue;
      if (node.op == "plait.Sizes") know_sizes(node);
      if (node.op == "Slice") drop_unit_steps(node);
      infer_node(ops_, graph_, node, context_.knowledge);
      if (step_on_constant(node) || compute(node) || write_sizes(node)) continue;
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId& id : graph_.outputs) id = resolved(id);
    graph_.remove_dead();
  }

 private:
  ValueId resolved(ValueId id) {
    while (id != no_value && static_cast<size_t>(id) < alias_.size() && alias_[static_cast<size_t>(id)] != id)
      id = alias_[static_cast<size_t>(id)];
    return id;
  }
  /// Makes the readers of `from` read `to`. Graph outputs keep their names: returns false, without a change, if both
  /// have a name to keep.
  bool redirect(ValueId from, ValueId to) {
    if (from == no_value) return true;
    auto among = [&](const std::vector<ValueId>& ids, ValueId id) {
      return std::any_of(ids.begin(), ids.end(), [&](ValueId one) { return resolved(one) == id; });
    };
    if (among(graph_.outputs, from)) {
      if (among(graph_.outputs, to) || among(graph_.inputs, to)) return false;
      std::swap(graph_.value(from).name, graph_.value(to).name);
    }
    for (auto next = static_cast<ValueId>(alias_.size()); next < graph_.value_count(); ++next) alias_.push_back(next);
    alias_[static_cast<size_t>(from)] = to;
    return true;
  }
  std::optional<Dims>* contents(ValueId id) {
    auto& all = context_.knowledge.contents;
    if (all.size() < static_cast<size_t>(graph_.value_count())) all.resize(static_cast<size_t>(graph_.value_count()));
    return id == no_value ? nullptr : &all[static_cast<size_t>(id)];
  }
  const Constant* constant(ValueId id) const { return id == no_value ? nullptr : graph_.value(id).constant.get(); }

  /// The elements of a small integer constant, if it is one.
  std::optional<std::vector<int64_t>> numbers(ValueId id) {
    if (const Tensor* tensor = id == no_value ? nullptr : graph_.constant(id); tensor && is_integer(tensor->dtype()))
      return to_ints(tensor->view());
    auto* known = contents(id);
    if (!known || !*known) return std::nullopt;
    std::vector<int64_t> out;
    for (const Dim& dim : **known) {
      if (!dim.is_constant()) return std::nullopt;
      out.push_back(dim.constant());
    }
    return out;
  }

  /// A CastLike uses only the dtype of its second operand.
  void settle_cast_like(Node& node) {
    if (node.op != "CastLike" || graph_.value(node.inputs[1]).type.dtype == DType::none) return;
    node.op = "Cast";
    node.attributes.set("to", static_cast<int64_t>(graph_.value(node.inputs[1]).type.dtype));
    node.inputs.resize(1);
  }
  bool keeps_dtype(const Node& node) const {
    return static_cast<DType>(node.attributes.integer("to", 0)) == graph_.value(node.inputs[0]).type.dtype;
  }

  /// Removes unit steps of a Slice, so that its dims rule knows the axes that it does not touch.
  void drop_unit_steps(Node& node) {
    auto steps = node.inputs.size() > 4 ? numbers(node.inputs[4]) : std::nullopt;
    if (steps && std::all_of(steps->begin(), steps->end(), [](int64_t step) { return step == 1; }))
      node.inputs.resize(4);
  }

  void know_sizes(const Node& node) { *contents(node.outputs[0]) = sizes_of(node, graph_.symbols); }

  void become(ValueId id, std::shared_ptr<const Constant> made) {
    Shape shape = made->shape();
    graph_.value(id).type = {made->dtype(), Dims(shape.begin(), shape.end()), std::move(graph_.value(id).type.parts)};
    graph_.value(id).constant = std::move(made);
  }

  // ---- If with a known condition ----

  bool splice_branch(const Node& node, std::vector<Node>& pending) {
    if (node.op != "If" || node.inputs.empty()) return false;
    const Tensor* condition = graph_.constant(node.inputs[0]);
    if (!condition || condition->elements() != 1) return false;
    std::string_view wanted = *condition->as<uint8_t>() ? "then_branch" : "else_branch";
    auto body =
        std::find_if(node.bodies.begin(), node.bodies.end(), [&](const auto& row) { return row.first == wanted; });
    if (body == node.bodies.end()) return false;
    const Graph& inner = *body->second;
    std::vector<ValueId> map(static_cast<size_t>(inner.value_count()), no_value);
    for (size_t k = 0; k < inner.inputs.size(); ++k) map[static_cast<size_t>(inner.inputs[k])] = node.inputs[k + 1];
    auto mapped = [&](ValueId id) {
      if (id == no_value) return no_value;
      ValueId& to = map[static_cast<size_t>(id)];
      if (to == no_value) {
        const Value& value = inner.value(id);
        to = value.constant ? graph_.add_constant(*value.constant) : graph_.add_value({});
      }
      return to;
    };
    std::vector<Node> nodes;
    for (const Node& one : inner.nodes) {
      Node copy = one;
      for (ValueId& id : copy.inputs) id = mapped(id);
      for (ValueId& id : copy.outputs) id = mapped(id);
      nodes.push_back(std::move(copy));
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      ValueId made = mapped(inner.outputs[k]);
      if (redirect(node.outputs[k], made)) continue;
      nodes.emplace_back();
      nodes.back().op = "Identity";
      nodes.back().inputs = {made};
      nodes.back().outputs = {node.outputs[k]};
    }
    pending.insert(pending.end(), std::make_move_iterator(nodes.rbegin()), std::make_move_iterator(nodes.rend()));
    return true;
  }

  // ---- steps on a file's tensor ----

  /// The steps equivalent to the node for output `k`; false if there are none.
  bool steps_of(const Node& node, const Constant& source, size_t k, std::vector<RecipeStep>& steps) {
    using Kind = RecipeStep::Kind;
    Shape shape = source.shape();
    const Type& type = graph_.value(node.outputs[k]).type;
    if (node.op == "Transpose") {
      std::vector<int64_t> order = node.attributes.integers("perm");
      if (order.empty())
        for (int axis = shape.rank(); axis-- > 0;) order.push_back(axis);
      steps.push_back({Kind::transpose, std::move(order), {}});
      return true;
    }
    if (node.op == "Cast") {
      steps.push_back({Kind::cast, {}, type.dtype});
      return is_float(type.dtype) && is_float(source.dtype());
    }
    if (node.op == "Reshape" || node.op == "Squeeze" || node.op == "Unsqueeze" || node.op == "Flatten") {
      if (!type.dims) return false;
      std::vector<int64_t> sizes;
      for (const Dim& dim : *type.dims) {
        if (!dim.is_constant()) return false;
        sizes.push_back(dim.constant());
      }
      steps.push_back({Kind::reshape, std::move(sizes), {}});
      return true;
    }
    if (node.op == "Slice") return slice_step(node, shape, steps);
    if (node.op == "Split") return split_step(node, shape, k, steps);
    return false;
  }

  bool slice_step(const Node& node, const Shape& shape, std::vector<RecipeStep>& steps) {
    auto starts = numbers(node.inputs[1]), ends = numbers(node.inputs[2]);
    auto axes = node.inputs.size() > 3 ? numbers(node.inputs[3]) : std::vector<int64_t>{0};
    auto strides = node.inputs.size() > 4 ? numbers(node.inputs[4]) : std::vector<int64_t>{1};
    if (!starts || !ends || !axes || !strides || starts->size() != 1 || axes->size() != 1 || (*strides)[0] != 1)
      return false;
    int64_t axis = (*axes)[0] < 0 ? (*axes)[0] + shape.rank() : (*axes)[0];
    int64_t size = shape[static_cast<int>(axis)];
    auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
    int64_t begin = clamped((*starts)[0]), end = std::max(begin, clamped((*ends)[0]));
    steps.push_back({RecipeStep::Kind::slice, {axis, begin, end}, {}});
    return true;
  }

  bool split_step(const Node& node, const Shape& shape, size_t k, std::vector<RecipeStep>& steps) {
    int64_t axis = node.attributes.integer("axis", 0);
    if (axis < 0) axis += shape.rank();
    int64_t begin = 0;
    for (size_t i = 0; i <= k; ++i) {
      const Type& type = graph_.value(node.outputs[i]).type;
      if (node.outputs[i] == no_value || !type.dims || !(*type.dims)[static_cast<size_t>(axis)].is_constant())
        return false;
      int64_t size = (*type.dims)[static_cast<size_t>(axis)].constant();
      if (i == k) steps.push_back({RecipeStep::Kind::slice, {axis, begin, begin + size}, {}});
      begin += size;
    }
    return true;
  }

  /// A matrix of the file with at most 8 bits per element, as quantised weights have.
  static bool is_codes(const Constant& constant) {
    const int bits = dtype_bits(constant.dtype());
    return !constant.initializer.empty() && constant.shape().rank() >= 2 && bits >= 2 && bits <= 8 &&
           constant.dtype() != DType::boolean;
  }
  bool keeps_quantised(const Node& node) {
    return context_.keep_quantised && node.op == "DequantizeLinear" && constant(node.inputs[0]) &&
           is_codes(*constant(node.inputs[0]));
  }

  bool step_on_constant(const Node& node) {
    const Constant* source = node.inputs.empty() ? nullptr : constant(node.inputs[0]);
    if (!source || source->initializer.empty()) return false;
    const bool codes =
        is_codes(*source) && (node.op == "Reshape" || (node.op == "Transpose" && source->shape().rank() == 2));
    if (!is_float(source->dtype()) && !codes) return false;
    std::vector<std::pair<ValueId, std::shared_ptr<Constant>>> made;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == no_value) continue;
      auto derived = std::make_shared<Constant>(*source);
      std::vector<RecipeStep> steps;
      if (!steps_of(node, *source, k, steps)) return false;
      for (RecipeStep& step : steps) add_step(*derived, std::move(step));
      made.emplace_back(node.outputs[k], std::move(derived));
    }
    for (auto& [id, derived] : made) become(id, std::move(derived));
    return true;
  }

  // ---- known numbers ----

  bool compute(const Node& node) {
    if (known_numbers(node)) return true;
    if (!node.bodies.empty() || node.op == "plait.Sizes" || is_state(node))
      return false;  // neither is constant
    if (keeps_quantised(node)) return false;
    int64_t bytes = 0;
    for (ValueId id : node.inputs) {
      if (id == no_value) continue;
      if (!constant(id)) return false;
      bytes += packed_bytes(constant(id)->shape().elements(), dtype_bits(constant(id)->dtype()));
    }
    if (bytes > 4 * fold_budget) return false;
    int64_t budget = std::max(fold_budget, 2 * bytes);
    std::vector<Tensor> inputs, outputs;
    for (ValueId id : node.inputs) inputs.push_back(id == no_value ? Tensor() : materialize(*constant(id)));
    try {
      outputs = evaluate_node(context_, graph_, node, inputs, {}, std::min(budget, context_.budget->kept_bytes));
    } catch (const Error& error) {
      if (error.code() != Code::unsupported) throw;
      return false;  // left for the run, which has its own limits and messages
    }
    for (const Tensor& output : outputs) context_.budget->kept_bytes -= output.bytes();
    for (size_t k = 0; k < outputs.size(); ++k)
      if (node.outputs[k] != no_value)
        become(node.outputs[k], std::make_shared<Constant>(Constant{{}, std::move(outputs[k]), {}}));
    return true;
  }

  /// Contents found by shape arithmetic, all known: no kernel is needed.
  bool known_numbers(const Node& node) {
    if (node.outputs.size() != 1 || node.op == "plait.Sizes") return false;
    ValueId id = node.outputs[0];
    auto values = numbers(id);
    const Type& type = graph_.value(id).type;
    if (!values || !type.dims || !(is_integer(type.dtype) || type.dtype == DType::boolean)) return false;
    if (dtype_bits(type.dtype) % 8) return false;
    Tensor out(type.dtype, type.dims->empty() ? Shape{} : Shape{static_cast<int64_t>(values->size())});
    size_t size = static_cast<size_t>(dtype_bits(type.dtype)) / 8;
    for (size_t i = 0; i < values->size(); ++i)
      std::memcpy(out.data() + i * size, &(*values)[i], size);  // little-endian
    become(id, std::make_shared<Constant>(Constant{{}, std::move(out), {}}));
    return true;
  }

  // ---- known sizes ----

  /// Whether the sizes depend only on the inputs' shapes: data-dependent sizes have no value when sizes are written.
  bool bound_by_inputs(const Dims& sizes) const {
    return std::all_of(sizes.begin(), sizes.end(), [&](const Dim& size) {
      std::vector<SymbolId> used = size.symbols();
      return std::all_of(used.begin(), used.end(), [&](SymbolId id) { return bound_.count(id) > 0; });
    });
  }

  bool write_sizes(Node& node) {
    if (node.outputs.size() != 1 || node.op == "plait.Sizes") return false;
    ValueId id = node.outputs[0];
    auto* known = contents(id);
    const Type type = graph_.value(id).type;
    if (!known || !*known || !type.dims || !is_integer(type.dtype) || !bound_by_inputs(**known)) return false;
    bool scalar = type.dims->empty();
    make_sizes(node, **known, scalar, graph_.symbols);
    if (type.dtype != DType::i64) {  // sizes are i64; another dtype needs a cast after them
      Node cast;
      cast.op = "Cast";
      cast.attributes.set("to", static_cast<int64_t>(type.dtype));
      cast.outputs = {id};
      node.outputs[0] = graph_.add_value({}, {DType::i64, type.dims});
      *contents(node.outputs[0]) = **contents(id);
      cast.inputs = {node.outputs[0]};
      graph_.nodes.push_back(std::move(node));
      graph_.nodes.push_back(std::move(cast));
    } else {
      graph_.nodes.push_back(std::move(node));
    }
    return true;
  }

  Graph& graph_;
  PassContext& context_;
  const OpSet& ops_;
  std::vector<ValueId> alias_;
  std::set<SymbolId> bound_;  ///< sizes of inputs
};

}  // namespace

void fold(Graph& graph, PassContext& context) { Folder(graph, context).run(); }

}  // namespace plait
