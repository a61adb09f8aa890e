#pragma once
// Writes a model back as ONNX: the file that was read, with the tensors that were changed, and with a plan for several
// devices.
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/tensor.h"
#include "importers/onnx/import.h"

namespace plait {

/// The tensor that takes the place of the one that the file calls so (an initializer, or a Constant node's value, which
/// has its output's name only by chance: it is asked for by its own); nullopt where it stays. Dtype and sizes may differ
/// from the file's only where the graph allows it; nothing here checks that.
using ChangedTensor = std::function<std::optional<Tensor>(const std::string& name)>;

struct ExportChanges {
  ChangedTensor tensor;  ///< may be null
  /// Written as the standard's multi-device annotations, at every node that reads one of its tensors by name, in place of
  /// those that the file has for a configuration of that name. The file is of IR version 11 then at least. Null: none.
  const DeviceConfiguration* plan = nullptr;
};

/// Writes `directory`/`file` and, where a tensor of a kilobyte or more is among its initializers, `directory`/`file`.data
/// with their bytes, each at a multiple of 64 (of 4096 from 64 KiB on, so that they can be mapped). All that is no tensor
/// is copied byte for byte: names, documentation, metadata, what Plait does not know. Weights are copied from where they
/// lie, one at a time: memory holds the graph alone. Returns the plan's tensors that no node reads by that name: those of
/// bodies, say.
///
/// The directory is made if it is not there. Throws Error:
///   invalid_argument   one of the two files is there already, or `file` is no plain file name
///   io                 writing failed; what was written is removed
///   and what import_bytes throws for the original's format and external data
std::vector<std::string> export_model(const std::shared_ptr<const Blob>& original, const ExternalResolver& resolver,
                                      const ExportChanges& changes, const std::string& directory,
                                      const std::string& file);

}  // namespace plait
