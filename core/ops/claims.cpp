// The supported forms of ONNX's ops: the first opset, and the element types of each operand (grammar:
// core/graph/type_rule.h). docs/ops.md is generated from this, importer and inference check every node, and
// tests/unit/nodes runs the standard's tests of everything claimed.
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
    {"Add", 1, "T:numbers"},
    {"And", 1, "T:bool"},
    {"Asin", 7, "floats"},
    {"Asinh", 9, "floats"},
    {"Atan", 7, "floats"},
    {"Atanh", 9, "floats"},
    {"BitShift", 11, "T:integers"},
    {"BitwiseAnd", 18, "T:integers"},
    {"BitwiseNot", 18, "integers"},
    {"BitwiseOr", 18, "T:integers"},
    {"BitwiseXor", 18, "T:integers"},
    {"BitCast", 26, "any -> any"},
    {"Cast", 1, "values -> values"},
    {"CastLike", 15, "values -> values"},
    {"Ceil", 1, "floats"},
    {"Celu", 12, "floats"},
    {"Clip", 1, "T:numbers"},
    {"Cos", 7, "floats"},
    {"Cosh", 9, "floats"},
    {"Div", 1, "T:numbers"},
    {"Elu", 1, "floats"},
    {"Equal", 1, "T:numbers bool string"},
    {"Erf", 9, "floats"},
    {"Exp", 1, "floats"},
    {"Floor", 1, "floats"},
    {"Gelu", 20, "floats"},
    {"Greater", 1, "T:numbers"},
    {"GreaterOrEqual", 12, "T:numbers"},
    {"HardSigmoid", 1, "floats"},
    {"HardSwish", 14, "floats"},
    {"Identity", 1, "values"},
    {"IsInf", 10, "floats"},
    {"IsNaN", 9, "floats"},
    {"LeakyRelu", 1, "floats"},
    {"Less", 1, "T:numbers"},
    {"LessOrEqual", 12, "T:numbers"},
    {"Log", 1, "floats"},
    {"Max", 1, "T:numbers"},
    {"Mean", 1, "T:floats"},
    {"Min", 1, "T:numbers"},
    {"Mish", 18, "floats"},
    {"Mod", 10, "T:numbers"},
    {"Mul", 1, "T:numbers"},
    {"Neg", 1, "numbers"},
    {"Not", 1, "bool"},
    {"Or", 1, "T:bool"},
    {"PRelu", 1, "T:numbers"},
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
    {"Sub", 1, "T:numbers"},
    {"Sum", 1, "T:floats"},
    {"Swish", 24, "floats"},
    {"Tan", 7, "floats"},
    {"Tanh", 1, "floats"},
    {"ThresholdedRelu", 10, "floats"},
    {"Where", 9, "bool, T:values"},
    {"Xor", 1, "T:bool"},
};

constexpr Row moving[] = {
    {"Compress", 9, "values, bool"},
    {"Concat", 1, "T:values"},
    {"ConstantOfShape", 9, "index -> any"},
    {"DepthToSpace", 1, "values"},
    {"Expand", 8, "values, index"},
    {"EyeLike", 9, "numbers bool -> numbers bool"},
    {"Flatten", 1, "values"},
    {"Gather", 1, "values, index"},
    {"GatherElements", 11, "values, index"},
    {"GatherND", 11, "values, index"},
    {"NonZero", 9, "numbers bool string"},
    {"OneHot", 9, "numbers, numbers, values"},
    {"Pad", 1, "T:values, index, T, index"},
    {"Range", 11, "T:numbers"},
    {"Reshape", 1, "values, index"},
    {"ReverseSequence", 10, "values, index"},
    {"ScatterElements", 11, "T:values, index, T"},
    {"ScatterND", 11, "T:values, index, T"},
    {"Shape", 1, "values"},
    {"Size", 1, "values"},
    {"Slice", 1, "values, I:index"},
    {"SpaceToDepth", 1, "values"},
    {"Split", 1, "values, index"},
    {"Squeeze", 1, "values, index"},
    {"TensorScatter", 24, "T:values, T, index"},
    {"Tile", 1, "values, index"},
    {"Transpose", 1, "values"},
    {"Trilu", 14, "values, index"},
    {"Unique", 11, "numbers bool string"},
    {"Unsqueeze", 1, "values, index"},
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
    {"Attention", 23, "Q:floats, Q, V:floats, floats bool, Q, V, index"},
    {"BatchNormalization", 1, "floats, S:floats, S, M:floats, M"},
    {"CausalConvWithState", 27, "T:floats"},
    {"Conv", 1, "T:floats"},
    {"DequantizeLinear", 10, "Q:u8 i8 u16 i16 i32 small_floats small_integers, floats f8e8m0, Q"},
    {"Det", 11, "floats"},
    {"DynamicQuantizeLinear", 11, "f32"},
    {"Einsum", 12, "T:numbers"},
    {"Gemm", 1, "T:numbers"},
    {"GroupNormalization", 18, "T:floats"},
    {"If", 1, "bool, values"},
    {"InstanceNormalization", 1, "T:floats"},
    {"LayerNormalization", 1, "T:floats"},  // before 17 an identical op of ONNX Runtime
    {"LinearAttention", 27, "T:floats, T, T, floats, T, T"},
    {"Loop", 1, "index, bool, values"},
    {"MatMul", 1, "T:numbers"},
    {"MatMulInteger", 10, "A:u8 i8, B:u8 i8, A, B"},
    {"QLinearMatMul", 10, "A:u8 i8, S:floats, A, B:u8 i8, S, B, S, C:u8 i8"},
    {"QuantizeLinear", 10, "floats i32, floats f8e8m0 i32, Q:u8 i8 u16 i16 small_floats small_integers -> Q"},
    {"RMSNormalization", 23, "floats, floats"},
    {"RotaryEmbedding", 23, "T:floats, T, T, index"},
    {"Scan", 8, "values"},
};

constexpr Row image[] = {
    {"AffineGrid", 20, "floats, i64"},
    {"AveragePool", 1, "floats"},
    {"CenterCropPad", 18, "values, index"},
    {"Col2Im", 18, "numbers, index"},
    {"ConvInteger", 10, "A:u8 i8, B:u8 i8, A, B"},
    {"ConvTranspose", 1, "T:floats"},
    {"DeformConv", 19, "T:floats"},
    {"GlobalAveragePool", 1, "floats"},
    {"GlobalLpPool", 1, "floats"},
    {"GlobalMaxPool", 1, "floats"},
    {"GridSample", 16, "numbers bool, floats"},
    {"LRN", 1, "floats"},
    {"LpPool", 1, "floats"},
    {"MaxPool", 1, "floats i8 u8"},
    {"MaxRoiPool", 1, "T:floats"},
    {"MaxUnpool", 9, "floats, I:i64, I"},
    {"NonMaxSuppression", 10, "f32, f32, i64, f32, f32"},
    {"QLinearConv", 10, "A:u8 i8, f32, A, B:u8 i8, f32, B, f32, C:u8 i8, i32"},
    {"Resize", 10, "values, floats, f32, i64"},
    {"RoiAlign", 10, "T:floats, T, i64"},
};

constexpr Row signal[] = {
    {"Bernoulli", 15, "floats -> numbers bool"},
    {"DFT", 17, "floats, index, i64"},
    {"GRU", 1, "T:floats, T, T, T, i32, T"},
    {"LSTM", 1, "T:floats, T, T, T, i32, T, T, T"},
    {"MelWeightMatrix", 17, "I:index, I, I, F:floats, F -> numbers"},
    {"Multinomial", 7, "floats -> index"},
    {"RNN", 1, "T:floats, T, T, T, i32, T"},
    {"RandomNormal", 1, "-> floats"},
    {"RandomNormalLike", 1, "values -> floats"},
    {"RandomUniform", 1, "-> floats"},
    {"RandomUniformLike", 1, "values -> floats"},
    {"STFT", 17, "T:floats, I:index, T, I"},
    {"TfIdfVectorizer", 9, "index string"},
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
           .doc = "its operand, unless training_mode is true",
           .since = 22,
           .written_as = "Identity"});
  ops.add({.name = "Scatter",
           .inputs = "data indices updates",
           .outputs = "output",
           .doc = "ScatterElements",
           .since = 11,
           .written_as = "ScatterElements"});
  ops.add({.name = "Upsample", .inputs = "x scales?", .outputs = "y", .attributes = {{"mode", "string", "nearest"}},
           .doc = "x with repeated or interpolated elements", .since = 10, .written_as = "Resize"});
  ops.claim("Upsample", 1, "values, f32");
  for (const auto& [name, doc] : {std::pair("HannWindow", "a raised cosine"), std::pair("HammingWindow", "a raised cosine on a step"),
                                  std::pair("BlackmanWindow", "a sum of two cosines")}) {
    ops.add({.name = name, .inputs = "size", .outputs = "output",
             .attributes = {{"output_datatype", "int", "1"}, {"periodic", "int", "1"}}, .doc = doc, .since = 17,
             .written_as = "cosines of a Range"});
    ops.claim(name, 17, "index -> numbers");
  }
  ops.add({.name = "MeanVarianceNormalization", .inputs = "x", .outputs = "y", .attributes = {{"axes", "ints", "0, 2, 3"}},
           .doc = "x less its mean, over its deviation", .since = 13, .written_as = "the ops of its definition"});
  ops.claim("MeanVarianceNormalization", 9, "floats");
  ops.add({.name = "SwiGLU", .inputs = "a b", .outputs = "y", .attributes = {{"alpha", "float", "1"}},
           .doc = "Swish of a, times b (Shazeer 2020)", .since = 28, .written_as = "Swish and Mul"});
  ops.claim("SwiGLU", 28, "T:floats");
  ops.add({.name = "ai.onnx.preview.FlexAttention", .inputs = "q k v", .outputs = "y",
           .attributes = {{"prob_mod", "graph", ""}, {"scale", "float", ""}, {"score_mod", "graph", ""}, {"softmax_precision", "int", ""}},
           .doc = "softmax(score_mod(scale q k)) v, by heads, with bodies that modify scores and probabilities", .since = 1,
           .written_as = "Attention, or its steps with the bodies between them"});
  ops.claim("ai.onnx.preview.FlexAttention", 1, "T:floats");
  ops.add({.name = "NegativeLogLikelihoodLoss", .inputs = "input target weight?", .outputs = "loss",
           .attributes = {{"ignore_index", "int", ""}, {"reduction", "string", "mean"}},
           .doc = "the loss of logarithmic probabilities", .since = 22, .written_as = "the ops of its definition"});
  ops.claim("NegativeLogLikelihoodLoss", 12, "T:floats, index, T");
  ops.add({.name = "SoftmaxCrossEntropyLoss", .inputs = "scores labels weights?", .outputs = "output log_prob?",
           .attributes = {{"ignore_index", "int", ""}, {"reduction", "string", "mean"}},
           .doc = "the cross-entropy of scores", .since = 13, .written_as = "the ops of its definition"});
  ops.claim("SoftmaxCrossEntropyLoss", 12, "T:floats, index, T");
  for (const auto& [name, doc, written] :
       {std::tuple("Optional", "a value that may be absent", "a sequence of at most one part"),
        std::tuple("OptionalHasElement", "whether an optional has its value", "the length of a sequence, or a constant"),
        std::tuple("OptionalGetElement", "the value of an optional", "SequenceAt or Identity"),
        std::tuple("SequenceMap", "a body over the parts of sequences", "Loop")})
    ops.add({.name = name, .inputs = std::string_view(name) == "SequenceMap" ? "input_sequence additional_inputs..." : "input?",
             .outputs = "output...", .doc = doc, .since = std::string_view(name) == "SequenceMap" ? 17 : 28, .written_as = written});
  ops.claim("Optional", 15, "numbers bool string");
  ops.claim("OptionalHasElement", 15, "numbers bool string");
  ops.claim("OptionalGetElement", 15, "numbers bool string");
  ops.claim("SequenceMap", 17, "numbers bool string, values");
  ops.claim("SequenceConstruct", 11, "T:numbers bool string");
  ops.claim("SequenceEmpty", 11, "-> numbers bool string");
  ops.claim("SequenceInsert", 11, "numbers bool string, numbers bool string, index");
  ops.claim("SequenceErase", 11, "numbers bool string, index");
  ops.claim("SequenceAt", 11, "numbers bool string, index");
  ops.claim("SequenceLength", 11, "numbers bool string");
  ops.claim("SplitToSequence", 11, "numbers bool string, index");
  ops.claim("ConcatFromSequence", 11, "numbers bool string");
  ops.claim("Constant", 1, "-> values");
  ops.claim("Dropout", 1, "floats, floats, bool");
  ops.claim("Scatter", 9, "T:values, index, T");
  for (std::span<const Row> rows : {std::span<const Row>(elementwise), std::span<const Row>(moving),
                                    std::span<const Row>(reducing), std::span<const Row>(layers),
                                    std::span<const Row>(image), std::span<const Row>(signal)})
    for (const Row& row : rows) ops.claim(row.op, row.oldest, row.types);
}

}  // namespace plait
