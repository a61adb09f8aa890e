// com.microsoft.MoE and QMoE: a router, expanded to ONNX's ops, and the experts after it, converted to plait.Experts.
//
// Where their documentation is unclear this follows ONNX Runtime's CPU kernels: gelu is the tanh approximation; MoE
// takes the softmax over all experts, or over the chosen ones if weights are normalised; QMoE over the chosen ones,
// unless an input has separate weights.
#include <cmath>

#include "importers/onnx/old_node.h"

namespace plait::onnx_import {
namespace {

using Kind = RecipeStep::Kind;

/// Indices of the operands of one projection (fc1, fc2 or fc3); -1: the op has no such operand.
struct Places {
  int weight, bias, scales = -1, zeros = -1;
};

/// The node during its expansion.
class Experts {
 public:
  explicit Experts(OldNode& old)
      : old_(old), attributes_(old.node.attributes), quantised_(old.node.op.ends_with("QMoE")) {
    if (quantised_) {
      places_[0] = {2, 4, 3, 11};
      places_[1] = {5, 7, 6, 12};
      places_[2] = {8, 10, 9, 13};
    } else {
      places_[0] = {2, 3};
      places_[1] = {4, 5};
      places_[2] = {6, 7};
    }
    read_attributes();
    read_sizes();
  }

  void write() {
    const ValueId x = old_.required(0);
    const auto [numbers, shares] = route();
    std::vector<ValueId> inputs(15, no_value);
    inputs[0] = old_.emit("Reshape", {x, list({-1, h_})});
    inputs[1] = numbers;
    inputs[2] = shares;
    set_projection(inputs, 0, gate_part(), 0);
    if (fusion_) set_projection(inputs, 0, up_part(), 1);
    else if (old_.input(static_cast<size_t>(places_[2].weight)) != no_value)
      set_projection(inputs, 2, {1, 0, false}, 1);
    set_projection(inputs, 1, {1, 0, false}, 2);
    while (inputs.back() == no_value) inputs.pop_back();
    Attributes made;
    made.set("activation", activation_);
    if (alpha_ != 1) made.set("alpha", alpha_);
    if (beta_ != 0) made.set("beta", beta_);
    if (limit_ != 0) made.set("limit", limit_);
    if (quantised_ && zero_of(0) != 0) made.set("zero", zero_of(0));
    if (quantised_ && zero_of(1) != 0) made.set("down_zero", zero_of(1));
    const ValueId y = old_.emit("plait.Experts", std::move(inputs), std::move(made));
    const ValueId shape = old_.emit("Shape", {x});
    old_.node.op = "Reshape";
    old_.node.inputs = {y, shape};
    old_.node.outputs.resize(1);
    old_.node.attributes = OldNode::with("allowzero", 1);  // a row may have no tokens
  }

 private:
  /// Rows of a projection: all, or one of two halves, contiguous or interleaved.
  struct Part {
    int64_t parts, index;
    bool interleaved;
  };
  Part gate_part() const { return {fusion_ ? 2 : 1, 0, fusion_ == 1}; }
  Part up_part() const { return {2, 1, fusion_ == 1}; }

  ValueId list(std::vector<int64_t> numbers) { return old_.ints(numbers); }
  [[noreturn]] static void refuse(std::string why, std::string hint = {}) {
    throw Error(Code::unsupported, std::move(why), std::move(hint));
  }

  void read_attributes() {
    k_ = attributes_.integer("k", 1);
    fusion_ = attributes_.integer("swiglu_fusion", 0);
    if (k_ < 1) throw Error(Code::bad_model, cat("attribute k is ", k_));
    if (fusion_ < 0 || fusion_ > 2) throw Error(Code::bad_model, cat("attribute swiglu_fusion is ", fusion_));
    if (attributes_.integer("use_sparse_mixer", 0))
      refuse("attribute use_sparse_mixer needs an unsupported router",
             "export the model with its router as plain operators");
    activation_ = attributes_.string("activation_type", "relu");
    const bool swiglu = activation_ == "swiglu";
    if (activation_ == "gelu") activation_ = "gelu_tanh";
    else if (swiglu) activation_ = "silu";
    else if (activation_ != "relu" && activation_ != "silu" && activation_ != "identity")
      throw Error(Code::bad_model, cat("attribute activation_type is ", quote(activation_)),
                  "relu, gelu, silu, swiglu or identity is expected");
    if (fusion_ && !swiglu) refuse("attribute swiglu_fusion without the activation swiglu");
    const bool third = old_.input(static_cast<size_t>(places_[2].weight)) != no_value;
    if (swiglu && (fusion_ != 0) == third)
      refuse(third ? "both a fused fc1 and an fc3" : "swiglu with neither a fused fc1 nor an fc3");
    if (!swiglu) return;
    alpha_ = attributes_.real("activation_alpha", 1);
    beta_ = attributes_.real("activation_beta", 0);
    const double limit = attributes_.real("swiglu_limit", INFINITY);
    limit_ = std::isinf(limit) && limit > 0 ? 0 : limit;
    if (!(limit > 0) || alpha_ == 0)
      throw Error(Code::bad_model, cat("attribute swiglu_limit is ", limit, ", activation_alpha ", alpha_));
  }

  void read_sizes() {
    if (quantised_) read_packing();
    std::vector<int64_t> first = sizes(0), second = sizes(1);
    e_ = first[0];
    h_ = first[2];
    f_ = first[1] / gate_part().parts;
    if (first[1] % gate_part().parts || second != std::vector<int64_t>{e_, h_, f_})
      refuse(cat("weights of sizes ", Shape(first).text(), " and ", Shape(second).text(),
                 ", expected [experts, inner, hidden] and [experts, hidden, inner]"),
             "older files store them transposed: export the model anew");
    if (old_.input(static_cast<size_t>(places_[2].weight)) != no_value &&
        sizes(2) != std::vector<int64_t>{e_, f_, h_})
      refuse(cat("fc3 of sizes ", Shape(sizes(2)).text(), ", expected ", Shape{e_, f_, h_}.text()));
  }

  void read_packing() {
    if (const std::string type = attributes_.string("quant_type", "int"); type != "int")
      refuse(cat("quant_type ", quote(type), ": weights in floats of 4 or 8 bits are not supported"),
             "export the model with weights in integers of 2, 4 or 8 bits");
    if (attributes_.integer("weights_prepacked", -1) > 0)
      refuse("weights_prepacked is a private layout of one vendor", "export the model with weights_prepacked = 0");
    block_ = attributes_.integer("block_size", 0);
    const char* own[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits", "fc3_expert_weight_bits"};
    for (size_t k = 0; k < 3; ++k) {
      bits_[k] = attributes_.integer(own[k], attributes_.integer("expert_weight_bits", 4));
      if (bits_[k] != 2 && bits_[k] != 4 && bits_[k] != 8)
        refuse(cat("weights of ", bits_[k], " bits; 2, 4 and 8 are supported"));
    }
    if (old_.input(8) == no_value) return;
    if (bits_[2] != bits_[0]) refuse("fc1 and fc3 of different widths");
    if ((old_.input(11) == no_value) != (old_.input(13) == no_value)) refuse("zero points of only one of fc1 and fc3");
  }

  /// [experts, n, k] of a projection, in elements.
  std::vector<int64_t> sizes(size_t projection) {
    const auto index = static_cast<size_t>(places_[projection].weight);
    std::vector<int64_t> out = old_.weight_dims(index);
    if (quantised_ && !old_.graph.value(old_.required(index)).constant)
      refuse(cat("input ", index, " is not a constant: weights that are computed cannot be unpacked"));
    if (out.size() != 3) throw Error(Code::bad_model, cat("a weight of rank ", out.size(), ", expected 3"));
    if (quantised_) out[2] *= 8 / bits_[projection];
    return out;
  }
  int64_t zero_of(size_t projection) const {
    return old_.input(static_cast<size_t>(places_[projection].zeros)) == no_value
               ? int64_t{1} << (bits_[projection] - 1)
               : 0;
  }

  /// The experts of each token [t, k], and their routing weights.
  std::pair<ValueId, ValueId> route() {
    auto softmax = [&](ValueId id) { return old_.emit("Softmax", {id}, OldNode::with("axis", -1)); };
    const bool normalised = attributes_.integer("normalize_routing_weights", 0) != 0;
    const ValueId weights = quantised_ ? old_.input(14) : no_value;
    auto wide = [&](ValueId id) {
      return old_.emit("Cast", {id}, OldNode::with("to", static_cast<int64_t>(DType::f32)));
    };
    ValueId scores = wide(old_.required(1));
    const bool over_all = !quantised_ && !normalised;
    if (over_all) scores = softmax(scores);
    const ValueId best = old_.emit("TopK", {scores, list({k_})}, OldNode::with("axis", -1));
    const ValueId numbers = old_.graph.add_value({});
    old_.graph.nodes.back().outputs.push_back(numbers);
    if (over_all) return {numbers, best};
    if (weights == no_value) return {numbers, softmax(best)};
    const ValueId own = old_.emit("GatherElements", {wide(weights), numbers}, OldNode::with("axis", -1));
    if (!normalised) return {numbers, own};
    return {numbers,
            old_.emit("Div", {own, old_.emit("ReduceSum", {own, list({-1})}, OldNode::with("keepdims", 1))})};
  }

  /// Sets weight, bias, scales and zero points number `place` of plait.Experts.
  void set_projection(std::vector<ValueId>& inputs, size_t projection, const Part& part, size_t place) {
    const Places& from = places_[projection];
    const std::vector<int64_t> dims = sizes(projection);
    const ValueId bias = old_.input(static_cast<size_t>(from.bias));
    if (bias != no_value) inputs[6 + place] = rows(bias, {dims[0], dims[1]}, part);
    if (!quantised_) {
      inputs[3 + place] = rows(old_.required(static_cast<size_t>(from.weight)), dims, part);
      return;
    }
    const int64_t blocks = block_ > 0 ? dims[2] / block_ : 1;
    if (block_ > 0 && dims[2] % block_)
      refuse(cat("rows of ", dims[2], " weights in blocks of ", block_), "choose a block size that divides them");
    const auto bits = bits_[projection];
    inputs[3 + place] = codes(from, dims, blocks, bits, part);
    const ValueId scales =
        old_.emit("Reshape", {old_.required(static_cast<size_t>(from.scales)), list({dims[0], dims[1], blocks})});
    inputs[9 + 2 * place] = rows(scales, {dims[0], dims[1], blocks}, part);
    if (old_.input(static_cast<size_t>(from.zeros)) != no_value)
      inputs[10 + 2 * place] = zeros(from, dims, blocks, bits, part);
  }

  /// The part's rows (axis 1) of an array of these sizes.
  ValueId rows(ValueId id, std::vector<int64_t> dims, const Part& part) {
    for (const auto& [op, numbers] : steps_to(dims, part)) {
      if (op == Kind::reshape) id = old_.emit("Reshape", {id, list(numbers)});
      else id = old_.emit("Slice", {id, list({numbers[1]}), list({numbers[2]}), list({numbers[0]})});
    }
    return id;
  }
  static void take_rows(Constant& constant, const std::vector<int64_t>& dims, const Part& part) {
    for (auto& [kind, numbers] : steps_to(dims, part)) constant.steps.push_back({kind, std::move(numbers), {}});
  }
  static std::vector<std::pair<Kind, std::vector<int64_t>>> steps_to(const std::vector<int64_t>& dims,
                                                                     const Part& part) {
    if (part.parts == 1) return {};
    const int64_t n = dims[1] / part.parts;
    if (!part.interleaved) return {{Kind::slice, {1, part.index * n, (part.index + 1) * n}}};
    std::vector<int64_t> interleaved = dims, one = dims;
    interleaved[1] = n;
    interleaved.insert(interleaved.begin() + 2, part.parts);
    one[1] = n;
    return {{Kind::reshape, interleaved}, {Kind::slice, {2, part.index, part.index + 1}}, {Kind::reshape, one}};
  }

  /// A constant of the file, which must have this many bytes.
  Constant bytes_of(int place, int64_t count) {
    const auto index = static_cast<size_t>(place);
    const auto& constant = old_.graph.value(old_.required(index)).constant;
    if (!constant) refuse(cat("input ", place, " is not a constant: numbers that are computed cannot be unpacked"));
    if (constant->dtype() != DType::u8)
      refuse(cat("input ", place, " is ", dtype_name(constant->dtype()), ", expected u8"));
    if (constant->shape().elements() != count)
      throw Error(Code::bad_model,
                  cat("input ", place, " has ", constant->shape().elements(), " bytes, expected ", count));
    return *constant;
  }
  static void split_bytes(Constant& constant, int64_t bits) {
    if (bits < 8) constant.steps.push_back({Kind::reinterpret, {}, bits == 4 ? DType::u4 : DType::u2});
  }

  ValueId codes(const Places& from, const std::vector<int64_t>& dims, int64_t blocks, int64_t bits,
                const Part& part) {
    const int64_t row = dims[2] * bits / 8;
    Constant out = bytes_of(from.weight, dims[0] * dims[1] * row);
    take_rows(out, {dims[0], dims[1], row}, part);
    split_bytes(out, bits);
    out.steps.push_back({Kind::reshape, {dims[0], dims[1] / part.parts, blocks, dims[2] / blocks}, {}});
    return old_.graph.add_constant(std::move(out));
  }

  /// Zero points are packed along the blocks of a row; with one block per row, along the rows.
  ValueId zeros(const Places& from, const std::vector<int64_t>& dims, int64_t blocks, int64_t bits,
                const Part& part) {
    const int64_t each = 8 / bits, along = block_ > 0 ? blocks : dims[1], others = block_ > 0 ? dims[1] : 1,
                  bytes = (along + each - 1) / each;
    Constant out = bytes_of(from.zeros, dims[0] * others * bytes);
    out.steps.push_back({Kind::reshape, {dims[0] * others, bytes}, {}});
    split_bytes(out, bits);
    if (bits < 8) out.steps.push_back({Kind::cast, {}, DType::u8});
    if (bytes * each > along) out.steps.push_back({Kind::slice, {1, 0, along}, {}});
    out.steps.push_back({Kind::reshape, {dims[0], dims[1], blocks}, {}});
    take_rows(out, {dims[0], dims[1], blocks}, part);
    return old_.graph.add_constant(std::move(out));
  }

  OldNode& old_;
  const Attributes attributes_;
  const bool quantised_;
  Places places_[3]{};
  int64_t k_ = 1, fusion_ = 0, block_ = 0, bits_[3] = {8, 8, 8};
  int64_t e_ = 0, h_ = 0, f_ = 0;
  std::string activation_;
  double alpha_ = 1, beta_ = 0, limit_ = 0;
};

}  // namespace

/// com.microsoft.MoE: x [..., h], router scores [t, e], weights of the experts.
void spell_experts(OldNode& old) { Experts(old).write(); }

/// com.microsoft.QMoE: the same with weights in blocks of 2, 4 or 8 bits, which stay packed.
void spell_quantised_experts(OldNode& old) { Experts(old).write(); }

}  // namespace plait::onnx_import
