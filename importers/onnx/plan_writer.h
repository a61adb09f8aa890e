#pragma once
// Writes a plan as multi-device annotations (onnx.proto: DeviceConfigurationProto, NodeDeviceConfigurationProto).
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/graph/device_configuration.h"
#include "importers/onnx/wire.h"

namespace plait::onnx_import {

/// The fields of a ModelProto that a plan changes: ir_version, configuration.
inline const std::set<uint32_t> plan_fields{1, 26};

/// One per export. Refers to the plan.
class PlanWriter {
 public:
  explicit PlanWriter(const DeviceConfiguration& plan);

  /// The new fields, from the old ones.
  std::string head(const std::string& fields) const;
  /// A node with annotations of its operands, for `changed_model`. Throws Error(bad_model) if it is not a node.
  std::string node(std::string bytes, const BodyNames& bodies);
  /// Tensors that no node has read.
  std::vector<std::string> unread() const;

 private:
  struct Entry {
    const ShardingSpec* spec;
    bool read = false;
  };
  const DeviceConfiguration& plan_;
  std::map<std::string, Entry, std::less<>> tensors_;
};

}  // namespace plait::onnx_import
