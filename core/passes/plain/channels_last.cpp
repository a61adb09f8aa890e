// Pass channels_last: convolutions of images read and write [b, space, c], where pixels are rows of a product, and so do the ops
// between them. Each value has up to two forms, the file's and the one with channels last; a Transpose makes a form where it
// is first read and was not made.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "core/base/text.h"
#include "core/passes/plain/plain.h"

namespace plait {
namespace {

using Names = std::set<std::string_view>;

/// Ops whose first operand's layout does not matter; other operands are single numbers.
const Names unary{"Abs",       "Cast",      "Celu", "Clip",  "Elu",  "Erf",        "Exp",  "Gelu", "HardSigmoid",
                  "HardSwish", "LeakyRelu", "Log",  "Mish",  "Neg",  "Reciprocal", "Relu", "Selu", "Sigmoid",
                  "Softplus",  "Softsign",  "Sqrt", "Swish", "Tanh", "Floor",      "Ceil", "Round"};
/// The same, where one scale is for all.
const Names coding{"QuantizeLinear", "DequantizeLinear"};
const Names broadcasting{"Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Pow", "PRelu"};
const Names reductions{"ReduceMean",      "ReduceSum", "ReduceMax", "ReduceMin",
                       "ReduceSumSquare", "ReduceL1",  "ReduceL2"};

/// Of windows that are walked channel by channel.
constexpr int64_t most_taps = 4096;

class ChannelsLast {
 public:
  explicit ChannelsLast(Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      if (convert(node)) continue;
      for (ValueId id : node.inputs) make_first(id);
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId id : graph_.outputs) make_first(id);
    graph_.remove_dead();
  }

 private:
  // ---- Forms ----

  const Type& type(ValueId id) const { return graph_.value(id).type; }
  size_t rank(ValueId id) const { return id != no_value && type(id).dims ? type(id).dims->size() : 0; }
  const Dims& dims(ValueId id) const { return *type(id).dims; }

  struct Forms {
    ValueId last = no_value;
    bool first_missing = false;
  };
  Forms& forms(ValueId id) {
    if (forms_.size() < static_cast<size_t>(graph_.value_count()))
      forms_.resize(static_cast<size_t>(graph_.value_count()));
    return forms_[static_cast<size_t>(id)];
  }
  /// Whether only the form with channels last was made.
  bool only_last(ValueId id) { return id != no_value && forms(id).first_missing; }

  /// Where dim `axis` of the file's form is in the other one.
  static int64_t moved(int64_t axis, size_t rank) {
    if (axis < 0) axis += static_cast<int64_t>(rank);
    return axis == 0 ? 0 : axis == 1 ? static_cast<int64_t>(rank) - 1 : axis - 1;
  }
  /// The permutation of a Transpose to channels last: b, space, c.
  static std::vector<int64_t> to_last(size_t rank) {
    std::vector<int64_t> out{0};
    for (size_t i = 2; i < rank; ++i) out.push_back(static_cast<int64_t>(i));
    out.push_back(1);
    return out;
  }
  static Type last_type(const Type& first) {
    Type out{first.dtype, Dims{}};
    for (int64_t axis : to_last(first.dims->size())) out.dims->push_back((*first.dims)[static_cast<size_t>(axis)]);
    return out;
  }

  Node& emit(std::string op, std::vector<ValueId> inputs, std::vector<ValueId> outputs,
             const Node* origin = nullptr) {
    Node& node = graph_.nodes.emplace_back();
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    node.outputs = std::move(outputs);
    if (origin) node.name = origin->name;
    return node;
  }
  ValueId ints(std::vector<int64_t> numbers) { return graph_.add_constant(Tensor::of_ints(numbers)); }

  ValueId as_last(ValueId id) {
    if (const ValueId made = forms(id).last; made != no_value) return made;
    const size_t own = rank(id);
    ValueId turned_id = no_value;
    if (const auto& constant = graph_.value(id).constant) {
      Constant turned = *constant;
      add_step(turned, {RecipeStep::Kind::transpose, to_last(own), {}});
      turned_id = graph_.add_constant(std::move(turned));
    } else {
      turned_id = graph_.add_value("", last_type(type(id)));
      emit("Transpose", {id}, {turned_id}).attributes.set("perm", to_last(own));
    }
    forms(id).last = turned_id;
    return turned_id;
  }
  void make_first(ValueId id) {
    if (!only_last(id)) return;
    const size_t own = rank(id);
    std::vector<int64_t> back{0, static_cast<int64_t>(own) - 1};
    for (size_t i = 1; i + 1 < own; ++i) back.push_back(static_cast<int64_t>(i));
    emit("Transpose", {forms(id).last}, {id}).attributes.set("perm", std::move(back));
    forms(id).first_missing = false;
  }
  /// A value with channels last that stands for output `id`.
  ValueId last_of(ValueId id) {
    const ValueId made = graph_.add_value("", last_type(type(id)));
    forms(id) = {made, true};
    return made;
  }

  // ---- Nodes ----

  /// Emits the node with channels last; false: it stays as it is.
  bool convert(const Node& node) {
    if (!node.bodies.empty() || node.inputs.empty() || node.outputs.empty()) return false;
    for (ValueId id : node.outputs)
      if (id != no_value && !type(id).dims) return false;
    if (node.op == "Conv") return convolve(node);
    if (std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) { return only_last(id); })) return false;
    if (broadcasting.count(node.op)) return broadcast(node);
    if (node.op == "Concat") return concatenate(node);
    if (!only_last(node.inputs[0])) return false;
    if (unary.count(node.op)) return keep(node, true);
    if (coding.count(node.op)) return node.attributes.integer("block_size", 0) == 0 && keep(node, true);
    if (node.op == "MaxPool" || node.op == "AveragePool") return pool(node);
    if (node.op == "GlobalAveragePool" || node.op == "GlobalMaxPool") return pool_all(node);
    if (reductions.count(node.op)) return reduce(node);
    if (node.op == "BatchNormalization") return normalize(node);
    if (node.op == "Resize") return resize(node);
    if (node.op == "Split" || node.op == "Softmax") return along_axis(node);
    if (node.op == "Slice") return slice(node);
    if (node.op == "Pad") return pad(node);
    return node.op == "Transpose" && transpose(node);
  }

  bool is_f32(ValueId id) const { return type(id).dtype == DType::f32; }
  static bool is_one(const Dim& dim) { return dim.is_constant() && dim.constant() == 1; }
  bool is_single(ValueId id) const {
    return id == no_value || (type(id).dims && std::all_of(dims(id).begin(), dims(id).end(), is_one));
  }

  bool convolve(const Node& node) {
    const ValueId x = node.inputs[0], w = node.inputs[1], bias = node.inputs.size() > 2 ? node.inputs[2] : no_value;
    if ((rank(x) != 3 && rank(x) != 4) || !is_f32(x) || !graph_.value(w).constant || !is_f32(w)) return false;
    const Shape shape = graph_.value(w).constant->shape();
    const int64_t group = node.attributes.integer("group", 1);
    if (group < 1 || shape.rank() != static_cast<int>(rank(x)) || shape[0] % group || shape.elements() == 0)
      return false;
    // Groups of a few channels waste most of a panel of outputs, unless they are of one.
    constexpr int64_t panel = 32;
    if (group > 1 && shape[1] == 1 && shape.elements(2, shape.rank()) > most_taps) return false;
    if (group > 1 && !(shape[1] == 1 && shape[0] == group) && shape[0] / group % panel) return false;
    // A panel of few outputs is mostly padding, which only small kernels can afford: 64 MB.
    if (shape[0] < panel / 2 && shape.elements(1, shape.rank()) * panel * 4 > int64_t{64} << 20) return false;
    const ValueId y = node.outputs[0], from = as_last(x), to = last_of(y);
    const ValueId sum = bias == no_value ? to : graph_.add_value("", type(to));
    emit("plait.ChannelsLastConv", {from, w}, {sum}, &node).attributes = node.attributes;
    if (bias != no_value) emit("Add", {sum, bias}, {to}, &node);
    return true;
  }

  /// The same op on the other form. `singles`: operands after the first have to be single numbers.
  bool keep(const Node& node, bool singles) {
    for (size_t k = 1; k < node.inputs.size(); ++k)
      if (singles && !is_single(node.inputs[k])) return false;
    Node copy = node;
    copy.inputs[0] = forms(node.inputs[0]).last;
    for (ValueId& id : copy.outputs)
      if (id != no_value) id = last_of(id);
    graph_.nodes.push_back(std::move(copy));
    return true;
  }

  /// The operand of an op that broadcasts over dims of `wide`, with channels last; no_value if there is no such form.
  ValueId broadcast_operand(ValueId id, size_t wide) {
    if (id == no_value || !type(id).dims) return no_value;
    if (rank(id) == wide) return is_single(id) && !only_last(id) ? id : as_last(id);
    if (is_single(id)) return id;
    const auto& constant = graph_.value(id).constant;
    if (!constant) return no_value;
    Constant turned = *constant;
    std::vector<int64_t> sizes(wide - rank(id), 1);
    for (int64_t size : constant->shape()) sizes.push_back(size);
    add_step(turned, {RecipeStep::Kind::reshape, std::move(sizes), {}});
    add_step(turned, {RecipeStep::Kind::transpose, to_last(wide), {}});
    return graph_.add_constant(std::move(turned));
  }
  bool broadcast(const Node& node) {
    const size_t wide = rank(node.outputs[0]);
    for (ValueId id : node.inputs)
      if (id == no_value || !type(id).dims || rank(id) > wide || (only_last(id) && rank(id) != wide) ||
          (rank(id) < wide && !is_single(id) && !graph_.value(id).constant))
        return false;
    Node copy = node;
    for (ValueId& id : copy.inputs) id = broadcast_operand(id, wide);
    copy.outputs[0] = last_of(node.outputs[0]);
    graph_.nodes.push_back(std::move(copy));
    return true;
  }
  bool concatenate(const Node& node) {
    const size_t wide = rank(node.outputs[0]);
    for (ValueId id : node.inputs)
      if (rank(id) != wide) return false;
    Node copy = node;
    for (ValueId& id : copy.inputs) id = as_last(id);
    copy.attributes.set("axis", moved(node.attributes.integer("axis", 0), wide));
    copy.outputs[0] = last_of(node.outputs[0]);
    graph_.nodes.push_back(std::move(copy));
    return true;
  }

  bool pool(const Node& node) {
    if (node.outputs.size() > 1 && node.outputs[1] != no_value) return false;
    int64_t taps = 1;
    for (int64_t size : node.attributes.integers("kernel_shape"))
      taps = std::min(taps, most_taps + 1) * std::min(size, most_taps + 1);
    if (!is_f32(node.inputs[0]) || taps > most_taps) return false;
    const ValueId to = last_of(node.outputs[0]);
    Node& made = emit("plait.ChannelsLastPool", {forms(node.inputs[0]).last}, {to}, &node);
    made.attributes = node.attributes;
    made.attributes.erase("storage_order");
    made.attributes.set("kind", std::string(node.op == "MaxPool" ? "max" : "mean"));
    return true;
  }
  bool pool_all(const Node& node) {
    std::vector<int64_t> space;
    for (size_t i = 1; i + 1 < rank(node.inputs[0]); ++i) space.push_back(static_cast<int64_t>(i));
    const ValueId axes = ints(std::move(space)), from = forms(node.inputs[0]).last, to = last_of(node.outputs[0]);
    emit(node.op == "GlobalAveragePool" ? "ReduceMean" : "ReduceMax", {from, axes}, {to}, &node)
        .attributes.set("keepdims", int64_t{1});
    return true;
  }

  /// The elements of an integer constant.
  std::optional<std::vector<int64_t>> numbers(const Node& node, size_t k) const {
    const ValueId id = k < node.inputs.size() ? node.inputs[k] : no_value;
    const Tensor* found = id == no_value ? nullptr : graph_.constant(id);
    if (!found || !is_integer(found->dtype())) return std::nullopt;
    return to_ints(found->view());
  }
  ValueId moved_axes(std::vector<int64_t> axes, size_t wide) {
    for (int64_t& axis : axes) axis = moved(axis, wide);
    return ints(std::move(axes));
  }

  bool reduce(const Node& node) {
    const auto axes = numbers(node, 1);
    if (!axes || axes->empty() || !node.attributes.integer("keepdims", 1)) return false;
    const size_t wide = rank(node.inputs[0]);
    if (!keep(node, false)) return false;
    const ValueId turned = moved_axes(*axes, wide);
    graph_.nodes.back().inputs[1] = turned;
    return true;
  }
  /// By constants: a product and a sum of each channel.
  bool normalize(const Node& node) {
    if (node.attributes.integer("training_mode", 0) || node.inputs.size() != 5 || !is_f32(node.inputs[0]))
      return false;
    if (node.outputs.size() > 1 && node.outputs[1] != no_value) return false;
    Tensor rows[4];
    for (size_t k = 0; k < 4; ++k) {
      const auto& constant = graph_.value(node.inputs[k + 1]).constant;
      if (!constant || constant->dtype() != DType::f32) return false;
      rows[k] = materialize(*constant);
      if (rows[k].elements() != rows[0].elements()) return false;
    }
    const double epsilon = node.attributes.real("epsilon", 1e-5);
    Tensor factor(DType::f32, {rows[0].elements()}), shift(DType::f32, {rows[0].elements()});
    for (int64_t c = 0; c < factor.elements(); ++c) {
      const double by = rows[0].as<float>()[c] / std::sqrt(static_cast<double>(rows[3].as<float>()[c]) + epsilon);
      factor.as<float>()[c] = static_cast<float>(by);
      shift.as<float>()[c] = static_cast<float>(rows[1].as<float>()[c] - by * rows[2].as<float>()[c]);
    }
    const ValueId from = forms(node.inputs[0]).last, to = last_of(node.outputs[0]),
                  scaled = graph_.add_value("", type(to)), by = graph_.add_constant(std::move(factor)),
                  plus = graph_.add_constant(std::move(shift));
    emit("Mul", {from, by}, {scaled}, &node);
    emit("Add", {scaled, plus}, {to}, &node);
    return true;
  }
  /// The operands keep their order: attribute "axes" names the dims.
  bool resize(const Node& node) {
    const size_t wide = rank(node.inputs[0]);
    std::vector<int64_t> axes = node.attributes.integers("axes");
    for (size_t i = 0; i < wide && !node.attributes.has("axes"); ++i) axes.push_back(static_cast<int64_t>(i));
    for (int64_t& axis : axes) axis = moved(axis, wide);
    keep(node, false);
    graph_.nodes.back().attributes.set("axes", std::move(axes));
    return true;
  }
  bool along_axis(const Node& node) {
    const size_t wide = rank(node.inputs[0]);
    const int64_t axis = moved(node.attributes.integer("axis", node.op == "Softmax" ? -1 : 0), wide);
    // Rows of a Softmax are contiguous in one of the forms.
    if (node.op == "Softmax" && axis + 1 != static_cast<int64_t>(wide)) return false;
    keep(node, false);
    graph_.nodes.back().attributes.set("axis", axis);
    return true;
  }
  bool slice(const Node& node) {
    const auto starts = numbers(node, 1);
    return starts && with_moved_axes(node, starts->size());
  }
  bool pad(const Node& node) { return with_moved_axes(node, rank(node.inputs[0])); }

  /// Keeps a node whose operand 3 names axes; without it these are the first `count`.
  bool with_moved_axes(const Node& node, size_t count) {
    const size_t wide = rank(node.inputs[0]);
    auto axes = numbers(node, 3);
    const bool named = node.inputs.size() > 3 && node.inputs[3] != no_value;
    if (named && !axes) return false;
    if (!named) {
      axes.emplace(count);
      std::iota(axes->begin(), axes->end(), int64_t{0});
    }
    keep(node, false);
    const ValueId turned = moved_axes(std::move(*axes), wide);
    Node& made = graph_.nodes.back();
    if (made.inputs.size() < 4) made.inputs.resize(4, no_value);
    made.inputs[3] = turned;
    return true;
  }
  bool transpose(const Node& node) {
    const size_t wide = rank(node.inputs[0]);
    std::vector<int64_t> order = node.attributes.integers("perm");
    if (order.empty())
      for (size_t i = wide; i-- > 0;) order.push_back(static_cast<int64_t>(i));
    for (int64_t& axis : order) axis = moved(axis, wide);
    emit("Transpose", {forms(node.inputs[0]).last}, {node.outputs[0]}, &node)
        .attributes.set("perm", std::move(order));
    return true;
  }

  Graph& graph_;
  std::vector<Forms> forms_;
};

}  // namespace

void channels_last(Graph& graph, PassContext& context) {
  if (context.options.device == DeviceKind::host) ChannelsLast(graph).run();
}

}  // namespace plait
