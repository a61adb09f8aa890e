// Raise, quantised weights: MatMulNBits, GatherBlockQuantized, products with a dequantised constant, and dynamically
// quantised products become Linear and Embedding over [n, c, l] codes with scales and zero points, which stay packed
// as in the file.
//
// If a file quantises activations at run time (DynamicQuantizeLinear), all rows of x share one scale, so a token's
// result would depend on its batch; if it rounds them by fixed scales (QuantizeLinear followed by DequantizeLinear),
// that is for integer kernels. Such graphs run as written, unless exact activations are requested: then products use
// the unquantised activations.
#include <algorithm>
#include <cstring>

#include "core/base/text.h"
#include "core/passes/raise/raiser.h"

namespace plait {
namespace {

using Kind = RecipeStep::Kind;

bool is_code(DType dtype) {
  return dtype == DType::u8 || dtype == DType::i8 || dtype == DType::u4 || dtype == DType::i4 || dtype == DType::u2 ||
         dtype == DType::i2;
}
bool is_signed(DType dtype) { return dtype == DType::i8 || dtype == DType::i4 || dtype == DType::i2; }

/// A weight as operands of Linear.
struct Quantised {
  Constant codes, scales;
  std::optional<Constant> zeros;
  int64_t zero = 0;  ///< if there are no `zeros`
};

/// The operands of a DequantizeLinear of a matrix of codes.
struct Dequantised {
  const Constant* codes;
  const Constant* scale;
  const Constant* zero;  ///< null: 0
  int64_t axis = 1, block = 0;
};

class QuantisedRaiser {
 public:
  QuantisedRaiser(Graph& graph, bool dynamic) : graph_(graph), dynamic_(dynamic) {}

  void run() {
    producer_ = producers(graph_);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      Node& node = graph_.nodes[i];
      if (node.op == "com.microsoft.MatMulNBits") raise_bits(node);
      else if (node.op == "com.microsoft.GatherBlockQuantized") raise_gather_blocks(node);
      else if (node.op == "MatMul" || node.op == "Gemm") raise_product(node);
      else if (node.op == "Gather") raise_gather(node);
      else if (node.op == "Mul" && dynamic_) raise_dynamic(node);
      else if (node.op == "plait.Experts") store_scales(node);
    }
    for (const auto& [from, to] : moved_) graph_.replace_uses(from, to);
    for (Node& node : added_) graph_.nodes.push_back(std::move(node));
    graph_.sort();
    graph_.remove_dead();
  }

 private:
  const Constant* constant(const Node& node, size_t k) const {
    ValueId id = k < node.inputs.size() ? node.inputs[k] : no_value;
    return id == no_value ? nullptr : graph_.value(id).constant.get();
  }
  bool has(const Node& node, size_t k) const { return k < node.inputs.size() && node.inputs[k] != no_value; }
  const Node* maker(ValueId id) const {
    int32_t at = id == no_value ? -1 : producer_[static_cast<size_t>(id)];
    return at < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(at)];
  }
  bool is_rows_of_f32(ValueId id) const {
    const Type& type = graph_.value(id).type;
    return type.dtype == DType::f32 && type.dims && type.dims->size() >= 2;
  }

  void become_linear(Node& node, ValueId x, const Quantised& weight) {
    node.op = "plait.Linear";
    node.inputs = {x, graph_.add_constant(weight.codes), no_value, graph_.add_constant(weight.scales)};
    if (weight.zeros) node.inputs.push_back(graph_.add_constant(*weight.zeros));
    node.attributes = {};
    if (weight.zero != 0) node.attributes.set("zero", weight.zero);
  }
  /// Linear has no bias before fuse.
  void add_bias(const Node& node, ValueId bias) {
    Node add;
    add.op = "Add";
    add.name = node.name;
    add.inputs = {node.outputs[0], bias};
    add.outputs = {graph_.add_value({}, graph_.value(node.outputs[0]).type)};
    moved_.emplace_back(node.outputs[0], add.outputs[0]);
    added_.push_back(std::move(add));
  }
  void become_embedding(Node& node, ValueId ids, const Quantised& table) {
    node.op = "plait.Embedding";
    node.inputs = {graph_.add_constant(table.codes), ids, graph_.add_constant(table.scales)};
    if (table.zeros) node.inputs.push_back(graph_.add_constant(*table.zeros));
    node.attributes = {};
    node.attributes.set("to", static_cast<int64_t>(graph_.value(node.outputs[0]).type.dtype));
    if (table.zero != 0) node.attributes.set("zero", table.zero);
  }

  void raise_bits(Node& node);
  void raise_gather_blocks(Node& node);
  void raise_product(Node& node);
  void raise_gather(Node& node);
  void raise_dynamic(Node& node);
  void store_scales(Node& node);
  std::optional<Dequantised> dequantised(ValueId id, bool& transposed) const;

  Graph& graph_;
  bool dynamic_;
  std::vector<int32_t> producer_;
  std::vector<Node> added_;
  std::vector<std::pair<ValueId, ValueId>> moved_;
};

void reshape(Constant& constant, std::vector<int64_t> sizes) {
  Shape to(sizes);
  if (!(constant.shape() == to)) add_step(constant, {Kind::reshape, std::move(sizes), {}});
}

/// Whether f32 numbers are exact in bf16. Reads the file's bytes.
bool are_bf16(const Tensor& tensor) {
  constexpr int64_t chunk = 1 << 14;
  for (int64_t begin = 0; begin < tensor.elements(); begin += chunk) {
    uint32_t low = 0;
    for (int64_t i = begin, end = std::min(begin + chunk, tensor.elements()); i < end; ++i) {
      uint32_t bits;
      std::memcpy(&bits, tensor.data() + 4 * i, sizeof bits);
      low |= bits & 0xFFFF;
    }
    if (low) return false;
  }
  return true;
}

/// Storage form of scales. For weights that were bf16, a symmetric scale is a block's maximum over a power of two:
/// exact in bf16, half the bytes of f32. At 4 bits and blocks of 32 that is a tenth of the bytes read per token.
Constant stored_scales(const Constant& scales, bool transpose) {
  Constant out = *storage_constant(scales, transpose);
  if (out.dtype() == DType::f32 && out.source.dtype() == DType::f32 && are_bf16(out.source))
    add_step(out, {Kind::cast, {}, DType::bf16});
  return out;
}

/// Splits codes of fewer than 8 bits that the file stores as u8.
void split_bytes(Constant& constant, int64_t bits) {
  if (constant.dtype() == DType::u8 && bits < 8)
    add_step(constant, {Kind::reinterpret, {}, bits == 4 ? DType::u4 : DType::u2});
}

/// Kernels need groups of 16 codes within one block, and rows that begin at a byte, to be fast. Others are
/// dequantised at compile time.
bool is_blocked_well(int64_t blocks, int64_t length, int bits) {
  return blocks > 0 && length > 0 && (length % 16 == 0 || (blocks == 1 && length * bits % 8 == 0));
}

/// Packed rows of `blocks` zero points, possibly padded to whole bytes, as [n, blocks] of 8 bits; floats unchanged.
std::optional<Constant> zeros_of_blocks(const Constant& packed, int64_t n, int64_t blocks, int64_t bits) {
  Constant out = *storage_constant(packed, false);
  if (!is_float(out.dtype())) {
    split_bytes(out, bits);
    if (dtype_bits(out.dtype()) < 8) add_step(out, {Kind::cast, {}, is_signed(out.dtype()) ? DType::i8 : DType::u8});
  }
  const int64_t all = out.shape().elements();
  if (n == 0 || all % n || all / n < blocks) return std::nullopt;
  reshape(out, {n, all / n});
  if (all / n > blocks) add_step(out, {Kind::slice, {1, 0, blocks}, {}});
  return out;
}

/// The importer makes experts with quantised weights canonical, but keeps the file's form of their scales; this
/// converts them.
void QuantisedRaiser::store_scales(Node& node) {
  for (size_t k : {size_t{9}, size_t{11}, size_t{13}})
    if (const Constant* scales = constant(node, k))
      node.inputs[k] = graph_.add_constant(stored_scales(*scales, false));
}

void QuantisedRaiser::raise_bits(Node& node) {
  const Constant *codes = constant(node, 1), *scales = constant(node, 2), *zeros = constant(node, 3);
  const int64_t k = node.attributes.integer("K"), n = node.attributes.integer("N");
  const int64_t bits = node.attributes.integer("bits", 4), block = node.attributes.integer("block_size");
  if (k < 1 || n < 1 || block < 1) return;
  const int64_t blocks = (k - 1) / block + 1;
  if (!codes || !scales || (has(node, 3) && !zeros) || has(node, 4) || !is_rows_of_f32(node.inputs[0])) return;
  if (node.attributes.integer("weight_prepacked", 0) || (bits != 2 && bits != 4 && bits != 8)) return;
  if (codes->dtype() != DType::u8 || block > codes->shape().elements() * 8 / bits ||
      !is_blocked_well(blocks, block, static_cast<int>(bits)))
    return;
  // The file's own sizes cannot overflow; the attributes' might.
  const int64_t row_bits = codes->shape().elements() / n * 8;
  if (codes->shape().elements() % n || row_bits % (block * bits) || row_bits / (block * bits) != blocks) return;
  if (scales->shape().elements() % n || scales->shape().elements() / n != blocks) return;
  Quantised weight{*codes, stored_scales(*scales, false), std::nullopt, zeros ? 0 : int64_t{1} << (bits - 1)};
  split_bytes(weight.codes, bits);
  reshape(weight.codes, {n, blocks, block});
  reshape(weight.scales, {n, blocks});
  if (zeros && !(weight.zeros = zeros_of_blocks(*zeros, n, blocks, bits))) return;
  const ValueId bias = has(node, 5) ? node.inputs[5] : no_value;
  become_linear(node, node.inputs[0], weight);
  if (bias != no_value) add_bias(node, bias);
}

void QuantisedRaiser::raise_gather_blocks(Node& node) {
  const Constant *codes = constant(node, 0), *scales = constant(node, 2), *zeros = constant(node, 3);
  if (!codes || !scales || (has(node, 3) && !zeros) || !is_code(codes->dtype())) return;
  if (codes->shape().rank() != 2 || scales->shape().rank() != 2 || node.attributes.integer("gather_axis", 0) != 0)
    return;
  const int64_t axis = node.attributes.integer("quantize_axis", 1);
  if (axis != 1 && axis != -1) return;
  const int64_t bits = codes->dtype() == DType::u8 ? node.attributes.integer("bits", 4) : dtype_bits(codes->dtype());
  if (bits != 2 && bits != 4 && bits != 8) return;
  const int64_t v = codes->shape()[0], h = codes->shape()[1] * dtype_bits(codes->dtype()) / bits;
  const int64_t block = node.attributes.integer("block_size", 128), blocks = scales->shape()[1];
  if (blocks < 1 || h % blocks || h / blocks != block || !is_blocked_well(blocks, block, static_cast<int>(bits)))
    return;
  const bool halved = codes->dtype() == DType::u8 && !zeros;
  Quantised table{*codes, stored_scales(*scales, false), std::nullopt, halved ? int64_t{1} << (bits - 1) : 0};
  split_bytes(table.codes, bits);
  reshape(table.codes, {v, blocks, block});
  if (zeros && !(table.zeros = zeros_of_blocks(*zeros, v, blocks, bits))) return;
  become_embedding(node, node.inputs[1], table);
}

/// The DequantizeLinear of a constant matrix that makes `id`, through transposes.
std::optional<Dequantised> QuantisedRaiser::dequantised(ValueId id, bool& transposed) const {
  const Node* node = maker(id);
  for (; node && (node->op == "Transpose" || node->op == "Cast"); node = maker(node->inputs[0])) {
    const auto& dims = graph_.value(node->inputs[0]).type.dims;
    if (!dims || dims->size() != 2 || !is_float(graph_.value(node->outputs[0]).type.dtype)) return std::nullopt;
    std::vector<int64_t> order = node->attributes.integers("perm");
    if (node->op == "Transpose" && (order.empty() || order[0] == 1)) transposed = !transposed;
  }
  if (!node || node->op != "DequantizeLinear") return std::nullopt;
  Dequantised out{constant(*node, 0), constant(*node, 1), constant(*node, 2), node->attributes.integer("axis", 1),
                  node->attributes.integer("block_size", 0)};
  if (!out.codes || !out.scale || (has(*node, 2) && !out.zero)) return std::nullopt;
  return out;
}

/// Element 0 of an integer constant.
int64_t first_of(const Constant& constant) {
  Constant wide = constant;
  add_step(wide, {Kind::cast, {}, DType::f32});
  return static_cast<int64_t>(materialize(wide).as<float>()[0]);
}

/// A matrix of codes as the weight [n, k] of a Linear; `transposed`: it is [k, n].
std::optional<Quantised> quantised_weight(const Dequantised& d, bool transposed) {
  if (!is_code(d.codes->dtype()) || d.codes->shape().rank() != 2 || !is_float(d.scale->dtype())) return std::nullopt;
  if (d.zero && (d.zero->dtype() == DType::f64 || (!is_code(d.zero->dtype()) && !is_float(d.zero->dtype()))))
    return std::nullopt;
  const int64_t n = d.codes->shape()[transposed ? 1 : 0], k = d.codes->shape()[transposed ? 0 : 1];
  const int64_t axis = d.axis < 0 ? d.axis + 2 : d.axis;
  const bool along_k = axis == (transposed ? 0 : 1), single = d.scale->shape().elements() == 1 && d.block == 0;
  if (n == 0 || k == 0) return std::nullopt;
  Quantised out{*d.codes, stored_scales(*d.scale, transposed && d.block > 0), std::nullopt, 0};
  int64_t blocks = 1;
  if (d.block > 0) {
    if (!along_k || k % d.block || out.scales.shape().elements() != n * (k / d.block)) return std::nullopt;
    blocks = k / d.block;
  } else if (!single && (along_k || d.scale->shape().elements() != n)) {
    return std::nullopt;
  }
  if (!is_blocked_well(blocks, k / blocks, dtype_bits(d.codes->dtype()))) return std::nullopt;
  if (transposed) add_step(out.codes, {Kind::transpose, {1, 0}, {}});
  add_step(out.codes, {Kind::reshape, {n, blocks, k / blocks}, {}});
  if (single) {  // one scale for all: repeated n times, 4 bytes per row
    Constant wide = *d.scale;
    add_step(wide, {Kind::cast, {}, DType::f32});
    std::vector<float> all(static_cast<size_t>(n), materialize(wide).as<float>()[0]);
    out.scales = {{}, Tensor::of<float>(DType::f32, Shape{n, 1}, all), {}};
  }
  reshape(out.scales, {n, blocks});
  if (!d.zero) return out;
  if (d.zero->shape().elements() == 1 && !is_float(d.zero->dtype())) {
    out.zero = first_of(*d.zero);
    return out;
  }
  if (d.zero->shape().elements() != n * blocks) return std::nullopt;
  Constant zeros = *d.zero;
  if (dtype_bits(zeros.dtype()) < 8)
    add_step(zeros, {Kind::cast, {}, is_signed(zeros.dtype()) ? DType::i8 : DType::u8});
  if (transposed && d.block > 0) add_step(zeros, {Kind::transpose, {1, 0}, {}});
  reshape(zeros, {n, blocks});
  out.zeros = std::move(zeros);
  return out;
}

void QuantisedRaiser::raise_product(Node& node) {
  const bool gemm = node.op == "Gemm";
  if (node.inputs.size() < 2 || !is_rows_of_f32(node.inputs[0])) return;
  if (gemm && (node.attributes.integer("transA", 0) || node.attributes.real("alpha", 1) != 1)) return;
  const bool has_bias = gemm && has(node, 2);
  if (has_bias) {
    const auto& dims = graph_.value(node.inputs[2]).type.dims;
    if (node.attributes.real("beta", 1) != 1 || !dims || dims->size() != 1) return;
  }
  bool transposed = !(gemm && node.attributes.integer("transB", 0));
  auto found = dequantised(node.inputs[1], transposed);
  auto weight = found ? quantised_weight(*found, transposed) : std::nullopt;
  if (!weight) return;
  const ValueId bias = has_bias ? node.inputs[2] : no_value;
  become_linear(node, node.inputs[0], *weight);
  if (bias != no_value) add_bias(node, bias);
}

void QuantisedRaiser::raise_gather(Node& node) {
  if (node.attributes.integer("axis", 0) != 0 || graph_.value(node.outputs[0]).type.dtype != DType::f32) return;
  const auto& ids = graph_.value(node.inputs[1]).type.dims;
  if (!ids || ids->size() != 2) return;
  bool transposed = false;
  auto found = dequantised(node.inputs[0], transposed);
  auto table = found ? quantised_weight(*found, transposed) : std::nullopt;
  if (table) become_embedding(node, node.inputs[1], *table);
}

/// Mul(Cast(MatMulInteger(xq, w, x_zero, w_zero)), Mul(x_scale, w_scale)), with xq, x_scale and x_zero from one
/// DynamicQuantizeLinear(x).
void QuantisedRaiser::raise_dynamic(Node& node) {
  for (size_t side : {size_t{0}, size_t{1}}) {
    const Node *cast = maker(node.inputs[side]), *factor = maker(node.inputs[1 - side]);
    const Node* product = cast && cast->op == "Cast" ? maker(cast->inputs[0]) : nullptr;
    if (!product || product->op != "MatMulInteger" || !factor || factor->op != "Mul") continue;
    const Node* dynamic = maker(product->inputs[0]);
    if (!dynamic || dynamic->op != "DynamicQuantizeLinear" || product->inputs[0] != dynamic->outputs[0]) continue;
    if (!has(*product, 2) || product->inputs[2] != dynamic->outputs[2]) continue;
    const size_t own = factor->inputs[0] == dynamic->outputs[1] ? 0 : 1;
    if (factor->inputs[own] != dynamic->outputs[1]) continue;
    const Dequantised w{constant(*product, 1), constant(*factor, 1 - own), constant(*product, 3), 1, 0};
    if (!w.codes || !w.scale || (has(*product, 3) && !w.zero) || !is_rows_of_f32(dynamic->inputs[0])) continue;
    auto weight = quantised_weight(w, true);
    if (!weight) continue;
    become_linear(node, dynamic->inputs[0], *weight);
    return;
  }
}

bool same_constant(const Graph& graph, ValueId a, ValueId b) {
  if (a == b) return true;
  if (a == no_value || b == no_value) return false;
  const auto &left = graph.value(a).constant, &right = graph.value(b).constant;
  if (!left || !right || left->dtype() != right->dtype() || !(left->shape() == right->shape())) return false;
  const Tensor x = materialize(*left), y = materialize(*right);
  return std::memcmp(x.data(), y.data(), static_cast<size_t>(x.bytes())) == 0;
}

}  // namespace

bool drop_rounding(Graph& graph) {
  const std::vector<int32_t> producer = producers(graph);
  bool any = false;
  for (const Node& node : graph.nodes) {
    if (node.op != "DequantizeLinear") continue;
    const int32_t at = producer[static_cast<size_t>(node.inputs[0])];
    if (at < 0) continue;
    const Node& quantise = graph.nodes[static_cast<size_t>(at)];
    if (quantise.op != "QuantizeLinear") continue;
    auto operand = [](const Node& of, size_t k) { return k < of.inputs.size() ? of.inputs[k] : no_value; };
    bool same = quantise.attributes.integer("axis", 1) == node.attributes.integer("axis", 1) &&
                quantise.attributes.integer("block_size", 0) == node.attributes.integer("block_size", 0) &&
                graph.value(quantise.inputs[0]).type.dtype == graph.value(node.outputs[0]).type.dtype;
    for (size_t k : {size_t{1}, size_t{2}})
      same = same && same_constant(graph, operand(quantise, k), operand(node, k));
    if (!same) continue;
    auto among = [](const std::vector<ValueId>& ids, ValueId id) {
      return std::find(ids.begin(), ids.end(), id) != ids.end();
    };
    const ValueId from = quantise.inputs[0];
    if (among(graph.outputs, node.outputs[0])) {  // an output keeps its name
      if (among(graph.inputs, from) || among(graph.outputs, from)) continue;
      std::swap(graph.value(node.outputs[0]).name, graph.value(from).name);
    }
    graph.replace_uses(node.outputs[0], from);
    any = true;
  }
  if (any) graph.remove_dead();
  return any;
}

void raise_quantised(Graph& graph, bool dynamic) { QuantisedRaiser(graph, dynamic).run(); }

}  // namespace plait
