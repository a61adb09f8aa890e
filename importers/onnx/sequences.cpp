#include "importers/onnx/sequences.h"

#include <algorithm>
#include <map>
#include <optional>

#include "importers/onnx/old_node.h"

namespace plait::onnx_import {
namespace {

struct Form {
  std::string_view op;
  size_t least, most;  ///< inputs
};
constexpr Form forms[] = {{"ConcatFromSequence", 1, 1},
                          {"Optional", 0, 1},
                          {"OptionalGetElement", 1, 1},
                          {"OptionalHasElement", 0, 1},
                          {"SequenceMap", 1, SIZE_MAX},
                          {"SequenceAt", 2, 2},
                          {"SequenceConstruct", 1, SIZE_MAX},
                          {"SequenceLength", 1, 1},
                          {"SplitToSequence", 1, 2}};

/// Null for other ops.
const Form* form_of(std::string_view op) {
  const Form* found = std::ranges::find(forms, op, &Form::op);
  return found == std::end(forms) ? nullptr : found;
}

/// Only the operand `split` may be absent.
void check_operands(const Node& node, const Form& form) {
  if (node.inputs.size() < form.least || node.inputs.size() > form.most)
    throw Error(Code::bad_model, cat("there are ", node.inputs.size(), " inputs, expected ", form.least,
                                     form.most == form.least ? std::string() : " or more"));
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] == no_value && (i < form.least || form.most == SIZE_MAX))
      throw Error(Code::bad_model, cat("input ", i, " is required, but absent"));
  if (node.outputs.size() != 1 || node.outputs[0] == no_value)
    throw Error(Code::bad_model, cat("there are ", node.outputs.size(), " outputs, expected 1"));
}

constexpr int64_t most_parts = 4096;  // Split has an output for each

/// Existing values, or parts of `source` along `axis`: of `chunk` elements each, the last one of the rest.
struct Sequence {
  std::vector<ValueId> parts = {};
  ValueId source = no_value;
  int64_t axis = 0, chunk = 1;
  bool keeps_axis = true;  ///< otherwise parts lack the axis
};

class Unfolder {
 public:
  explicit Unfolder(Graph& graph) : graph_(graph) {}

  void run() {
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      try {
        unfold(node);
      } catch (const Error& error) {
        throw error.at(cat(describe(graph_, node), ", domain \"ai.onnx\" opset ", node.opset));
      }
    }
    for (ValueId id : graph_.outputs)
      if (sequences_.contains(id))
        throw Error(Code::unsupported, cat("output ", quote(graph_.value(id).name), ", made by ", makers_.at(id),
                                           ", is no tensor but a sequence"),
                    "let the model return the tensors, or their concatenation");
  }

 private:
  void unfold(Node& node) {
    const Form* form = form_of(node.op);
    if (form) check_operands(node, *form);
    const bool reads = form && node.op != "SplitToSequence" && node.op != "SequenceConstruct";
    for (size_t i = reads ? 1 : 0; i < node.inputs.size(); ++i)
      if (sequences_.contains(node.inputs[i]))
        throw Error(Code::unsupported, cat("input ", i, " is a sequence, which this op does not read here"),
                    "only SequenceAt, SequenceLength and ConcatFromSequence read sequences, outside bodies");
    OldNode old{graph_, node, node.opset};
    if (node.op == "SplitToSequence") split(old);
    else if (node.op == "SequenceConstruct") make(node, {.parts = node.inputs});
    else if (node.op == "SequenceAt") take(old, read(node));
    else if (node.op == "SequenceLength") count(old, read(node));
    else if (node.op == "ConcatFromSequence") join(old, read(node));
    else graph_.nodes.push_back(std::move(node));
  }

  void make(const Node& node, Sequence sequence) {
    sequences_[node.outputs[0]] = std::move(sequence);
    makers_[node.outputs[0]] = cat(describe(graph_, node), ", domain \"ai.onnx\" opset ", node.opset);
  }
  const Sequence& read(const Node& node) const {
    auto found = sequences_.find(node.inputs[0]);
    if (found == sequences_.end()) throw Error(Code::unsupported, "input 0 is a sequence whose parts are not known");
    return found->second;
  }
  /// Makes the node the last of its replacements.
  void become(OldNode& old, std::string op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    old.become(std::move(op), std::move(inputs), std::move(attributes));
    graph_.nodes.push_back(std::move(old.node));
  }
  /// The elements of an integer constant of rank 0 or 1.
  std::vector<int64_t> numbers(const OldNode& old, size_t input, std::string_view what) const {
    const Tensor* tensor = graph_.constant(old.required(input));
    if (!tensor || !is_integer(tensor->dtype()) || tensor->shape().rank() > 1)
      throw Error(Code::unsupported, cat("does not take input ", input, " (", what, "), unless as a constant integer or list"),
                  "export the model with a constant there, or with Split");
    return to_ints(tensor->view());
  }

  void split(OldNode& old) {
    Node& node = old.node;
    const int64_t axis = node.attributes.integer("axis", 0);
    if (old.input(1) == no_value)
      return make(node, {.source = old.required(0), .axis = axis, .keeps_axis = node.attributes.integer("keepdims", 1) != 0});
    const std::vector<int64_t> sizes = numbers(old, 1, "split");
    if (graph_.constant(old.input(1))->shape().rank() == 0) {
      if (sizes[0] < 1) throw Error(Code::bad_model, cat("input 1 (split) is ", sizes[0], ", expected at least 1"));
      return make(node, {.source = old.required(0), .axis = axis, .chunk = sizes[0]});
    }
    if (static_cast<int64_t>(sizes.size()) > most_parts)
      throw Error(Code::unsupported, cat("input 1 (split) makes ", sizes.size(), " parts, at most ", most_parts));
    Sequence sequence;
    for (size_t i = 0; i < sizes.size(); ++i) sequence.parts.push_back(graph_.add_value({}));
    Node parts = node;
    parts.op = "Split";
    parts.inputs = {old.required(0), old.ints(sizes)};
    parts.outputs = sequence.parts;
    parts.attributes = OldNode::with("axis", axis);
    make(node, std::move(sequence));
    if (!parts.outputs.empty()) graph_.nodes.push_back(std::move(parts));
  }

  void take(OldNode& old, const Sequence& sequence) {
    const std::vector<int64_t> positions = numbers(old, 1, "position");
    if (positions.size() != 1) throw Error(Code::bad_model, cat("input 1 (position) has ", positions.size(), " elements"));
    const int64_t at = positions[0];
    if (sequence.source == no_value) {
      const auto count = static_cast<int64_t>(sequence.parts.size());
      if (at < -count || at >= count)
        throw Error(Code::bad_model, cat("input 1 (position) is ", at, ", the sequence has ", count, " parts"));
      return become(old, "Identity", {sequence.parts[static_cast<size_t>(at < 0 ? at + count : at)]});
    }
    if (!sequence.keeps_axis) {
      const ValueId index = graph_.add_constant(Tensor::of_ints(std::vector<int64_t>{at}).reshaped({}));
      return become(old, "Gather", {sequence.source, index}, OldNode::with("axis", sequence.axis));
    }
    int64_t begin, end;
    if (__builtin_mul_overflow(at, sequence.chunk, &begin) || __builtin_add_overflow(begin, sequence.chunk, &end))
      throw Error(Code::bad_model, cat("input 1 (position) is ", at));
    if (at < 0 && sequence.chunk > 1)
      throw Error(Code::unsupported, cat("input 1 (position) is ", at, ": how many parts there are is not known"),
                  "export the model with a position counted from the front");
    become(old, "Slice",
           {sequence.source, old.ints({begin}), old.ints({end == 0 ? INT64_MAX : end}), old.ints({sequence.axis})});
  }

  void count(OldNode& old, const Sequence& sequence) {
    if (sequence.source != no_value && sequence.chunk > 1)
      throw Error(Code::unsupported, "how many parts the sequence has is not known");
    const ValueId axis = graph_.add_constant(Tensor::of_ints(std::vector<int64_t>{sequence.axis}).reshaped({}));
    if (sequence.source != no_value) return become(old, "Gather", {old.emit("Shape", {sequence.source}), axis});
    const auto parts = static_cast<int64_t>(sequence.parts.size());
    become(old, "Identity", {graph_.add_constant(Tensor::of_ints(std::vector<int64_t>{parts}).reshaped({}))});
  }

  void join(OldNode& old, const Sequence& sequence) {
    if (!old.node.attributes.has("axis")) old.missing("axis");
    const int64_t axis = old.node.attributes.integer("axis");
    const bool stacks = old.node.attributes.integer("new_axis", 0) != 0;
    if (sequence.source != no_value) {
      if (stacks == sequence.keeps_axis || axis != sequence.axis)
        throw Error(Code::unsupported, cat("joins along ", stacks ? "new " : "", "axis ", axis, " what was split along axis ",
                                           sequence.axis, " into parts whose number is not known"),
                    "export the model with Split and Concat");
      return become(old, "Identity", {sequence.source});
    }
    std::vector<ValueId> parts = sequence.parts;
    if (stacks)
      for (ValueId& part : parts) part = old.emit("Unsqueeze", {part, old.ints({axis})});
    become(old, "Concat", std::move(parts), OldNode::with("axis", axis));
  }

  Graph& graph_;
  std::map<ValueId, Sequence> sequences_;
  std::map<ValueId, std::string> makers_;  ///< by sequence, for messages
};

}  // namespace

bool is_sequence_op(std::string_view op) { return form_of(op) != nullptr; }

void unfold_sequences(Graph& graph) {
  if (std::ranges::none_of(graph.nodes, [](const Node& node) { return is_sequence_op(node.op); })) return;
  Graph unfolded = graph;
  try {
    Unfolder(unfolded).run();
  } catch (const Error& error) {
    if (error.code() != Code::unsupported) throw;
    return;  // a list when it runs
  }
  graph = std::move(unfolded);
}

}  // namespace plait::onnx_import
