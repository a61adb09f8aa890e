// Pass in_codes: convolutions and products between DequantizeLinear and QuantizeLinear compute on the codes, as ONNX Runtime does: sums are
// exact, and results are rounded once. Before types are known and constants are folded: what has to be known is constant.
#include <cmath>
#include <limits>

#include "core/graph/links.h"
#include "core/passes/plain/plain.h"

namespace plait {
namespace {

class InCodes {
 public:
  explicit InCodes(Graph& graph) : graph_(graph), nodes_(graph) {}

  void run() {
    for (const Node& node : nodes_)
      if (!(node.op == "QuantizeLinear" ? replace(node) : is_product(node) && multiply(node)))
        graph_.nodes.push_back(node);
    graph_.remove_dead();
  }

 private:
  /// 8-bit codes: u8 or i8.
  struct Codes {
    ValueId codes, scale, zero;
    bool single;  ///< one scale for all
  };

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
    const Node* node = nodes_.maker(id, "DequantizeLinear");
    return node ? codes_of(node, node->inputs[0]) : std::nullopt;
  }
  /// A weight whose scales, if they are several, are those of axis `axis`.
  std::optional<Codes> weight(ValueId id, int rank, int64_t axis) {
    const Node* node = nodes_.maker(id, "DequantizeLinear");
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
    if (const Node* conv = nodes_.only(results, "Conv")) return convolve(node, *conv, *y);
    if (const Node* product = nodes_.only(results, "MatMul")) return multiply(node, *product, *y);
    return false;
  }
  /// What a Relu or Clip reads that codes do anyway, since none is below its least number or above its greatest.
  ValueId before_relu(ValueId id, const Codes& y) const {
    const DType dtype = graph_.constant(y.zero)->dtype();
    const int64_t low = dtype == DType::u8 ? 0 : -128, high = dtype == DType::u8 ? 255 : 127, zero = zero_of(y);
    if (const Node* relu = nodes_.only(id, "Relu")) return zero == low ? relu->inputs[0] : id;
    const Node* clip = nodes_.only(id, "Clip");
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
  /// The i32 codes of a bias in the sums' scales.
  std::optional<ValueId> bias_of(ValueId id, const Codes& x, const Codes& w) {
    const auto& constant = graph_.value(id).constant;
    return constant ? coded(materialize(*constant), x, w) : codes_of_bias(id, x, w);
  }
  /// Of numbers: half a unit of the sums off at most, which is far less than a step of the results.
  std::optional<ValueId> coded(const Tensor& numbers, const Codes& x, const Codes& w) {
    const Tensor* of_w = scales(w.scale);
    if (numbers.dtype() != DType::f32 || numbers.shape().rank() != 1) return std::nullopt;
    if (!w.single && of_w->elements() != numbers.elements())
      return std::nullopt;  // the file has not been checked yet
    Tensor out(DType::i32, numbers.shape());
    for (int64_t i = 0; i < out.elements(); ++i) {
      const double unit = number(x.scale) * of_w->as<float>()[w.single ? 0 : i], code = numbers.as<float>()[i] / unit;
      if (!(std::abs(code) < 0x1p28)) return std::nullopt;  // sums have room for it
      out.as<int32_t>()[i] = static_cast<int32_t>(std::nearbyint(code));
    }
    return graph_.add_constant(std::move(out));
  }
  /// Of codes that are there, if theirs are the sums' scales.
  std::optional<ValueId> codes_of_bias(ValueId id, const Codes& x, const Codes& w) const {
    const Node* node = nodes_.maker(id, "DequantizeLinear");
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
  /// Also of Gemm, whose bias is added to the numbers.
  bool multiply(const Node& node) {
    if (node.op == "MatMul" && only_quantized(node)) return false;  // becomes QLinearMatMul
    const bool gemm = node.op == "Gemm", turned = gemm && node.attributes.integer("transB", 0);
    const ValueId bias = gemm ? input(node, 2) : no_value;
    const std::optional<Codes> a = dequantized(node.inputs[0]), b = weight(node.inputs[1], 2, turned ? 0 : 1);
    if (!a || !a->single || !b) return false;
    if (gemm && (node.attributes.integer("transA", 0) || (bias != no_value && node.attributes.real("beta", 1) != 1)))
      return false;
    Tensor scale = Tensor(DType::f32, scales(b->scale)->shape());
    const double by = number(a->scale) * (gemm ? node.attributes.real("alpha", 1) : 1);
    for (int64_t i = 0; i < scale.elements(); ++i)
      scale.as<float>()[i] = static_cast<float>(by * scales(b->scale)->as<float>()[i]);
    const ValueId right = turned ? transposed(b->codes) : b->codes;
    const ValueId sums = add("MatMulInteger", {a->codes, right, a->zero, b->zero}, node, 1).outputs[0];
    Attributes to;
    to.set("to", static_cast<int64_t>(DType::f32));
    Node& cast = add("Cast", {sums}, node, 1);
    cast.attributes = std::move(to);
    const ValueId numbers = cast.outputs[0], factor = graph_.add_constant(std::move(scale));
    if (bias == no_value) {
      add("Mul", {numbers, factor}, node).outputs = node.outputs;
      return true;
    }
    const ValueId scaled = add("Mul", {numbers, factor}, node, 1).outputs[0];
    add("Add", {scaled, bias}, node).outputs = node.outputs;
    return true;
  }
  ValueId transposed(ValueId matrix) {
    Constant out = *graph_.value(matrix).constant;
    add_step(out, {RecipeStep::Kind::transpose, {1, 0}, {}});
    return graph_.add_constant(std::move(out));
  }
  static bool is_product(const Node& node) { return node.op == "MatMul" || node.op == "Gemm"; }
  bool only_quantized(const Node& node) {
    const Node* reader = nodes_.only_reader(node.outputs[0]);
    if (!reader || reader->op != "QuantizeLinear") return false;
    const std::optional<Codes> y = codes_of(reader, no_value);
    return y && y->single;
  }

  Node& add(std::string op, std::vector<ValueId> inputs, const Node& origin, int outputs = 0) {
    Node& out = graph_.add_node(std::move(op), std::move(inputs), outputs,
                                origin.op == "Conv" ? origin.attributes : Attributes{});
    out.name = origin.name;
    return out;
  }

  Graph& graph_;
  OldNodes nodes_;
};

}  // namespace

void in_codes(Graph& graph, PassContext& context) {
  if (context.options.device == DeviceKind::host) InCodes(graph).run();
}

}  // namespace plait
