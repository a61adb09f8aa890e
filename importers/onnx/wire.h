#pragma once
// The outermost look at a file: its wire format (protobuf.dev/programming-guides/encoding), before
// any message is made.
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait::onnx_import {

/// Of a node's metadata, what PyTorch's exporter writes of the modules around it.
constexpr std::string_view scopes_key = "namespace";

/// Where a tensor's raw_data lies in the file.
struct RawRange {
  int64_t offset;
  int64_t size;
};

/// A copy of a serialised ModelProto that holds no weights: each tensor's raw_data is replaced by 16 bytes that say
/// where it lies (see `raw_range`), and what the importer never reads is left out: doc strings, value_info, stack
/// traces and most other metadata, training info. So files of any size parse (Protocol Buffers stop at 2 GiB), and
/// weights stay where they are. Every raw_data is replaced, short ones too: a file cannot bring a range of its own.
///
/// Throws Error(bad_model) where the bytes break the wire format: a length past the end, a bad tag, nesting above
/// 100, more than 2 million messages or 16 million fields; Error(unsupported) when more than 2 GiB remain.
std::string slim_model(std::span<const std::byte> file);

/// Where a TensorProto stands: among the initializers of a graph, or elsewhere (in an attribute, say).
enum class TensorPlace : uint8_t { initializer, elsewhere };
/// What to write instead of a TensorProto, given without its raw_data as `slim_model` leaves it.
using TensorChange = std::function<std::string(std::string slim, TensorPlace place)>;

/// For each body around a node, the names that have a meaning of their own in it.
using BodyNames = std::vector<std::set<std::string_view>>;
/// What to write instead of a NodeProto of the graph, or of a body in it.
using NodeChange = std::function<std::string(std::string node, const BodyNames& bodies)>;

struct ModelChange {
  TensorChange tensor;
  NodeChange node;              ///< may be null; sees tensors as they were changed
  std::set<uint32_t> left_out;  ///< fields of the ModelProto that are not copied
};
/// A copy of a serialised ModelProto with these changes; all else is copied byte for byte. Throws as `slim_model` does, and
/// what the functions throw.
std::string changed_model(std::span<const std::byte> file, const ModelChange& change);

/// Some fields of a ModelProto alone. Throws Error(bad_model) as `slim_model` does.
std::string model_fields(std::span<const std::byte> file, const std::set<uint32_t>& fields);

/// Reads what `slim_model` wrote.
RawRange raw_range(std::string_view reference);

}  // namespace plait::onnx_import
