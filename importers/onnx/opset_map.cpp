#include "importers/onnx/opset_map.h"

#include <map>

#include "core/base/error.h"
#include "core/base/text.h"
#include "importers/onnx/conversions.h"

namespace plait::onnx_import {
namespace {

void axes_to_input(OldNode& old) { old.list_to_input("axes", 1); }

void unsqueeze(OldNode& old) {
  if (!old.list_to_input("axes", 1)) old.missing("axes");
}

void split_sizes(OldNode& old) {
  if (old.opset < 13) old.list_to_input("split", 1);
  if (old.input(1) == no_value) old.node.attributes.set("num_outputs", static_cast<int64_t>(old.node.outputs.size()));
}

void slice(OldNode& old) {
  if (!old.list_to_input("starts", 1)) old.missing("starts");
  if (!old.list_to_input("ends", 2)) old.missing("ends");
  old.list_to_input("axes", 3);
}

void clip(OldNode& old) {
  constexpr std::string_view bounds[] = {"min", "max"};
  for (size_t i = 0; i < 2; ++i)
    if (old.node.attributes.has(bounds[i])) {
      ValueId bound = old.scalar_like(old.node.attributes.real(bounds[i], 0), old.required(0));
      old.node.attributes.erase(bounds[i]);
      old.set_input(i + 1, bound);
    }
}

void pad(OldNode& old) {
  bool oldest = old.node.attributes.has("paddings");
  if (!old.list_to_input(oldest ? "paddings" : "pads", 1)) old.missing("pads");
  double value = old.node.attributes.real("value", 0);
  old.node.attributes.erase("value");
  if (value != 0) old.set_input(2, old.scalar_like(value, old.required(0)));
}

void top_k(OldNode& old) {
  if (!old.node.attributes.has("k")) old.missing("k");
  int64_t k = old.node.attributes.integer("k");
  old.node.attributes.erase("k");
  old.set_input(1, old.ints({k}));
}

/// All opsets. A requested mask is all true, unless training_mode is or may be.
void dropout(OldNode& old) {
  if (old.input(2) != no_value) {
    const Tensor* training = old.graph.constant(old.input(2));
    if (!training || training->dtype() != DType::boolean || training->elements() != 1 || *training->as<uint8_t>())
      return spell_training_dropout(old);
  }
  if (old.node.outputs.size() > 1 && old.node.outputs[1] != no_value) {
    uint8_t yes = 1;
    Attributes value;
    value.set("value", Tensor::of<uint8_t>(DType::boolean, Shape{1}, {&yes, 1}));
    old.emit("ConstantOfShape", {old.emit("Shape", {old.required(0)})}, std::move(value), old.node.outputs[1]);
  }
  old.node.op = "Identity";
  old.node.inputs = {old.required(0)};
  old.node.outputs.resize(1, no_value);
  old.node.attributes = {};
}

/// Before opset 13 the input was flattened to [sizes before axis, sizes from axis on], and the axis was 1 by default.
/// That equals the present meaning if the axis is the last one, which only a known rank can show.
void softmax(OldNode& old) {
  ValueId x = old.required(0);
  int64_t axis = old.node.attributes.integer("axis", 1);
  const auto& dims = old.graph.value(x).type.dims;
  old.node.attributes.set("axis", int64_t{-1});
  if (axis == -1 || (dims && axis == static_cast<int64_t>(dims->size()) - 1)) return;
  Attributes from;
  from.set("axis", axis);
  ValueId shape = old.emit("Shape", {x});
  ValueId rows = old.emit(old.node.op, {old.emit("Flatten", {x}, from)}, old.node.attributes);
  old.node.op = "Reshape";
  old.node.inputs = {rows, shape};
  old.node.attributes = {};
  old.node.attributes.set("allowzero", int64_t{1});  // a size of zero means zero
}

void reshape(OldNode& old) {
  if (!old.list_to_input("shape", 1)) old.missing("shape");
}

void cast(OldNode& old) {
  const Attribute* to = old.node.attributes.find("to");
  if (!to || !std::holds_alternative<std::string>(*to)) return;
  constexpr std::string_view names[] = {"UNDEFINED", "FLOAT",  "UINT8", "INT8",    "UINT16", "INT16",  "INT32",
                                        "INT64",     "STRING", "BOOL",  "FLOAT16", "DOUBLE", "UINT32", "UINT64"};
  for (size_t i = 1; i < std::size(names); ++i)
    if (names[i] == std::get<std::string>(*to)) {
      old.node.attributes.set("to", static_cast<int64_t>(i));
      return;
    }
  throw Error(Code::bad_model, cat("cannot cast to ", quote(std::get<std::string>(*to))));
}

void concat(OldNode& old) {
  if (!old.node.attributes.has("axis")) old.node.attributes.set("axis", int64_t{1});
}

void scatter(OldNode& old) { old.node.op = "ScatterElements"; }

/// Opset 10 has only scales, and places elements by their corners; opset 7 to 9 calls the op Upsample, at first with an attribute.
void resize(OldNode& old) {
  if (old.node.attributes.has("scales")) {
    const Attribute* found = old.node.attributes.find("scales");
    const auto* scales = std::get_if<std::vector<double>>(found);
    if (!scales) throw Error(Code::bad_model, "attribute scales is no list of floats");
    const std::vector<float> numbers(scales->begin(), scales->end());
    old.set_input(1, old.graph.add_constant(
                         Tensor::of<float>(DType::f32, Shape{static_cast<int64_t>(numbers.size())}, numbers)));
    old.node.attributes.erase("scales");
  }
  old.node.op = "Resize";
  old.node.inputs = {old.required(0), no_value, old.required(1)};
  old.node.attributes.set("coordinate_transformation_mode", std::string("asymmetric"));
  old.node.attributes.set("nearest_mode", std::string("floor"));
}

/// Before opset 20 the axis was an attribute.
void dft(OldNode& old) {
  const int64_t axis = old.node.attributes.integer("axis", 1);
  old.node.attributes.erase("axis");
  old.set_input(2, old.graph.add_constant(Tensor::of_ints(std::vector<int64_t>{axis}).reshaped({})));
}

/// Before opset 7 the states of all steps were an output only on request; an absent name means the same.
void recurrent_layer(OldNode& old) { old.node.attributes.erase("output_sequence"); }

/// Boxes of opset 10 are measured from corner to corner.
void roi_align(OldNode& old) {
  old.node.attributes.set("coordinate_transformation_mode", std::string("output_half_pixel"));
}

/// `convert` applies to the op's forms of opsets below `until`.
struct Row {
  std::string_view op;
  int64_t until;
  void (*convert)(OldNode&);
};

constexpr int64_t every_opset = INT64_MAX;
constexpr Row rows[] = {
    {"Bernoulli", every_opset, seed_random},
    {"Multinomial", every_opset, seed_random},
    {"RandomNormal", every_opset, seed_random},
    {"RandomNormalLike", every_opset, seed_random},
    {"RandomUniform", every_opset, seed_random},
    {"RandomUniformLike", every_opset, seed_random},
    {"BlackmanWindow", every_opset, spell_blackman},
    {"HammingWindow", every_opset, spell_hamming},
    {"HannWindow", every_opset, spell_hann},
    {"MeanVarianceNormalization", every_opset, spell_mean_variance},
    {"SwiGLU", every_opset, spell_swiglu},
    {"DFT", 20, dft},
    {"LSTM", 7, recurrent_layer},
    {"GRU", 7, recurrent_layer},
    {"RNN", 7, recurrent_layer},
    {"ai.onnx.ml.ArrayFeatureExtractor", every_opset, spell_feature_extractor},
    {"ai.onnx.ml.Binarizer", every_opset, spell_binarizer},
    {"ai.onnx.ml.FeatureVectorizer", every_opset, spell_feature_vectorizer},
    {"ai.onnx.preview.training.Adagrad", every_opset, spell_adagrad},
    {"ai.onnx.preview.training.Adam", every_opset, spell_adam},
    {"ai.onnx.preview.training.Momentum", every_opset, spell_momentum},
    {"Add", 7, align_operand},
    {"Sub", 7, align_operand},
    {"Mul", 7, align_operand},
    {"Div", 7, align_operand},
    {"Pow", 7, align_operand},
    {"And", 7, align_operand},
    {"Or", 7, align_operand},
    {"Xor", 7, align_operand},
    {"Equal", 7, align_operand},
    {"Less", 7, align_operand},
    {"Greater", 7, align_operand},
    {"Gemm", 7, align_operand},
    {"BatchNormalization", 14, first_batch_normalization},
    {"Cast", 6, cast},
    {"Clip", 11, clip},
    {"Concat", 4, concat},
    {"Dropout", 7, first_dropout},
    {"Dropout", every_opset, dropout},
    {"GlobalLpPool", 2, first_power_pool},
    {"GroupNormalization", 21, first_group_normalization},
    {"Hardmax", 13, softmax},
    {"LogSoftmax", 13, softmax},
    {"Softmax", 13, softmax},
    {"StringNormalizer", every_opset, spell_string_normalizer},
    {"StringSplit", every_opset, spell_string_split},
    {"LpPool", 2, first_power_pool},
    {"Pad", 11, pad},
    {"PRelu", 7, align_slope},
    {"ReduceSum", 13, axes_to_input},
    {"ReduceL1", 18, axes_to_input},
    {"ReduceL2", 18, axes_to_input},
    {"ReduceLogSum", 18, axes_to_input},
    {"ReduceLogSumExp", 18, axes_to_input},
    {"ReduceMax", 18, axes_to_input},
    {"ReduceMean", 18, axes_to_input},
    {"NegativeLogLikelihoodLoss", every_opset, spell_likelihood_loss},
    {"ReduceMin", 18, axes_to_input},
    {"ReduceProd", 18, axes_to_input},
    {"ReduceSumSquare", 18, axes_to_input},
    {"Reshape", 5, reshape},
    {"Resize", 11, resize},
    {"RoiAlign", 16, roi_align},
    {"Scatter", every_opset, scatter},
    {"Slice", 10, slice},
    {"SoftmaxCrossEntropyLoss", every_opset, spell_cross_entropy_loss},
    {"Split", 18, split_sizes},
    {"Squeeze", 13, axes_to_input},
    {"Tile", 6, first_tile},
    {"TopK", 10, top_k},
    {"Unsqueeze", 13, unsqueeze},
    {"Upsample", 7, first_upsample},
    {"Upsample", every_opset, resize},
    {"com.microsoft.CausalConvWithState", every_opset, spell_causal_conv},
    {"com.microsoft.GatedRMSNorm", every_opset, spell_gated_norm},
    {"com.microsoft.LinearAttention", every_opset, spell_linear_attention},
    {"com.microsoft.LinearAttentionGate", every_opset, spell_attention_gate},
    {"com.microsoft.MoE", every_opset, spell_experts},
    {"com.microsoft.QMoE", every_opset, spell_quantised_experts},
};

}  // namespace

void to_newest(Graph& graph, Node& node, int64_t opset) {
  static const std::multimap<std::string_view, Row> by_op = [] {
    std::multimap<std::string_view, Row> out;
    for (const Row& row : rows) out.emplace(row.op, row);
    for (auto conversions : {attention_conversions, layer_conversions, quantized_conversions, tensor_conversions})
      for (const Conversion& one : conversions()) out.emplace(one.op, Row{one.op, every_opset, one.convert});
    return out;
  }();
  if (opset < 6) node.attributes.erase("consumed_inputs");  // a hint of opset 1 to 5
  OldNode old{graph, node, opset};
  auto [begin, end] = by_op.equal_range(node.op);
  for (auto row = begin; row != end; ++row)
    if (opset < row->second.until) row->second.convert(old);
}

}  // namespace plait::onnx_import
