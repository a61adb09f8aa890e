// What Plait claims of ONNX's own ops: from which opset on a form is read, and which element types each operand may
// have (grammar: core/graph/type_rule.h). docs/ops.md is made from this, the importer and inference hold every node
// against it, and tests/unit/nodes runs the standard's tests of all that is claimed.
#include "core/ops/families.h"

namespace plait {

namespace {

struct Row {
  const char* op;
  int oldest;
  const char* types;
};

constexpr Row elementwise[] = {
    {"Abs", 1, "numbers"},
    {"Acos", 7, "floats"},
    {"Acosh", 9, "floats"},
    {"Add", 1, "numbers"},
    {"And", 1, "bool"},
    {"Asin", 7, "floats"},
    {"Asinh", 9, "floats"},
    {"Atan", 7, "floats"},
    {"Atanh", 9, "floats"},
    {"BitShift", 11, "integers"},
    {"BitwiseAnd", 18, "integers"},
    {"BitwiseNot", 18, "integers"},
    {"BitwiseOr", 18, "integers"},
    {"BitwiseXor", 18, "integers"},
    {"BitCast", 26, "any -> any"},
    {"Cast", 1, "any -> any"},
    {"CastLike", 15, "any -> any"},
    {"Ceil", 1, "floats"},
    {"Celu", 12, "floats"},
    {"Clip", 1, "numbers"},
    {"Cos", 7, "floats"},
    {"Cosh", 9, "floats"},
    {"Div", 1, "numbers"},
    {"Elu", 1, "floats"},
    {"Equal", 1, "numbers bool"},
    {"Erf", 9, "floats"},
    {"Exp", 1, "floats"},
    {"Floor", 1, "floats"},
    {"Gelu", 20, "floats"},
    {"Greater", 1, "numbers"},
    {"GreaterOrEqual", 12, "numbers"},
    {"HardSigmoid", 1, "floats"},
    {"HardSwish", 14, "floats"},
    {"Identity", 1, "any"},
    {"IsInf", 10, "floats"},
    {"IsNaN", 9, "floats"},
    {"LeakyRelu", 1, "floats"},
    {"Less", 1, "numbers"},
    {"LessOrEqual", 12, "numbers"},
    {"Log", 1, "floats"},
    {"Max", 1, "numbers"},
    {"Mean", 1, "floats"},
    {"Min", 1, "numbers"},
    {"Mish", 18, "floats"},
    {"Mod", 10, "numbers"},
    {"Mul", 1, "numbers"},
    {"Neg", 1, "numbers"},
    {"Not", 1, "bool"},
    {"Or", 1, "bool"},
    {"PRelu", 7, "numbers"},  // before: a slope a channel, wherever its dims are aligned
    {"Pow", 1, "numbers"},
    {"Reciprocal", 1, "floats"},
    {"Relu", 1, "numbers"},
    {"Round", 11, "floats"},
    {"Selu", 1, "floats"},
    {"Shrink", 9, "floats"},
    {"Sigmoid", 1, "floats"},
    {"Sign", 9, "numbers"},
    {"Sin", 7, "floats"},
    {"Sinh", 9, "floats"},
    {"Softplus", 1, "floats"},
    {"Softsign", 1, "floats"},
    {"Sqrt", 1, "floats"},
    {"Sub", 1, "numbers"},
    {"Sum", 1, "floats"},
    {"Swish", 24, "floats"},
    {"Tan", 7, "floats"},
    {"Tanh", 1, "floats"},
    {"ThresholdedRelu", 10, "floats"},
    {"Where", 9, "bool, any"},
    {"Xor", 1, "bool"},
};

constexpr Row moving[] = {
    {"Compress", 9, "any, bool"},
    {"Concat", 1, "any"},
    {"ConstantOfShape", 9, "index -> any"},
    {"DepthToSpace", 1, "any"},
    {"Expand", 8, "any, index"},
    {"EyeLike", 9, "numbers bool -> numbers bool"},
    {"Flatten", 1, "any"},
    {"Gather", 1, "any, index"},
    {"GatherElements", 11, "any, index"},
    {"GatherND", 11, "any, index"},
    {"NonZero", 9, "numbers bool"},
    {"OneHot", 9, "numbers, numbers, any"},
    {"Pad", 1, "any, index, any, index"},
    {"Range", 11, "numbers"},
    {"Reshape", 1, "any, index"},
    {"ReverseSequence", 10, "any, index"},
    {"ScatterElements", 11, "any, index, any"},
    {"ScatterND", 11, "any, index, any"},
    {"Shape", 1, "any"},
    {"Size", 1, "any"},
    {"Slice", 1, "any, index"},
    {"SpaceToDepth", 1, "any"},
    {"Split", 2, "any, index"},  // the first took its parts as an attribute, an operand or both
    {"Squeeze", 1, "any, index"},
    {"TensorScatter", 24, "any, any, index"},
    {"Tile", 6, "any, index"},  // the first repeated one axis
    {"Transpose", 1, "any"},
    {"Trilu", 14, "any, index"},
    {"Unique", 11, "numbers"},
    {"Unsqueeze", 1, "any, index"},
};

constexpr Row reducing[] = {
    {"ArgMax", 1, "numbers"},
    {"ArgMin", 1, "numbers"},
    {"CumProd", 26, "numbers, index"},
    {"CumSum", 11, "numbers, index"},
    {"Hardmax", 1, "floats"},
    {"LogSoftmax", 1, "floats"},
    {"LpNormalization", 1, "floats"},
    {"ReduceL1", 1, "numbers, index"},
    {"ReduceL2", 1, "numbers, index"},
    {"ReduceLogSum", 1, "numbers, index"},
    {"ReduceLogSumExp", 1, "numbers, index"},
    {"ReduceMax", 1, "numbers bool, index"},
    {"ReduceMean", 1, "numbers, index"},
    {"ReduceMin", 1, "numbers bool, index"},
    {"ReduceProd", 1, "numbers, index"},
    {"ReduceSum", 1, "numbers, index"},
    {"ReduceSumSquare", 1, "numbers, index"},
    {"Softmax", 1, "floats"},
    {"TopK", 1, "numbers, index"},
};

constexpr Row layers[] = {
    {"Attention", 23, "floats, floats, floats, floats bool, floats, floats, index"},
    {"BatchNormalization", 9, "floats"},  // before: training was the default
    {"CausalConvWithState", 27, "floats"},
    {"Conv", 1, "floats"},
    {"DequantizeLinear", 10, "u8 i8 u16 i16 i32 small_floats small_integers, floats f8e8m0, any"},
    {"DynamicQuantizeLinear", 11, "f32"},
    {"Einsum", 12, "numbers"},
    {"Gemm", 1, "numbers"},
    {"GroupNormalization", 21, "floats"},  // before: a scale and a bias a group, now a channel
    {"If", 1, "bool, any"},
    {"InstanceNormalization", 1, "floats"},
    {"LayerNormalization", 1, "floats"},  // before 17 a form of ONNX Runtime's, the same
    {"LinearAttention", 27, "floats"},
    {"Loop", 1, "index, bool, any"},
    {"MatMul", 1, "numbers"},
    {"MatMulInteger", 10, "u8 i8"},
    {"QLinearMatMul", 10, "u8 i8, floats, u8 i8, u8 i8, floats, u8 i8, floats, u8 i8"},
    {"QuantizeLinear", 10, "floats i32, floats f8e8m0 i32, any -> u8 i8 u16 i16 small_floats small_integers"},
    {"RMSNormalization", 23, "floats"},
    {"RotaryEmbedding", 23, "floats, floats, floats, index"},
    {"Scan", 9, "any"},  // before: a dimension of the batch
};

}  // namespace

void register_claims(OpSet& ops) {
  ops.add({.name = "Constant",
           .outputs = "output",
           .doc = "a tensor of the file",
           .since = 25,
           .written_as = "a constant"});
  ops.add({.name = "Dropout",
           .inputs = "data ratio? training_mode?",
           .outputs = "output mask?",
           .doc = "its operand: graphs are not trained",
           .since = 22,
           .written_as = "Identity"});
  ops.add({.name = "Scatter",
           .inputs = "data indices updates",
           .outputs = "output",
           .doc = "ScatterElements",
           .since = 11,
           .written_as = "ScatterElements"});
  ops.claim("Constant", 1, "-> any");
  ops.claim("Dropout", 7, "floats, floats, -");
  ops.claim("Scatter", 9, "any, index, any");
  for (std::span<const Row> rows : {std::span<const Row>(elementwise), std::span<const Row>(moving),
                                    std::span<const Row>(reducing), std::span<const Row>(layers)})
    for (const Row& row : rows) ops.claim(row.op, row.oldest, row.types);
}

}  // namespace plait
