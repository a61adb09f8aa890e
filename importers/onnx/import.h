#pragma once
// Reads an ONNX file into a Graph: the format's rules are checked here, and older forms of ops become the newest, so
// that nothing behind this folder knows files, opsets or exporters' dialects.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/load_progress.h"
#include "core/base/tensor.h"
#include "core/graph/device_configuration.h"
#include "core/graph/graph.h"
#include "core/graph/schema.h"

namespace plait {

/// The bytes of the external data file that a model calls `location`: a relative POSIX path without "..", checked
/// before the call. Called once for each file. Throws Error(not_found) when there is none.
using ExternalResolver = std::function<std::shared_ptr<const Blob>(const std::string& location)>;

struct ImportedModel {
  /// Sorted, every node known to the op set and in its newest form. Ops of the domains "" and "ai.onnx" are named
  /// plainly ("Add"), others with their domain ("com.microsoft.MoE"). Local functions are inlined; Constant nodes are
  /// constants, named like their output. What an If, Loop or Scan body reads from outside is one more input of the
  /// node and of each of its bodies, in the same order (Loop and Scan then say in the attribute `carried` how many
  /// operands before these go from one iteration to the next); constants are shared with the body instead.
  Graph graph;
  int64_t ir_version = 0;
  std::string producer;                   ///< name and version
  std::map<std::string, int64_t> opsets;  ///< by domain; "" is ONNX's own
  std::map<std::string, std::string> metadata;
  std::vector<DeviceConfiguration> configurations;  ///< the file's multi-device annotations of weights
  std::vector<std::string> warnings;  ///< what is unusual but was accepted; text from the file is escaped
};

/// Reads a file. It and its external data files are mapped, each once; the graph's tensors share these mappings, and
/// only typed data (float_data and the like) is copied. External files are found by the rules of `map_beside`.
///
/// Throws Error, naming the file and the tensor, node or field:
///   not_found, io   the file, or one that it refers to, cannot be read
///   bad_model       it breaks the format's rules
///   unsupported     it is legal, but uses an op, a dtype or a feature that Plait does not know
///   out_of_memory
///   cancelled       `progress`, which may be null and goes to its end by nodes, was cancelled
/// Time and memory are linear in the size of the file, whatever it holds. Thread-safe; `ops` must not change.
ImportedModel import_file(const std::string& path, const OpSet& ops, LoadProgress* progress = nullptr);

/// The same from memory. The graph's tensors keep `bytes` alive. `resolver` may be null: then external data is an
/// Error(not_found).
ImportedModel import_bytes(std::shared_ptr<const Blob> bytes, const ExternalResolver& resolver, const OpSet& ops,
                           LoadProgress* progress = nullptr);

}  // namespace plait
