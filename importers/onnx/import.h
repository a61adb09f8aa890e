#pragma once
// Reads an ONNX file into a Graph: checks the format's rules, and converts older forms of ops to the newest, so that
// no other folder depends on files, opsets or exporters' dialects.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/load_progress.h"
#include "core/base/tensor.h"
#include "core/graph/device_configuration.h"
#include "core/graph/graph.h"
#include "core/graph/schema.h"
#include "importers/onnx/external_data.h"

namespace plait {

struct ImportedModel {
  /// Sorted, with every node in the op set and in its newest form. Ops of the domains "" and "ai.onnx" have plain
  /// names ("Add"), others with their domain ("com.microsoft.MoE"). Local functions are inlined; Constant nodes are
  /// constants, named like their output. Outer values of If, Loop and Scan bodies are additional inputs of the node
  /// and of each of its bodies, in the same order (Loop and Scan then have the attribute `carried`, the number of
  /// preceding carried operands); constants are shared with the body instead.
  Graph graph;
  int64_t ir_version = 0;
  std::string producer;                   ///< name and version
  std::map<std::string, int64_t> opsets;  ///< by domain; "" is ONNX's own
  std::map<std::string, std::string> metadata;
  std::vector<DeviceConfiguration> configurations;  ///< the file's multi-device annotations of weights
  std::vector<std::string> warnings;  ///< unusual but accepted contents; text from the file is escaped
};

/// Reads a file. It and its external data files are mapped, each once; the graph's tensors share these mappings, and
/// only typed data (float_data and the like) is copied. External files are found by the rules of `map_beside`.
///
/// Throws Error, naming the file and the tensor, node or field:
///   not_found, io   the file, or one that it refers to, cannot be read
///   bad_model       it violates the format
///   unsupported     it is valid, but uses an unsupported op, dtype or feature
///   out_of_memory
///   cancelled       `progress`, which may be null and advances by nodes, was cancelled
/// Time and memory are linear in the file's size, for any contents. Thread-safe; `ops` must not change.
ImportedModel import_file(const std::string& path, const OpSet& ops, LoadProgress* progress = nullptr);

/// The same from memory. The graph's tensors keep `bytes` alive. `resolver` may be null: then external data is an
/// Error(not_found).
ImportedModel import_bytes(std::shared_ptr<const Blob> bytes, const ExternalResolver& resolver, const OpSet& ops,
                           LoadProgress* progress = nullptr);

}  // namespace plait
