// Convolutions, products and norms of com.microsoft, with the activation or sum that an optimizer moved into them: later passes fuse
// in their own way, so here they become the ops that they were made of.
#include <algorithm>

#include "importers/onnx/compose.h"
#include "importers/onnx/conversions.h"

namespace plait::onnx_import {
namespace {

// ---- Activations ----

/// An activation by its name in fused ops, and the names of its numbers.
struct FusedActivation {
  std::string_view name, op;
  std::vector<std::string_view> numbers;
};

const FusedActivation& activation_of(const std::string& name) {
  static const std::vector<FusedActivation> rows{{"Relu", "Relu", {}},
                                                 {"Tanh", "Tanh", {}},
                                                 {"Sigmoid", "Sigmoid", {}},
                                                 {"Silu", "Swish", {}},
                                                 {"Gelu", "Gelu", {}},
                                                 {"Softplus", "Softplus", {}},
                                                 {"Softsign", "Softsign", {}},
                                                 {"LeakyRelu", "LeakyRelu", {"alpha"}},
                                                 {"Elu", "Elu", {"alpha"}},
                                                 {"ThresholdedRelu", "ThresholdedRelu", {"alpha"}},
                                                 {"Selu", "Selu", {"alpha", "gamma"}},
                                                 {"HardSigmoid", "HardSigmoid", {"alpha", "beta"}},
                                                 {"Clip", "Clip", {"min", "max"}}};
  for (const FusedActivation& row : rows)
    if (row.name == name) return row;
  throw Error(Code::unsupported, cat("the activation ", quote(name), " is not known"),
              "save the model with a lower level of optimization, where the activation is a node of its own");
}

/// The node becomes the activation of y.
void become_activation(OldNode& old, const FusedActivation& row, ValueId y, const Attributes& numbers) {
  if (row.op != "Clip") return old.become(std::string(row.op), {y}, numbers);
  old.become("Clip", {y, old.scalar_like(numbers.real("min", 0), y), old.scalar_like(numbers.real("max", 0), y)});
}

/// Attribute activation_params, in the order of the row's numbers.
Attributes listed_numbers(const OldNode& old, const FusedActivation& row) {
  std::vector<double> given;
  if (const Attribute* found = old.node.attributes.find("activation_params")) {
    if (const auto* list = std::get_if<std::vector<double>>(found)) given = *list;
    else throw Error(Code::bad_model, "attribute \"activation_params\" is no list of floats");
  }
  if (given.size() != row.numbers.size())
    throw Error(Code::bad_model, cat("attribute \"activation_params\" has ", given.size(), " numbers, expected ",
                                     row.numbers.size(), " for ", row.name));
  Attributes out;
  for (size_t i = 0; i < given.size(); ++i) out.set(std::string(row.numbers[i]), given[i]);
  return out;
}

/// Attributes activation_alpha and the like, as far as there are any.
Attributes named_numbers(const OldNode& old, const FusedActivation& row) {
  Attributes out;
  for (std::string_view name : row.numbers)
    if (const std::string own = cat("activation_", name); old.node.attributes.has(own))
      out.set(std::string(name), old.node.attributes.real(own, 0));
  return out;
}

// ---- Convolutions ----

/// FusedConv and NhwcFusedConv: X, W, bias?, summand? -> the activation of Conv + summand.
void convert_fused_conv(OldNode& old) {
  const bool last = old.node.op != "com.microsoft.FusedConv";
  const size_t spatial = last ? spatial_dims(old, 1) : 0;
  const std::string name = old.node.attributes.string("activation", "");
  const FusedActivation* activation = name.empty() ? nullptr : &activation_of(name);
  const Attributes numbers = activation ? listed_numbers(old, *activation) : Attributes();
  Attributes window = without(old.node.attributes, {"activation", "activation_params"});
  std::vector<ValueId> operands = trimmed_operands({old.required(0), old.required(1), old.input(2)});
  const ValueId summand = old.input(3);
  if (last) operands[0] = channels_second(old, operands[0], spatial);
  if (!last && !activation && summand == no_value) return old.become("Conv", std::move(operands), std::move(window));
  ValueId y = old.emit("Conv", std::move(operands), std::move(window));
  if (last) {
    if (!activation && summand == no_value) return old.become("Transpose", {y}, permuted(channels_to_end(spatial)));
    y = old.emit("Transpose", {y}, permuted(channels_to_end(spatial)));
  }
  if (!activation) return old.become("Add", {y, summand});
  if (summand != no_value) y = old.emit("Add", {y, summand});
  become_activation(old, *activation, y, numbers);
}

void convert_nhwc_max_pool(OldNode& old) {
  if (old.node.attributes.integers("kernel_shape").empty()) old.missing("kernel_shape");
  const size_t spatial = spatial_dims(old, 0);
  const ValueId y = old.emit("MaxPool", {channels_second(old, old.required(0), spatial)}, old.node.attributes);
  old.become("Transpose", {y}, permuted(channels_to_end(spatial)));
}

/// ConvTransposeWithDynamicPads: X, W, pads?, bias? -> ConvTranspose without pads, and its border cut off.
void convert_dynamic_pads(OldNode& old) {
  const Attributes window = old.node.attributes;
  const std::vector<ValueId> operands = trimmed_operands({old.required(0), old.required(1), old.input(3)});
  const ValueId pads = old.input(2);
  if (pads == no_value || window.string("auto_pad", "NOTSET") != "NOTSET")
    return old.become("ConvTranspose", operands, window);
  const auto spatial = static_cast<int64_t>(spatial_dims(old, 1));
  const ValueId whole = old.emit("ConvTranspose", operands, window);
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < spatial; ++i) axes.push_back(i + 2);
  const ValueId begins = old.emit("Slice", {pads, old.ints({0}), old.ints({spatial})});
  const ValueId cut = old.emit("Slice", {pads, old.ints({spatial}), old.ints({2 * spatial})});
  const ValueId ends = old.emit("Sub", {sizes_of(old, whole, 2, spatial + 2), cut});
  old.become("Slice", {whole, begins, ends, old.ints(axes)});
}

// ---- Products ----

void convert_fused_gemm(OldNode& old) {
  const Attributes product =
      without(old.node.attributes, {"activation", "activation_alpha", "activation_beta", "activation_gamma"});
  const std::vector<ValueId> operands = trimmed_operands({old.required(0), old.required(1), old.input(2)});
  const std::string name = old.node.attributes.string("activation", "");
  if (name.empty()) return old.become("Gemm", operands, product);
  const FusedActivation& activation = activation_of(name);
  const Attributes numbers = named_numbers(old, activation);
  become_activation(old, activation, old.emit("Gemm", operands, product), numbers);
}

void convert_transpose_matmul(OldNode& old) { old.node.op = "com.microsoft.FusedMatMul"; }

/// X W + bias, and Gelu by tanh.
void convert_gemm_fast_gelu(OldNode& old) {
  const ValueId product = old.emit("MatMul", {old.required(0), old.required(1)}), bias = old.input(2);
  Attributes tanh;
  tanh.set("approximate", std::string("tanh"));
  old.become("Gelu", {bias == no_value ? product : old.emit("Add", {product, bias})}, tanh);
}

// ---- Norms and sums ----

/// GroupNorm and SkipGroupNorm: x [n, ..., c] or [n, c, ...], gamma, beta (, skip, bias?) -> SiLU or nothing of the norm of their sum.
/// Groups are normalized in f32.
void convert_group_norm(OldNode& old) {
  const Attributes given = old.node.attributes;
  const int64_t groups = given.integer("groups"), activation = given.integer("activation");
  const bool last = given.integer("channels_last", 1) != 0, skip = old.node.op == "com.microsoft.SkipGroupNorm";
  if (activation != 0 && activation != 1)
    throw Error(Code::bad_model, cat("attribute \"activation\" is ", activation, ", expected 0 (none) or 1 (SiLU)"));
  constexpr size_t spatial = 2;
  ValueId x = old.required(0);
  if (skip) {
    const ValueId with = old.required(3);
    const auto& dims = old.graph.value(with).type.dims;
    // A skip for each sample and channel has two dims.
    const ValueId wide =
        dims && dims->size() == 2 ? old.emit("Unsqueeze", {with, last ? old.ints({1, 2}) : old.ints({2, 3})}) : with;
    ValueId bias = old.input(4);
    if (bias != no_value && !last) bias = old.emit("Unsqueeze", {bias, old.ints({1, 2})});
    if (bias != no_value) x = old.emit("Add", {x, bias});
    x = old.emit("Add", {x, wide}, {}, old.output(1));
  }
  Attributes norm = OldNode::with("num_groups", groups);
  norm.set("epsilon", given.real("epsilon", 1e-5));
  const ValueId wide = as_type(old, last ? channels_second(old, x, spatial) : x, DType::f32);
  ValueId y = old.emit("GroupNormalization",
                       {wide, as_type(old, old.required(1), DType::f32), as_type(old, old.required(2), DType::f32)},
                       std::move(norm));
  if (activation) y = old.emit("Swish", {y});
  if (!last) return old.become("CastLike", {y, x});
  old.become("Transpose", {old.emit("CastLike", {y, x})}, permuted(channels_to_end(spatial)));
}

void convert_bias_add(OldNode& old) {
  old.become("Add", {old.emit("Add", {old.required(0), old.required(1)}), old.required(2)});
}

/// The first half of x + bias, times Gelu of the second.
void convert_bias_split_gelu(OldNode& old) {
  const ValueId sum = old.emit("Add", {old.required(0), old.required(1)});
  Attributes halves = OldNode::with("axis", -1);
  halves.set("num_outputs", int64_t{2});
  const ValueId first = old.emit("Split", {sum}, std::move(halves)), second = old.graph.add_value({});
  old.graph.nodes.back().outputs.push_back(second);
  old.become("Mul", {first, old.emit("Gelu", {second})});
}

/// x + gate y
void convert_gated_add(OldNode& old) {
  old.become("Add", {old.required(0), old.emit("Mul", {old.required(1), old.required(2)})});
}

/// SiLU of alpha x, or of scale x; computed in f32.
void convert_scaled_silu(OldNode& old) {
  const ValueId x = old.required(0), wide = as_type(old, x, DType::f32);
  const ValueId scale = old.input(1) != no_value ? as_scalar(old, as_type(old, old.input(1), DType::f32))
                                                 : old.scalar_like(old.node.attributes.real("alpha", 1), wide);
  old.become("CastLike", {old.emit("Swish", {old.emit("Mul", {wide, scale})}), x});
}

/// Swish of the gate, times up + beta, both limited before; without `up` the gate has both halves. Computed in f32.
void become_swiglu(OldNode& old, ValueId gate, ValueId up) {
  const Attributes given = old.node.attributes;
  if (up == no_value) {
    Attributes halves = OldNode::with("axis", -1);
    halves.set("num_outputs", int64_t{2});
    gate = old.emit("Split", {gate}, std::move(halves));
    up = old.graph.add_value({});
    old.graph.nodes.back().outputs.push_back(up);
  }
  ValueId left = as_type(old, gate, DType::f32), right = as_type(old, up, DType::f32);
  if (const double limit = given.real("limit", 0); limit > 0) {
    const ValueId most = old.scalar_like(limit, left);
    left = old.emit("Clip", {left, no_value, most});
    right = old.emit("Clip", {right, old.scalar_like(-limit, right), most});
  }
  Attributes swish;
  swish.set("alpha", given.real("activation_alpha", 1));
  left = old.emit("Swish", {left}, std::move(swish));
  if (given.integer("round_activation", 0)) left = as_type(old, old.emit("CastLike", {left, gate}), DType::f32);
  if (const double beta = given.real("activation_beta", 0); beta != 0)
    right = old.emit("Add", {right, old.scalar_like(beta, right)});
  old.become("CastLike", {old.emit("Mul", {left, right}), gate});
}

void convert_swiglu(OldNode& old) { become_swiglu(old, old.required(0), old.input(1)); }

/// x w: the first columns are the router's, the others gate and up.
void convert_router_gate_up(OldNode& old) {
  const int64_t router = old.node.attributes.integer("router_size");
  if (const std::string name = old.node.attributes.string("activation", "swiglu"); name != "swiglu")
    throw Error(Code::bad_model, cat("attribute \"activation\" is ", quote(name), ", expected \"swiglu\""));
  if (router < 0) throw Error(Code::bad_model, cat("attribute \"router_size\" is ", router, ", expected 0 or more"));
  const ValueId product = old.emit("MatMul", {old.required(0), old.required(1)});
  const ValueId axis = old.ints({-1}), end = old.ints({router});
  if (old.output(0) != no_value) old.emit("Slice", {product, old.ints({0}), end, axis}, {}, old.output(0));
  const ValueId both = old.emit("Slice", {product, end, old.ints({INT64_MAX}), axis});
  old.node.outputs = {old.output(1)};
  become_swiglu(old, both, no_value);
}

constexpr Conversion rows_of_layers[] = {
    {"com.microsoft.BiasAdd", convert_bias_add},
    {"com.microsoft.BiasSplitGelu", convert_bias_split_gelu},
    {"com.microsoft.ConvTransposeWithDynamicPads", convert_dynamic_pads},
    {"com.microsoft.FusedConv", convert_fused_conv},
    {"com.microsoft.FusedGemm", convert_fused_gemm},
    {"com.microsoft.GatedAdd", convert_gated_add},
    {"com.microsoft.GemmFastGelu", convert_gemm_fast_gelu},
    {"com.microsoft.GroupNorm", convert_group_norm},
    {"com.microsoft.NhwcConv", convert_fused_conv},
    {"com.microsoft.NhwcFusedConv", convert_fused_conv},
    {"com.microsoft.NhwcMaxPool", convert_nhwc_max_pool},
    {"com.microsoft.RouterGateUpProj", convert_router_gate_up},
    {"com.microsoft.ScaledSiLU", convert_scaled_silu},
    {"com.microsoft.SkipGroupNorm", convert_group_norm},
    {"com.microsoft.SwiGLU", convert_swiglu},
    {"com.microsoft.TransposeMatMul", convert_transpose_matmul},
};

}  // namespace

std::span<const Conversion> layer_conversions() { return rows_of_layers; }

}  // namespace plait::onnx_import
