#pragma once
// Multi-device annotations: DeviceConfigurationProto, and what nodes say about their operands.
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/constant.h"
#include "core/graph/device_configuration.h"

namespace onnx {
class ModelProto;
class NodeProto;
class ShardingSpecProto;
}  // namespace onnx

namespace plait::onnx_import {

/// One for each import. Annotations change nothing that a model computes, and the standard lets a reader ignore them: what
/// is wrong with one is a warning, and it is passed over.
class DeviceReader {
 public:
  explicit DeviceReader(const onnx::ModelProto& model);

  /// The constant that a node's operand is, null for none.
  using ConstantOf = std::function<const Constant*(const std::string& name)>;
  /// Reads the node's annotations of its constant operands; those of other values are counted. `where` names the node.
  /// Returns the pipeline stage that the first of the configurations gives to the node, 0 where it gives none.
  int32_t read(const onnx::NodeProto& node, const std::string& where, const ConstantOf& constant_of);

  /// Configurations in the order of the file.
  std::vector<DeviceConfiguration> take() { return std::move(configurations_); }
  /// At most ten.
  std::vector<std::string> warnings() const;

 private:
  void read_tensor(size_t configuration, const onnx::ShardingSpecProto& proto, const Constant& constant);
  void warn(const std::string& where, const std::string& what);

  std::vector<DeviceConfiguration> configurations_;
  std::map<std::string, size_t, std::less<>> numbers_;      ///< of configurations, by name
  std::map<std::pair<size_t, std::string>, size_t> known_;  ///< where the spec of a tensor stands
  std::vector<std::string> warnings_;
  int64_t passed_over_ = 0;  ///< annotations that were wrong
  int64_t activations_ = 0;  ///< values that no constants are
};

}  // namespace plait::onnx_import
