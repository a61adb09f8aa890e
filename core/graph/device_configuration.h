#pragma once
// What a file says about several devices: which of them hold which part of a weight. After ONNX's multi-device annotations
// (IR version 11: DeviceConfigurationProto, ShardingSpecProto; docs/proposals/ONNXMultiDeviceProposal.md of onnx), apart
// from the format. They are hints: what a model computes does not depend on them.
#include <cstdint>
#include <string>
#include <vector>

namespace plait {

/// A grid of equal parts of a tensor of the file, and who holds each. A part is numbered by its places along the axes as
/// they are listed, the first being the slowest.
struct ShardingSpec {
  /// An axis may be cut as the product of several sizes, the first being the slowest: of three matrices side by side,
  /// (3, 1) (h, 2) is the first half of each and the second half of each.
  struct Factor {
    int64_t size = 1;
    int64_t shards = 1;  ///< divides the size
    bool operator==(const Factor&) const = default;
  };
  struct Axis {
    int32_t axis = 0;
    std::vector<Factor> factors;  ///< of all of the axis
    bool operator==(const Axis&) const = default;
  };

  /// Of parts; what a reader has to check, and far beyond what any mesh asks for.
  static constexpr int64_t most_parts = 1 << 16;

  std::string tensor;                        ///< the name of an initializer, or of a Constant node's output
  std::vector<Axis> axes;                    ///< those that are cut, each once
  std::vector<std::vector<int32_t>> groups;  ///< sets of devices: ascending, not empty
  std::vector<int32_t> holders;              ///< by part: the number of the group whose devices have it
  bool operator==(const ShardingSpec&) const = default;
};

struct DeviceConfiguration {
  std::string name;
  int32_t devices = 1;                ///< they are numbered from 0
  std::vector<ShardingSpec> tensors;  ///< each tensor once; of others it says nothing
};

}  // namespace plait
