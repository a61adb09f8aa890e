#pragma once
// The opset imports and the local functions of a model.
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace onnx {
class AttributeProto;
class FunctionProto;
class ModelProto;
}  // namespace onnx

namespace plait::onnx_import {

/// Versions by domain; "ai.onnx" is "".
using OpsetImports = std::map<std::string, int64_t>;

/// "ai.onnx" and "" are one domain, returned as "".
std::string canonical_domain(const std::string& domain);

/// Throws Error(bad_model) for a version below 1, or two versions of a domain.
OpsetImports read_opsets(const onnx::ModelProto& model);

struct Function {
  const onnx::FunctionProto* proto;
  OpsetImports opsets;  ///< its own, and the model's for other domains
  std::map<std::string, const onnx::AttributeProto*> defaults;
  std::string label;    ///< "domain::name", for messages
};

/// Local functions by (domain, name, overload). Refers to the model's messages.
class FunctionTable {
 public:
  /// Throws Error(bad_model) for two functions with one key, duplicate operands or attributes, or more than 10,000
  /// functions.
  FunctionTable(const onnx::ModelProto& model, const OpsetImports& opsets);

  /// Null if there is none.
  const Function* find(const std::string& domain, const std::string& name, const std::string& overload) const;

 private:
  std::map<std::tuple<std::string, std::string, std::string>, Function> functions_;
};

}  // namespace plait::onnx_import
