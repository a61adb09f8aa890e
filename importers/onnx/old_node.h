#pragma once
// Shared by the files that convert ops to their newest form.
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"
#include "core/graph/graph.h"

namespace plait::onnx_import {

/// A node during its conversion to the newest form.
struct OldNode {
  Graph& graph;
  Node& node;
  int64_t opset;

  ValueId input(size_t index) const { return index < node.inputs.size() ? node.inputs[index] : no_value; }
  /// The operand at `index`, which must exist.
  ValueId required(size_t index) const {
    if (input(index) == no_value) throw Error(Code::bad_model, cat("input ", index, " is missing"));
    return input(index);
  }
  void set_input(size_t index, ValueId id) {
    if (node.inputs.size() <= index) node.inputs.resize(index + 1, no_value);
    node.inputs[index] = id;
  }
  ValueId output(size_t index) const { return index < node.outputs.size() ? node.outputs[index] : no_value; }
  ValueId ints(const std::vector<int64_t>& numbers) { return graph.add_constant(Tensor::of_ints(numbers)); }

  static Attributes with(const char* name, int64_t value) {
    Attributes out;
    out.set(name, value);
    return out;
  }

  /// Adds a helper node before this one, with a new output or the given one.
  ValueId emit(std::string op, std::vector<ValueId> inputs, Attributes attributes = {}, ValueId output = no_value) {
    Node& helper = graph.add_node(std::move(op), std::move(inputs), 0, std::move(attributes));
    helper.name = node.name;
    ValueId id = output == no_value ? graph.add_value({}) : output;
    graph.nodes.back().outputs = {id};
    return id;
  }

  /// Makes the node the last op of several, with its first output.
  void become(std::string op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    node.op = std::move(op);
    node.inputs = std::move(inputs);
    node.outputs.resize(1);
    node.attributes = std::move(attributes);
  }

  /// A number as a scalar of the dtype of `like`, which is often unknown yet.
  ValueId scalar_like(double number, ValueId like) {
    float value = static_cast<float>(number);
    ValueId scalar = graph.add_constant(Tensor::of<float>(DType::f32, Shape{}, {&value, 1}));
    return graph.value(like).type.dtype == DType::f32 ? scalar : emit("CastLike", {scalar, like});
  }

  /// The sizes of a weight in the file, which may be widened before it is read.
  std::vector<int64_t> weight_dims(size_t index) const {
    ValueId id = required(index);
    for (auto at = graph.nodes.rbegin(); at != graph.nodes.rend() && !graph.value(id).type.dims; ++at)
      if (at->op == "Cast" && at->outputs[0] == id) id = at->inputs[0];
    const auto& dims = graph.value(id).type.dims;
    std::vector<int64_t> out;
    for (const Dim& dim : dims ? *dims : Dims{}) {
      if (!dim.is_constant()) throw Error(Code::unsupported, cat("the sizes of input ", index, " are not constant"));
      out.push_back(dim.constant());
    }
    if (out.empty()) throw Error(Code::unsupported, cat("the sizes of input ", index, " are not known"));
    return out;
  }

  /// Moves the list attribute `name`, if present, to input `index`.
  bool list_to_input(std::string_view name, size_t index) {
    if (!node.attributes.has(name)) return false;
    std::vector<int64_t> numbers = node.attributes.integers(name);
    node.attributes.erase(name);
    set_input(index, ints(numbers));
    return true;
  }

  [[noreturn]] void missing(std::string_view name) const {
    throw Error(Code::bad_model, cat("attribute ", quote(name), " is missing"));
  }
};

/// Expands fused ops of ONNX Runtime's older optimizers and of hybrid decoders. Throws Error(unsupported) for forms
/// that no such model has.
void spell_causal_conv(OldNode& old);
void spell_attention_gate(OldNode& old);
void spell_gated_norm(OldNode& old);
void spell_linear_attention(OldNode& old);
void spell_experts(OldNode& old);
void spell_quantised_experts(OldNode& old);
void spell_likelihood_loss(OldNode& old);
void spell_cross_entropy_loss(OldNode& old);
void spell_hann(OldNode& old);
void spell_hamming(OldNode& old);
void spell_blackman(OldNode& old);
void spell_mean_variance(OldNode& old);
void spell_swiglu(OldNode& old);
void seed_random(OldNode& old);
void spell_string_normalizer(OldNode& old);
void spell_string_split(OldNode& old);
void spell_training_dropout(OldNode& old);
void spell_binarizer(OldNode& old);
void spell_feature_extractor(OldNode& old);
void spell_feature_vectorizer(OldNode& old);
void spell_adagrad(OldNode& old);
void spell_adam(OldNode& old);
void spell_momentum(OldNode& old);

/// The first forms of ops of the standard, in the present one (first_forms.cpp).
void align_operand(OldNode& old);
void align_slope(OldNode& old);
void first_batch_normalization(OldNode& old);
void first_dropout(OldNode& old);
void first_power_pool(OldNode& old);
void first_group_normalization(OldNode& old);
void first_tile(OldNode& old);
void first_upsample(OldNode& old);

}  // namespace plait::onnx_import
