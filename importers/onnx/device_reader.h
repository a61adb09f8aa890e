#pragma once
// Reads multi-device annotations: DeviceConfigurationProto, and nodes' annotations of operands.
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

/// One per import. Annotations do not change results, and the standard lets readers ignore them: a faulty one is a
/// warning, and is skipped.
class DeviceReader {
 public:
  explicit DeviceReader(const onnx::ModelProto& model);

  /// The constant of a node's operand; null if there is none.
  using ConstantOf = std::function<const Constant*(const std::string& name)>;
  /// Reads the node's annotations of its constant operands; those of other values are counted. `where` names the
  /// node. Returns the node's pipeline stage in the first configuration that has one, otherwise 0.
  int32_t read(const onnx::NodeProto& node, const std::string& where, const ConstantOf& constant_of);

  /// Configurations in file order.
  std::vector<DeviceConfiguration> take() { return std::move(configurations_); }
  /// At most ten.
  std::vector<std::string> warnings() const;

 private:
  void read_tensor(size_t configuration, const onnx::ShardingSpecProto& proto, const Constant& constant);
  void warn(const std::string& where, const std::string& what);

  std::vector<DeviceConfiguration> configurations_;
  std::map<std::string, size_t, std::less<>> numbers_;      ///< of configurations, by name
  std::map<std::pair<size_t, std::string>, size_t> known_;  ///< index of a tensor's spec
  std::vector<std::string> warnings_;
  int64_t passed_over_ = 0;  ///< faulty annotations
  int64_t activations_ = 0;  ///< values that are not constants
};

}  // namespace plait::onnx_import
