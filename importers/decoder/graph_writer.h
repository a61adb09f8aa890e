#pragma once
// Writes an ONNX graph node by node. Weights stay where they are: the file refers to their bytes as external data.
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/named_blob.h"

namespace plait::decoder {

/// An attribute of a node.
struct Attribute {
  std::string name;
  std::variant<int64_t, double, std::string, std::vector<int64_t>> value;
};
using Attributes = std::vector<Attribute>;

/// A size of an input or output: a number, or a symbol's name.
using Size = std::variant<int64_t, std::string>;

/// Not thread-safe. Values are known by their names.
class GraphWriter {
 public:
  GraphWriter();
  ~GraphWriter();
  GraphWriter(const GraphWriter&) = delete;

  std::string input(const std::string& name, DType dtype, const std::vector<Size>& sizes);
  void output(const std::string& name, DType dtype, const std::vector<Size>& sizes);

  /// Adds a node; its first output. "" among the inputs: left out.
  std::string op(const std::string& type, const std::vector<std::string>& inputs, const Attributes& attributes = {});
  /// The same of an op of com.microsoft, and of one with named outputs ("": a made-up name).
  std::string microsoft(const std::string& type, const std::vector<std::string>& inputs,
                        const Attributes& attributes);
  std::string op_to(const std::vector<std::string>& outputs, const std::string& type,
                    const std::vector<std::string>& inputs, const Attributes& attributes = {});

  /// Small constants, within the file; equal ones are one.
  std::string constant(int64_t value);
  std::string constants(const std::vector<int64_t>& values);
  std::string number(float value);
  std::string numbers(const std::vector<float>& values);

  /// A weight of this name; its bytes stay in `tensor`'s memory. The same name again is the same weight.
  std::string weight(const std::string& name, const Tensor& tensor);

  /// Nodes made while it lives have a name within this one: /layers.0/self_attn/...
  class Scope {
   public:
    Scope(GraphWriter& writer, const std::string& name);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    GraphWriter& writer_;
    const size_t length_;
  };

  /// The model's file and those of its weights: "model.onnx" first.
  std::vector<NamedBlob> files() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace plait::decoder
