// Pass in_codes: convolutions and products between DequantizeLinear and QuantizeLinear compute on the codes, as ONNX Runtime does: sums are
// exact, and results are rounded once. Before types are known and constants are folded: what has to be known is constant.
#include <cmath>
#include <limits>
#include <set>

#include "core/passes/lower/lower.h"

namespace plait {
namespace {

class InCodes {
 public:
  explicit InCodes(Graph& graph) : graph_(graph) {}

  void run() {
    for (Node& node : graph_.nodes)
      for (auto& [name, body] : node.bodies) {
        if (!body->refusal.empty()) continue;
        body = std::make_shared<Graph>(*body);  // several graphs may share it
        InCodes(*body).run();
      }
    producer_ = producers(graph_);
    readers_ = consumers(graph_);
    outputs_ = {graph_.outputs.begin(), graph_.outputs.end()};
    const std::vector<Node> nodes = std::move(graph_.nodes);
    nodes_ = &nodes;
    graph_.nodes.clear();
    for (const Node& node : nodes)
      if (!(node.op == "QuantizeLinear" ? replace(node) : node.op == "MatMul" && multiply(node)))
        graph_.nodes.push_back(node);
    graph_.remove_dead();
  }

 private:
  /// 8-bit codes: u8 or i8.
  struct Codes {
    ValueId codes, scale, zero;
    bool single;  ///< one scale for all
  };

  const Node* producer(ValueId id, std::string_view op) const {
    const int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    if (at < 0 || (*nodes_)[static_cast<size_t>(at)].op != op) return nullptr;
    return &(*nodes_)[static_cast<size_t>(at)];
  }
  /// The same of a value that nothing else reads.
  const Node* only(ValueId id, std::string_view op) const {
    return outputs_.count(id) || readers_[static_cast<size_t>(id)].size() != 1 ? nullptr : producer(id, op);
  }
  ValueId input(const Node& node, size_t k) const { return k < node.inputs.size() ? node.inputs[k] : no_value; }
  const Tensor* scales(ValueId id) const {
    const Tensor* out = graph_.constant(id);
    return out && out->dtype() == DType::f32 && out->shape().rank() <= 1 && out->elements() > 0 ? out : nullptr;
  }
  static bool is_code(DType dtype) { return dtype == DType::u8 || dtype == DType::i8; }

  /// Scale and zero point of QuantizeLinear or DequantizeLinear. A zero point that is left out is 0 of the weight's type.
  std::optional<Codes> codes_of(const Node* node, ValueId codes) {
    if (!node || node->attributes.integer("block_size", 0) != 0) return std::nullopt;
    const Tensor *scale = scales(node->inputs[1]), *weight = graph_.constant(codes);
    ValueId zero = input(*node, 2);
    if (!scale || (zero == no_value && !weight)) return std::nullopt;
    if (zero == no_value)
      zero = is_code(weight->dtype()) ? graph_.add_constant(Tensor(weight->dtype(), Shape{})) : no_value;
    const Tensor* points = graph_.constant(zero);
    if (!points || !is_code(points->dtype()) || points->elements() > scale->elements()) return std::nullopt;
    if (points->elements() != scale->elements() && points->elements() != 1) return std::nullopt;
    return Codes{codes, node->inputs[1], zero, scale->elements() == 1};
  }
  std::optional<Codes> dequantized(ValueId id) {
    const Node* node = producer(id, "DequantizeLinear");
    return node ? codes_of(node, node->inputs[0]) : std::nullopt;
  }
  /// A weight whose scales, if they are several, are those of axis `axis`.
  std::optional<Codes> weight(ValueId id, int rank, int64_t axis) {
    const Node* node = producer(id, "DequantizeLinear");
    const Tensor* own = node ? graph_.constant(node->inputs[0]) : nullptr;
    if (!own || !is_code(own->dtype()) || (rank ? own->shape().rank() != rank : own->shape().rank() < 3))
      return std::nullopt;
    std::optional<Codes> out = codes_of(node, node->inputs[0]);
    if (!out || out->single) return out;
    const int64_t given = node->attributes.integer("axis", 1),
                  own_axis = given < 0 ? given + own->shape().rank() : given;
    if (own_axis != axis || scales(out->scale)->elements() != own->shape()[static_cast<int>(axis)])
      return std::nullopt;
    return out;
  }
  double number(ValueId id) const { return *graph_.constant(id)->as<float>(); }
  int64_t zero_of(const Codes& codes) const {
    const Tensor* zero = graph_.constant(codes.zero);
    return zero->dtype() == DType::u8 ? *zero->as<uint8_t>() : *zero->as<int8_t>();
  }

  bool replace(const Node& node) {
    const std::optional<Codes> y = codes_of(&node, no_value);
    if (!y || !y->single) return false;
    const ValueId results = before_relu(node.inputs[0], *y);
    if (const Node* conv = only(results, "Conv")) return convolve(node, *conv, *y);
    if (const Node* product = only(results, "MatMul")) return multiply(node, *product, *y);
    return false;
  }
  /// What a Relu or Clip reads that codes do anyway, since none is below its least number or above its greatest.
  ValueId before_relu(ValueId id, const Codes& y) const {
    const DType dtype = graph_.constant(y.zero)->dtype();
    const int64_t low = dtype == DType::u8 ? 0 : -128, high = dtype == DType::u8 ? 255 : 127, zero = zero_of(y);
    if (const Node* relu = only(id, "Relu")) return zero == low ? relu->inputs[0] : id;
    const Node* clip = only(id, "Clip");
    if (!clip) return id;
    auto bound = [&](size_t k, double fallback) -> std::optional<double> {
      if (input(*clip, k) == no_value) return fallback;
      const Tensor* own = graph_.constant(clip->inputs[k]);
      if (!own || own->dtype() != DType::f32 || own->elements() != 1) return std::nullopt;
      return std::nearbyint(*own->as<float>() / number(y.scale)) + static_cast<double>(zero);
    };
    const std::optional<double> least = bound(1, -HUGE_VAL), greatest = bound(2, HUGE_VAL);
    return least && greatest && *least <= static_cast<double>(low) && *greatest >= static_cast<double>(high)
               ? clip->inputs[0]
               : id;
  }

  bool convolve(const Node& node, const Node& conv, const Codes& y) {
    const std::optional<Codes> x = dequantized(conv.inputs[0]), w = weight(conv.inputs[1], 0, 0);
    if (!x || !x->single || !w) return false;
    std::vector<ValueId> inputs{x->codes, x->scale, x->zero, w->codes, w->scale, w->zero, y.scale, y.zero};
    if (const ValueId bias = input(conv, 2); bias != no_value) {
      const std::optional<ValueId> sums = bias_of(bias, *x, *w);
      if (!sums) return false;
      inputs.push_back(*sums);
    }
    add("QLinearConv", std::move(inputs), conv).outputs = node.outputs;
    return true;
  }
  /// The i32 codes of a bias that has the sums' scales.
  std::optional<ValueId> bias_of(ValueId id, const Codes& x, const Codes& w) const {
    const Node* node = producer(id, "DequantizeLinear");
    const Tensor *codes = node ? graph_.constant(node->inputs[0]) : nullptr,
                 *own = node ? scales(node->inputs[1]) : nullptr;
    const Tensor* of_w = scales(w.scale);
    if (!codes || codes->dtype() != DType::i32 || !own || own->elements() != of_w->elements()) return std::nullopt;
    if (input(*node, 2) != no_value) {
      const Tensor* zero = graph_.constant(node->inputs[2]);
      if (!zero || zero->dtype() != DType::i32) return std::nullopt;
      for (int64_t i = 0; i < zero->elements(); ++i)
        if (zero->as<int32_t>()[i] != 0) return std::nullopt;
    }
    for (int64_t i = 0; i < own->elements(); ++i) {
      const double sums = number(x.scale) * of_w->as<float>()[i];
      if (std::abs(own->as<float>()[i] - sums) > 1e-5 * std::abs(sums)) return std::nullopt;
    }
    return node->inputs[0];
  }

  /// MatMul by a weight, with and without QuantizeLinear after it.
  bool multiply(const Node& node, const Node& product, const Codes& y) {
    const std::optional<Codes> a = dequantized(product.inputs[0]), b = weight(product.inputs[1], 2, 1);
    if (!a || !a->single || !b) return false;
    add("QLinearMatMul", {a->codes, a->scale, a->zero, b->codes, b->scale, b->zero, y.scale, y.zero}, product)
        .outputs = node.outputs;
    return true;
  }
  bool multiply(const Node& node) {
    if (only_quantized(node)) return false;  // becomes QLinearMatMul
    const std::optional<Codes> a = dequantized(node.inputs[0]), b = weight(node.inputs[1], 2, 1);
    if (!a || !a->single || !b) return false;
    Tensor scale = Tensor(DType::f32, scales(b->scale)->shape());
    for (int64_t i = 0; i < scale.elements(); ++i)
      scale.as<float>()[i] = static_cast<float>(number(a->scale) * scales(b->scale)->as<float>()[i]);
    const ValueId sums = add("MatMulInteger", {a->codes, b->codes, a->zero, b->zero}, node, 1).outputs[0];
    Attributes to;
    to.set("to", static_cast<int64_t>(DType::f32));
    Node& cast = graph_.add_node("Cast", {sums}, 1, std::move(to));
    cast.name = node.name;
    const ValueId numbers = cast.outputs[0], by = graph_.add_constant(std::move(scale));
    Node& scaled = graph_.add_node("Mul", {numbers, by}, 0);
    scaled.name = node.name;
    scaled.outputs = node.outputs;
    return true;
  }
  bool only_quantized(const Node& node) {
    if (outputs_.count(node.outputs[0])) return false;
    const auto& readers = readers_[static_cast<size_t>(node.outputs[0])];
    if (readers.size() != 1) return false;
    const Node& reader = (*nodes_)[static_cast<size_t>(readers[0])];
    const std::optional<Codes> y = reader.op == "QuantizeLinear" ? codes_of(&reader, no_value) : std::nullopt;
    return y && y->single;
  }

  Node& add(std::string op, std::vector<ValueId> inputs, const Node& origin, int outputs = 0) {
    Node& out = graph_.add_node(std::move(op), std::move(inputs), outputs,
                                origin.op == "Conv" ? origin.attributes : Attributes{});
    out.name = origin.name;
    return out;
  }

  Graph& graph_;
  const std::vector<Node>* nodes_ = nullptr;
  std::vector<int32_t> producer_;
  std::vector<std::vector<int32_t>> readers_;
  std::set<ValueId> outputs_;
};

}  // namespace

void in_codes(Graph& graph, PassContext& context) {
  if (context.options.device == DeviceKind::host) InCodes(graph).run();
}

}  // namespace plait
