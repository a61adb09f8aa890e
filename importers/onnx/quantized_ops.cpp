// Ops of com.microsoft on 8-bit integers and their scales. Sums of products stay in integers, as in ONNX Runtime; element-wise ops,
// pools and the like compute on the numbers that the integers stand for, and round once.
#include <algorithm>

#include "importers/onnx/compose.h"
#include "importers/onnx/conversions.h"

namespace plait::onnx_import {
namespace {

/// The node becomes the quantization of y; without a zero point it has the type of `like`.
void become_quantized(OldNode& old, ValueId y, ValueId scale, ValueId zero, ValueId like) {
  old.become("QuantizeLinear", to_quantize(old, y, scale, zero, like));
}

// ---- Element-wise ops, pools and moves ----

/// QLinearAdd and QLinearMul: a, its scale, its zero point?, b ..., the result's scale and zero point?.
void convert_qlinear_binary(OldNode& old) {
  const char* op = old.node.op == "com.microsoft.QLinearAdd" ? "Add" : "Mul";
  const ValueId a = old.required(0), b = old.required(3);
  const ValueId y = old.emit(
      op, {dequantized(old, a, old.required(1), old.input(2)), dequantized(old, b, old.required(4), old.input(5))});
  become_quantized(old, y, old.required(6), old.input(7), a);
}

/// Ops of one operand: x, its scale, its zero point?, the result's scale and zero point?. `op` has the attributes of the node.
void convert_unary(OldNode& old, const char* op) {
  const ValueId x = old.required(0);
  const ValueId y = old.emit(op, {dequantized(old, x, old.required(1), old.input(2))}, old.node.attributes);
  become_quantized(old, y, old.required(3), old.input(4), x);
}

void convert_qlinear_sigmoid(OldNode& old) { convert_unary(old, "Sigmoid"); }
void convert_qlinear_leaky_relu(OldNode& old) { convert_unary(old, "LeakyRelu"); }

/// Before opset 13 of its Softmax the operand is flattened to two dims.
void convert_qlinear_softmax(OldNode& old) {
  const int64_t opset = old.node.attributes.integer("opset"), axis = old.node.attributes.integer("axis", -1);
  const ValueId x = old.required(0), wide = dequantized(old, x, old.required(1), old.input(2));
  ValueId y = no_value;
  if (opset >= 13) {
    y = old.emit("Softmax", {wide}, OldNode::with("axis", axis));
  } else {
    const ValueId rows = old.emit("Flatten", {wide}, OldNode::with("axis", axis));
    y = old.emit("Reshape", {old.emit("Softmax", {rows}, OldNode::with("axis", -1)), old.emit("Shape", {x})},
                 OldNode::with("allowzero", 1));
  }
  become_quantized(old, y, old.required(3), old.input(4), x);
}

void convert_qlinear_reduce_mean(OldNode& old) {
  const ValueId x = old.required(0);
  std::vector<ValueId> operands{dequantized(old, x, old.required(1), old.input(2))};
  if (const std::vector<int64_t> axes = old.node.attributes.integers("axes"); !axes.empty())
    operands.push_back(old.ints(axes));
  const ValueId y = old.emit("ReduceMean", std::move(operands),
                             OldNode::with("keepdims", old.node.attributes.integer("keepdims", 1)));
  become_quantized(old, y, old.required(3), old.input(4), x);
}

void convert_qlinear_average_pool(OldNode& old) {
  const bool last = old.node.attributes.integer("channels_last", 0) != 0;
  if (old.node.attributes.integers("kernel_shape").empty()) old.missing("kernel_shape");
  const size_t spatial = spatial_dims(old, 0);
  const ValueId x = old.required(0), scale = old.required(1), zero = old.input(2);
  const ValueId image = last ? channels_second(old, x, spatial) : x;
  ValueId y = old.emit("AveragePool", {dequantized(old, image, scale, zero)},
                       without(old.node.attributes, {"channels_last"}));
  if (!last) return become_quantized(old, y, old.required(3), old.input(4), x);
  const ValueId codes = old.emit("QuantizeLinear", to_quantize(old, y, old.required(3), old.input(4), x));
  old.become("Transpose", {codes}, permuted(channels_to_end(spatial)));
}

/// The mean of all dims but the first and that of the channels.
void convert_qlinear_global_average_pool(OldNode& old) {
  const ValueId x = old.required(0), wide = dequantized(old, x, old.required(1), old.input(2));
  ValueId y = no_value;
  if (old.node.attributes.integer("channels_last", 0)) {
    const ValueId rank = as_scalar(old, old.emit("Shape", {old.emit("Shape", {x})}));
    const ValueId last = old.emit("Sub", {rank, scalar_int(old, 1)});
    y = old.emit("ReduceMean", {wide, old.emit("Range", {scalar_int(old, 1), last, scalar_int(old, 1)})});
  } else {
    y = old.emit("GlobalAveragePool", {wide});
  }
  become_quantized(old, y, old.required(3), old.input(4), x);
}

/// The result's scale and zero point, then of each part: codes, scale, zero point.
void convert_qlinear_concat(OldNode& old) {
  const size_t count = old.node.inputs.size();
  if (count < 5 || (count - 2) % 3)
    throw Error(Code::bad_model, cat("there are ", count,
                                     " inputs, expected 2, and 3 for each part: its codes, scale and zero point"));
  std::vector<ValueId> parts;
  for (size_t i = 2; i < count; i += 3)
    parts.push_back(dequantized(old, old.required(i), old.required(i + 1), old.input(i + 2)));
  const ValueId y = old.emit("Concat", std::move(parts), OldNode::with("axis", old.node.attributes.integer("axis")));
  become_quantized(old, y, old.required(0), old.input(1), old.required(2));
}

/// A condition, x, its scale and zero point, y ..., the result's scale and zero point.
void convert_qlinear_where(OldNode& old) {
  const ValueId x = dequantized(old, old.required(1), old.required(2), old.input(3));
  const ValueId y = dequantized(old, old.required(4), old.required(5), old.input(6));
  become_quantized(old, old.emit("Where", {old.required(0), x, y}), old.required(7), old.input(8), old.required(1));
}

/// ONNX's QLinearConv, whose image may have its channels last.
void convert_qlinear_conv(OldNode& old) {
  const bool last = old.node.attributes.integer("channels_last", 0) != 0;
  old.node.attributes.erase("channels_last");
  if (!last) {
    old.node.op = "QLinearConv";
    return;
  }
  const size_t spatial = spatial_dims(old, 3);
  std::vector<ValueId> operands = old.node.inputs;
  operands[0] = channels_second(old, old.required(0), spatial);
  const ValueId y = old.emit("QLinearConv", std::move(operands), old.node.attributes);
  old.become("Transpose", {y}, permuted(channels_to_end(spatial)));
}

/// The standard's op had these types and axes later.
void convert_quantize(OldNode& old) { old.node.op = "QuantizeLinear"; }
void convert_dequantize(OldNode& old) { old.node.op = "DequantizeLinear"; }

// ---- Products ----

/// Two matrices of 8-bit integers, and what scales their product.
struct IntegerProduct {
  ValueId a, b, a_zero, b_zero, a_scale, b_scale;
};

/// (a - its zero point) (b - its own), times both scales, in f32. The scale of b is one for all or one for each column.
ValueId product_of(OldNode& old, const IntegerProduct& p, ValueId scale) {
  const ValueId sums = old.emit("MatMulInteger", trimmed_operands({p.a, p.b, p.a_zero, p.b_zero}));
  return old.emit("Mul", {as_type(old, sums, DType::f32), scale});
}
ValueId scale_of(OldNode& old, const IntegerProduct& p) {
  return old.emit("Mul", {as_scalar(old, p.a_scale), p.b_scale});
}

/// The node becomes y + bias?.
void become_biased(OldNode& old, ValueId y, ValueId bias) {
  if (bias == no_value) return old.become("Identity", {y});
  old.become("Add", {y, bias});
}

/// A, B, their scales, zero points? and a bias?.
void convert_matmul_integer_to_float(OldNode& old) {
  const IntegerProduct p{old.required(0), old.required(1), old.input(4),
                         old.input(5),    old.required(2), old.required(3)};
  ValueId y = product_of(old, p, as_type(old, scale_of(old, p), DType::f32));
  y = old.emit("CastLike", {y, p.a_scale});
  become_biased(old, y, old.input(6));
}

/// A of f32, which is quantized by its extremes, B, its scale and zero point?, a bias?.
void convert_dynamic_matmul(OldNode& old) {
  const ValueId a = old.emit("DynamicQuantizeLinear", {old.required(0)});
  const ValueId a_scale = old.graph.add_value({}), a_zero = old.graph.add_value({});
  old.graph.nodes.back().outputs.insert(old.graph.nodes.back().outputs.end(), {a_scale, a_zero});
  const IntegerProduct p{a, old.required(1), a_zero, old.input(3), a_scale, old.required(2)};
  become_biased(old, product_of(old, p, scale_of(old, p)), old.input(4));
}

/// A, its scale and zero point, B ..., C? of i32 with the product's scale, and the result's scale? and zero point?.
void convert_qgemm(OldNode& old) {
  const Attributes given = old.node.attributes;
  ValueId a = old.required(0), b = old.required(3);
  if (given.integer("transA", 0)) a = old.emit("Transpose", {a}, permuted({1, 0}));
  if (given.integer("transB", 0)) b = old.emit("Transpose", {b}, permuted({1, 0}));
  const IntegerProduct p{a, b, old.input(2), old.input(5), old.required(1), old.required(4)};
  ValueId sums = old.emit("MatMulInteger", trimmed_operands({p.a, p.b, p.a_zero, p.b_zero}));
  if (old.input(6) != no_value) sums = old.emit("Add", {sums, old.input(6)});
  ValueId scale = scale_of(old, p);
  if (const double alpha = given.real("alpha", 1); alpha != 1)
    scale = old.emit("Mul", {scale, old.scalar_like(alpha, scale)});
  const ValueId wide = as_type(old, sums, DType::f32);
  if (old.input(7) == no_value) return old.become("Mul", {wide, scale});
  become_quantized(old, old.emit("Mul", {wide, scale}), old.input(7), old.input(8), a);
}

void convert_matmul_integer_16(OldNode& old) {
  old.become("MatMul", {as_type(old, old.required(0), DType::i32), as_type(old, old.required(1), DType::i32)});
}

/// a and b less their zero points, in i32.
void convert_mul_integer(OldNode& old) {
  const auto wide = [&](size_t k) {
    const ValueId x = as_type(old, old.required(k), DType::i32);
    return old.input(k + 1) == no_value ? x : old.emit("Sub", {x, as_type(old, old.input(k + 1), DType::i32)});
  };
  old.become("Mul", {wide(0), wide(2)});
}

void convert_reduce_sum_integer(OldNode& old) {
  const ValueId x = as_type(old, old.required(0), DType::i32);
  std::vector<ValueId> operands{x};
  if (const std::vector<int64_t> axes = old.node.attributes.integers("axes"); !axes.empty())
    operands.push_back(old.ints(axes));
  old.become("ReduceSum", std::move(operands), OldNode::with("keepdims", old.node.attributes.integer("keepdims", 1)));
}

// ---- 4-bit floats by table ----

/// The values of the 16 codes (Dettmers et al. 2023): floats of 4 bits, or NormalFloat.
std::vector<float> values_of_codes(int64_t kind) {
  if (kind == 1)
    return {-1.0F,
            -0.6961928009986877F,
            -0.5250730514526367F,
            -0.39491748809814453F,
            -0.28444138169288635F,
            -0.18477343022823334F,
            -0.09105003625154495F,
            0.0F,
            0.07958029955625534F,
            0.16093020141124725F,
            0.24611230194568634F,
            0.33791524171829224F,
            0.44070982933044434F,
            0.5626170039176941F,
            0.7229568362236023F,
            1.0F};
  std::vector<float> out{0.0F, 0.005208333333F, 0.66666667F, 1.0F, 0.33333333F, 0.5F, 0.16666667F, 0.25F};
  for (size_t i = 0; i < 8; ++i) out.push_back(-out[i]);
  return out;
}

/// MatMulBnb4: A, codes of 4 bits with the first of two in the upper half, and the greatest absolute of each block of a weight [N, K].
void convert_matmul_bnb4(OldNode& old) {
  const Attributes given = old.node.attributes;
  const int64_t k = given.integer("K"), n = given.integer("N"), block = given.integer("block_size"),
                kind = given.integer("quant_type");
  constexpr int64_t most = int64_t{1} << 40;
  if (k < 1 || n < 1 || block < 1 || block > most || k > most / n)
    throw Error(Code::bad_model, cat("attributes K ", k, ", N ", n, " and block_size ", block, " are no sizes"));
  if (kind != 0 && kind != 1)
    throw Error(Code::bad_model, cat("attribute \"quant_type\" is ", kind, ", expected 0 (FP4) or 1 (NF4)"));
  const auto byte = [&](uint8_t value) {
    return old.graph.add_constant(Tensor::of<uint8_t>(DType::u8, Shape{}, {&value, 1}));
  };
  const ValueId codes = old.required(1);
  Attributes right;
  right.set("direction", std::string("RIGHT"));
  const ValueId last = old.ints({-1});
  const ValueId high = old.emit("Unsqueeze", {old.emit("BitShift", {codes, byte(4)}, std::move(right)), last});
  const ValueId low = old.emit("Unsqueeze", {old.emit("BitwiseAnd", {codes, byte(15)}), last});
  const ValueId both = old.emit("Reshape", {old.emit("Concat", {high, low}, OldNode::with("axis", -1)), last});
  const ValueId used = old.emit("Slice", {both, old.ints({0}), old.ints({n * k})});
  const std::vector<float> table = values_of_codes(kind);
  const ValueId values = old.graph.add_constant(Tensor::of<float>(DType::f32, Shape{16}, table));
  const ValueId numbers = old.emit("Gather", {values, as_type(old, used, DType::i32)}, OldNode::with("axis", 0));
  const int64_t blocks = (n * k + block - 1) / block;
  const ValueId column = old.emit("Reshape", {old.required(2), old.ints({blocks, 1})});
  const ValueId repeated = old.emit("Reshape", {old.emit("Expand", {column, old.ints({blocks, block})}), last});
  const ValueId scales = as_type(old, old.emit("Slice", {repeated, old.ints({0}), old.ints({n * k})}), DType::f32);
  ValueId weight = old.emit("Reshape", {old.emit("Mul", {numbers, scales}), old.ints({n, k})});
  weight = old.emit("CastLike", {weight, old.required(0)});
  if (given.integer("transB", 1)) weight = old.emit("Transpose", {weight}, permuted({1, 0}));
  old.become("MatMul", {old.required(0), weight});
}

// ---- LSTM ----

/// Weights [directions, in, 4 h] of 8-bit integers as [directions, 4 h, in] of f32; scale and zero point are [directions] or [directions,
/// 4 h].
ValueId layer_weight(OldNode& old, size_t weight, size_t scale) {
  const ValueId shape = old.ints({0, 1, -1});
  const auto spread = [&](size_t k) {
    return as_type(old, old.emit("Reshape", {old.required(k), shape}), DType::f32);
  };
  const ValueId centred = old.emit("Sub", {as_type(old, old.required(weight), DType::f32), spread(scale + 1)});
  return old.emit("Transpose", {old.emit("Mul", {centred, spread(scale)})}, permuted({0, 2, 1}));
}

/// DynamicQuantizeLSTM: LSTM's operands, with the scales and zero points of W and R after them. Its operands stay f32: ONNX Runtime rounds
/// them to 8 bits before each product.
void convert_dynamic_lstm(OldNode& old) {
  const ValueId w = layer_weight(old, 1, 8), r = layer_weight(old, 2, 10);
  std::vector<ValueId> operands{old.node.inputs.begin(), old.node.inputs.begin() + 8};
  operands[1] = w;
  operands[2] = r;
  old.node.op = "LSTM";
  old.node.inputs = trimmed_operands(std::move(operands));
}

constexpr Conversion rows_of_quantized[] = {
    {"com.microsoft.DequantizeLinear", convert_dequantize},
    {"com.microsoft.DynamicQuantizeLSTM", convert_dynamic_lstm},
    {"com.microsoft.DynamicQuantizeMatMul", convert_dynamic_matmul},
    {"com.microsoft.MatMulBnb4", convert_matmul_bnb4},
    {"com.microsoft.MatMulInteger16", convert_matmul_integer_16},
    {"com.microsoft.MatMulIntegerToFloat", convert_matmul_integer_to_float},
    {"com.microsoft.MulInteger", convert_mul_integer},
    {"com.microsoft.QGemm", convert_qgemm},
    {"com.microsoft.QLinearAdd", convert_qlinear_binary},
    {"com.microsoft.QLinearAveragePool", convert_qlinear_average_pool},
    {"com.microsoft.QLinearConcat", convert_qlinear_concat},
    {"com.microsoft.QLinearConv", convert_qlinear_conv},
    {"com.microsoft.QLinearGlobalAveragePool", convert_qlinear_global_average_pool},
    {"com.microsoft.QLinearLeakyRelu", convert_qlinear_leaky_relu},
    {"com.microsoft.QLinearMul", convert_qlinear_binary},
    {"com.microsoft.QLinearReduceMean", convert_qlinear_reduce_mean},
    {"com.microsoft.QLinearSigmoid", convert_qlinear_sigmoid},
    {"com.microsoft.QLinearSoftmax", convert_qlinear_softmax},
    {"com.microsoft.QLinearWhere", convert_qlinear_where},
    {"com.microsoft.QuantizeLinear", convert_quantize},
    {"com.microsoft.ReduceSumInteger", convert_reduce_sum_integer},
};

}  // namespace

std::span<const Conversion> quantized_conversions() { return rows_of_quantized; }

}  // namespace plait::onnx_import
