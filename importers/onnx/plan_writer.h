#pragma once
// Writes a plan as multi-device annotations (onnx.proto: DeviceConfigurationProto, NodeDeviceConfigurationProto).
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/graph/device_configuration.h"
#include "importers/onnx/wire.h"

namespace onnx {
class NodeProto;
}

namespace plait::onnx_import {

/// The fields of a ModelProto that a plan changes: ir_version, configuration.
inline const std::set<uint32_t> plan_fields{1, 26};

/// One per export. Refers to the plan.
class PlanWriter {
 public:
  explicit PlanWriter(const DeviceConfiguration& plan);

  /// The new fields, from the old ones.
  std::string head(const std::string& fields) const;
  /// A node with annotations of its operands and its pipeline stage, for `changed_model`, which passes nodes in order, those of bodies
  /// before the node that has them: no stage is before that of a node whose result it reads. Throws Error(bad_model) if it is not a node.
  std::string node(std::string bytes, const BodyNames& bodies);
  /// Tensors that no node has read.
  std::vector<std::string> unread() const;

 private:
  struct Entry {
    const ShardingSpec* spec;
    bool read = false;
  };
  int32_t stage_of(const onnx::NodeProto& node, const BodyNames& bodies) const;

  const DeviceConfiguration& plan_;
  std::map<std::string, Entry, std::less<>> tensors_;
  std::map<std::string, int32_t, std::less<>> stages_;  ///< of values that nodes have made
};

}  // namespace plait::onnx_import
