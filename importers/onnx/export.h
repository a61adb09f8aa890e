#pragma once
// Writes a model as ONNX: the original file, with changed tensors, and optionally with a plan for several devices.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/tensor.h"
#include "importers/onnx/import.h"

namespace plait {

/// The replacement of the named tensor (an initializer, or a Constant node's value, whose own name is passed, not its
/// output's); nullopt to keep it. Dtype and sizes may differ from the file's only if the graph allows it, which is
/// not checked.
using ChangedTensor = std::function<std::optional<Tensor>(const std::string& name)>;

struct ExportChanges {
  ChangedTensor tensor;  ///< may be null
  /// Written as the standard's multi-device annotations, at every node that reads one of its tensors by name,
  /// replacing the file's configuration of that name. The IR version becomes at least 11. Null: none.
  const DeviceConfiguration* plan = nullptr;
  LoadProgress* progress = nullptr;  ///< may cancel it; null: nothing does
};

/// Writes `directory`/`file` and, if it has initializers of a kilobyte or more, `directory`/`file`.data with their
/// bytes, aligned to 64 (to 4096 from 64 KiB on, so that they can be mapped). Everything but tensors is copied byte
/// for byte: names, documentation, metadata, unknown fields. Weights are copied one at a time: memory holds only the
/// graph. Returns the plan's tensors that no node reads by that name, e.g. those of bodies.
///
/// The directory is created if absent. Throws Error:
///   invalid_argument   one of the two files exists, or `file` is not a plain file name
///   io                 writing failed; written files are removed
///   cancelled
///   and the errors of import_bytes for the original's format and external data
std::vector<std::string> export_model(const std::shared_ptr<const Blob>& original, const ExternalResolver& resolver,
                                      const ExportChanges& changes, const std::string& directory,
                                      const std::string& file);

}  // namespace plait
