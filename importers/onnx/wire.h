#pragma once
// Processes a file's wire format (protobuf.dev/programming-guides/encoding) before any message is parsed.
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait::onnx_import {

/// A node's metadata of the surrounding modules, from PyTorch's exporter.
constexpr std::string_view scopes_key = "namespace";

/// Range of a tensor's raw_data in the file.
struct RawRange {
  int64_t offset;
  int64_t size;
};

/// A copy of a serialised ModelProto without weights: each tensor's raw_data is replaced by 16 bytes with its range
/// (see `raw_range`), and unused fields are dropped: doc strings, value_info, stack traces and most other metadata,
/// training info. So files of any size parse (Protocol Buffers' limit is 2 GiB), and weights stay in place. Every
/// raw_data is replaced, also short ones: a file cannot inject a range. Throws Error(bad_model) if the bytes violate
/// the wire format: a length past the end, a bad tag, nesting above 100, more than 2 million messages or 16 million
/// fields; Error(unsupported) if more than 2 GiB remain.
std::string slim_model(std::span<const std::byte> file);

/// Location of a TensorProto: among the initializers of a graph, or elsewhere (e.g. in an attribute).
enum class TensorPlace : uint8_t { initializer, elsewhere };
/// The replacement of a TensorProto, which is passed without its raw_data, as by `slim_model`; "": it is left out.
using TensorChange = std::function<std::string(std::string slim, TensorPlace place)>;

/// For each body around a node, the names that are defined in it.
using BodyNames = std::vector<std::set<std::string_view>>;
/// The replacement of a NodeProto of the graph, or of a body in it; "": it is left out.
using NodeChange = std::function<std::string(std::string node, const BodyNames& bodies)>;

struct ModelChange {
  TensorChange tensor;
  NodeChange node;              ///< may be null; gets tensors as changed
  std::set<uint32_t> left_out;  ///< fields of the ModelProto that are not copied
};
/// A copy of a serialised ModelProto with these changes; everything else is copied byte for byte. Throws like
/// `slim_model`, and the functions' errors.
std::string changed_model(std::span<const std::byte> file, const ModelChange& change);

/// Only some fields of a ModelProto. Throws Error(bad_model) like `slim_model`.
std::string model_fields(std::span<const std::byte> file, const std::set<uint32_t>& fields);

/// Reads the range written by `slim_model`.
RawRange raw_range(std::string_view reference);

}  // namespace plait::onnx_import
