// Pass attend: softmax(q k scale + mask) v, as exporters spell it, becomes Attention, whose scores never go to memory as a whole.
#include "core/graph/links.h"
#include "core/passes/base/evaluate.h"
#include "core/passes/plain/plain.h"

namespace plait {
namespace {

class Attend {
 public:
  explicit Attend(Graph& graph) : graph_(graph), nodes_(graph) {}

  void run() {
    for (const Node& node : nodes_)
      if (!replace(node)) graph_.nodes.push_back(node);
    graph_.remove_dead();
  }

 private:
  struct Scores {
    double scale = 1;
    ValueId mask = no_value;
  };

  const Dims* dims(ValueId id) const {
    const Type& type = graph_.value(id).type;
    return type.dtype == DType::f32 && type.dims ? &*type.dims : nullptr;
  }
  std::optional<double> number(ValueId id) const {
    const Tensor* constant = graph_.constant(id);
    if (!constant || constant->dtype() != DType::f32 || constant->elements() != 1 || constant->shape().rank() > 4)
      return std::nullopt;
    return *constant->as<float>();
  }
  /// A mask of scores [b, h, s, t]: each of its dims but the last is 1 or theirs. The last may also turn out to be 1 when it runs, for the
  /// product with the values has t terms.
  bool is_mask(ValueId id, const Dims& scores) const {
    const Dims* own = dims(id);
    if (!own || own->empty() || own->size() > 4) return false;
    for (size_t i = 1; i < own->size(); ++i) {
      const Dim& size = (*own)[own->size() - 1 - i];
      if (size != Dim(1) && size != scores[3 - i]) return false;
    }
    return true;
  }

  /// The product of queries and keys below `id`, with what is done to it on the way.
  const Node* product(ValueId id, Scores& out) const {
    if (const Node* sum = nodes_.only(id, "Add"))
      for (size_t k : {size_t{0}, size_t{1}}) {
        const Dims* own = dims(sum->inputs[k]);
        if (!own || own->size() != 4 || !is_mask(sum->inputs[1 - k], *own)) continue;
        out.mask = sum->inputs[1 - k];
        if (const Node* node = scaled_product(sum->inputs[k], out)) return node;
      }
    out.mask = no_value;
    return scaled_product(id, out);
  }
  const Node* scaled_product(ValueId id, Scores& out) const {
    for (const char* op : {"Mul", "Div"})
      if (const Node* node = nodes_.only(id, op))
        for (size_t k : {size_t{0}, size_t{1}}) {
          const std::optional<double> by = number(node->inputs[1 - k]);
          if (!by || *by == 0 || (k == 1 && op[0] == 'D')) continue;
          out.scale = op[0] == 'D' ? 1 / *by : *by;
          return nodes_.only(node->inputs[k], "MatMul");
        }
    out.scale = 1;
    return nodes_.only(id, "MatMul");
  }

  bool replace(const Node& node) {
    if (node.op != "MatMul") return false;
    const Node* softmax = nodes_.only(node.inputs[0], "Softmax");
    const Dims *y = dims(node.outputs[0]), *v = dims(node.inputs[1]);
    if (!softmax || !y || !v || y->size() != 4 || v->size() != 4) return false;
    const int64_t axis = softmax->attributes.integer("axis", -1);
    if (axis != -1 && axis != 3) return false;
    Scores scores;
    const Node* product_node = product(softmax->inputs[0], scores);
    if (!product_node) return false;
    const ValueId q = product_node->inputs[0], k = product_node->inputs[1];
    const Dims *queries = dims(q), *keys = dims(k);
    if (!queries || !keys || queries->size() != 4 || keys->size() != 4) return false;
    // Leading dims that broadcast, or whose sizes are only equal when it runs, are left as they are.
    for (size_t i : {size_t{0}, size_t{1}})
      if ((*queries)[i] != (*keys)[i] || (*queries)[i] != (*v)[i]) return false;
    if ((*keys)[3] != (*v)[2]) return false;
    const Dim count = (*keys)[3];  // added values move the others
    Attributes attributes;
    attributes.set("scale", scores.scale);
    std::vector<ValueId> inputs{q, rows(k), node.inputs[1]};
    if (scores.mask != no_value) inputs.push_back(whole_rows(scores.mask, count));
    Node& made = graph_.add_node("Attention", std::move(inputs), 0, std::move(attributes));
    made.outputs = node.outputs;
    made.name = node.name;
    return true;
  }

  /// Keys [b, h, t, d] of columns [b, h, d, t].
  ValueId rows(ValueId columns) {
    std::vector<int64_t> order{0, 1, 3, 2};
    ValueId from = columns;
    if (const Node* node = nodes_.maker(columns, "Transpose")) {
      const std::vector<int64_t> turned = node->attributes.integers("perm");
      if (turned.size() == 4 && dims(node->inputs[0])) {
        order = {turned[0], turned[1], turned[3], turned[2]};
        from = node->inputs[0];
      }
    }
    if (order == std::vector<int64_t>{0, 1, 2, 3}) return from;
    Attributes attributes;
    attributes.set("perm", order);
    Dims sizes = *dims(columns);
    std::swap(sizes[2], sizes[3]);
    const ValueId out = graph_.add_node("Transpose", {from}, 1, std::move(attributes)).outputs[0];
    graph_.value(out).type = {DType::f32, std::move(sizes)};
    return out;
  }

  /// The mask with `count` columns.
  ValueId whole_rows(ValueId mask, const Dim& count) {
    Dims sizes = *dims(mask);
    if (sizes.back() == count) return mask;
    Node& node = graph_.add_node("", {}, 1);
    make_sizes(node, {&count, 1}, false, graph_.symbols);
    const ValueId shape = node.outputs[0];
    graph_.value(shape).type = {DType::i64, Dims{Dim(1)}};
    const ValueId out = graph_.add_node("Expand", {mask, shape}).outputs[0];
    sizes.back() = count;
    graph_.value(out).type = {DType::f32, std::move(sizes)};
    return out;
  }

  Graph& graph_;
  OldNodes nodes_;
};

}  // namespace

void attend(Graph& graph, PassContext& context) {
  if (context.options.device == DeviceKind::host) Attend(graph).run();
}

}  // namespace plait
