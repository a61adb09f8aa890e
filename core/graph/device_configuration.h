#pragma once
// Sharding annotations of a file: which devices hold which part of a weight. After ONNX's multi-device annotations
// (IR version 11: DeviceConfigurationProto, ShardingSpecProto; docs/proposals/ONNXMultiDeviceProposal.md of onnx),
// independent of the format. They are hints: results do not depend on them.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace plait {

/// A grid of equal parts of a tensor of the file, and their holders. A part's number is its row-major index over the
/// listed axes.
struct ShardingSpec {
  /// An axis may be sharded as a product of sizes, major first: for three concatenated matrices, (3, 1) (h, 2) is the
  /// first half of each and the second half of each.
  struct Factor {
    int64_t size = 1;
    int64_t shards = 1;  ///< divides the size
    bool operator==(const Factor&) const = default;
  };
  struct Axis {
    int32_t axis = 0;
    std::vector<Factor> factors;  ///< their product is the axis
    bool operator==(const Axis&) const = default;
  };

  /// Limit of parts that readers must check; far above any mesh.
  static constexpr int64_t most_parts = 1 << 16;

  std::string tensor;                        ///< name of an initializer, or of a Constant node's output
  std::vector<Axis> axes;                    ///< the sharded ones, each once
  std::vector<std::vector<int32_t>> groups;  ///< sets of devices: ascending, not empty
  std::vector<int32_t> holders;              ///< by part: index of the group whose devices hold it
  bool operator==(const ShardingSpec&) const = default;
};

struct DeviceConfiguration {
  std::string name;
  int32_t devices = 1;                ///< numbered from 0
  std::vector<ShardingSpec> tensors;  ///< each tensor once; others have no annotation
  /// Of a pipeline, by tensor of the file: the stages that read it, ascending. Empty: there is one stage.
  std::map<std::string, std::vector<int32_t>, std::less<>> stages = {};
};

}  // namespace plait
